// SPDX-License-Identifier: MIT OR Apache-2.0

//! Finds the numbers of kernel functions in BTF, the kernel's description of its types.
//!
//! The search reads only the header of each type, which takes a few milliseconds. BTF libraries
//! would parse all types at each `enet run`.

use std::ffi::CStr;

/// Kinds of types, as in `linux/btf.h`.
mod kind {
    pub const INT: u32 = 1;
    pub const PTR: u32 = 2;
    pub const ARRAY: u32 = 3;
    pub const STRUCT: u32 = 4;
    pub const UNION: u32 = 5;
    pub const ENUM: u32 = 6;
    pub const FWD: u32 = 7;
    pub const TYPEDEF: u32 = 8;
    pub const VOLATILE: u32 = 9;
    pub const CONST: u32 = 10;
    pub const RESTRICT: u32 = 11;
    pub const FUNC: u32 = 12;
    pub const FUNC_PROTO: u32 = 13;
    pub const VAR: u32 = 14;
    pub const DATASEC: u32 = 15;
    pub const FLOAT: u32 = 16;
    pub const DECL_TAG: u32 = 17;
    pub const TYPE_TAG: u32 = 18;
    pub const ENUM64: u32 = 19;
}

const MAGIC: u16 = 0xeb9f;

fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    let bytes = bytes.get(offset..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

/// Returns the number of bytes that follow the first three words of a type. The number depends on
/// the type's kind and on its number of members.
fn rest(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        kind::PTR
        | kind::FWD
        | kind::TYPEDEF
        | kind::VOLATILE
        | kind::CONST
        | kind::RESTRICT
        | kind::FUNC
        | kind::FLOAT
        | kind::TYPE_TAG => 0,
        kind::INT | kind::VAR | kind::DECL_TAG => 4,
        kind::ARRAY => 12,
        kind::ENUM | kind::FUNC_PROTO => 8 * members,
        kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => 12 * members,
        _ => return None,
    })
}

/// Returns the number of the function `name`; `None` if it does not exist or the format is unknown.
pub fn function(btf: &[u8], name: &CStr) -> Option<u32> {
    let magic = btf.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes));
    if magic != Some(MAGIC) {
        return None;
    }
    // Words of the header: magic, version and flags; header length; offset and length of the types;
    // offset and length of the names.
    let field = |index: usize| word(btf, 4 * index).map(|word| word as usize);
    let behind = btf.get(field(1)?..)?;
    let types = behind.get(field(2)?..)?.get(..field(3)?)?;
    let names = behind.get(field(4)?..)?.get(..field(5)?)?;
    let mut place = 0;
    // The first type has number 1.
    for number in 1.. {
        let info = word(types, place + 4)?;
        let (kind, members) = ((info >> 24) & 0x1f, (info & 0xffff) as usize);
        if kind == kind::FUNC {
            let found = names.get(word(types, place)? as usize..)?;
            if found.starts_with(name.to_bytes_with_nul()) {
                return Some(number);
            }
        }
        place += 12 + rest(kind, members)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds BTF from types. Each type has the offset of its name, its kind, its number of
    /// members, and the number of words that follow. The names are "", "one" and "two".
    fn btf(types: &[(u32, u32, u32, usize)]) -> Vec<u8> {
        const NAMES: &[u8] = b"\0one\0two\0";
        let mut body = Vec::new();
        for (name, kind, members, words) in types {
            for word in [*name, (kind << 24) | members, 0] {
                body.extend(word.to_ne_bytes());
            }
            body.resize(body.len() + 4 * words, 0xff);
        }
        let length = body.len() as u32;
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        for word in [24, 0, length, length, NAMES.len() as u32] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(body);
        bytes.extend(NAMES);
        bytes
    }

    #[test]
    fn functions_are_found_behind_other_types() {
        let bytes = btf(&[
            (5, kind::INT, 0, 1),
            (5, kind::STRUCT, 2, 6),
            (0, kind::FUNC_PROTO, 3, 6),
            (1, kind::FUNC, 1, 0),
            (5, kind::FUNC, 1, 0),
        ]);
        assert_eq!(function(&bytes, c"one"), Some(4));
        assert_eq!(function(&bytes, c"two"), Some(5));
        assert_eq!(function(&bytes, c"tw"), None);
        for end in 0..bytes.len() {
            // Truncated BTF must not cause reads past its end.
            let _ = function(&bytes[..end], c"two");
        }
        assert_eq!(
            function(&btf(&[(1, 31, 0, 0), (1, kind::FUNC, 1, 0)]), c"one"),
            None
        );
    }
}
