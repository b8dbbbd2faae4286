// SPDX-License-Identifier: GPL-2.0-only

//! Recognizes locked and repeated string instructions of x86-64 by their bytes.

/// The kinds of instructions that are counted separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An instruction that is neither locked nor a repeated string instruction.
    Plain,
    /// The instruction locks the memory that it changes, because it has the prefix `lock` or
    /// exchanges a register with memory.
    Locked,
    /// The instruction is a repeated string instruction; each step counts as an instruction.
    String(&'static str),
}

/// Repeated string instructions by their opcode, for elements of 1, 2, 4 and 8 bytes.
const STRINGS: [(u8, [&str; 4]); 5] = [
    (0xa4, ["rep movsb", "rep movsw", "rep movsl", "rep movsq"]),
    (0xa6, ["rep cmpsb", "rep cmpsw", "rep cmpsl", "rep cmpsq"]),
    (0xaa, ["rep stosb", "rep stosw", "rep stosl", "rep stosq"]),
    (0xac, ["rep lodsb", "rep lodsw", "rep lodsl", "rep lodsq"]),
    (0xae, ["rep scasb", "rep scasw", "rep scasl", "rep scasq"]),
];

impl Kind {
    /// Returns the kind of the instruction with these bytes. May misread 16-bit and 32-bit code,
    /// which runs during boot.
    pub fn of(bytes: &[u8]) -> Self {
        let (mut lock, mut repeat, mut short) = (false, false, false);
        let mut rest = bytes;
        while let [prefix, behind @ ..] = rest {
            match prefix {
                0xf0 => lock = true,
                0xf2 | 0xf3 => repeat = true,
                0x66 => short = true,
                // Segment and address-size prefixes.
                0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x67 => {}
                _ => break,
            }
            rest = behind;
        }
        let mut wide = false;
        if let [rex @ 0x40..=0x4f, behind @ ..] = rest {
            wide = rex & 8 != 0;
            rest = behind;
        }
        match rest {
            _ if lock => Self::Locked,
            // If the upper two bits of the operand byte are set, the instruction exchanges two
            // registers.
            [0x86 | 0x87, operands, ..] if operands >> 6 != 3 => Self::Locked,
            [code, ..] if repeat => {
                let element = match (code & 1, wide, short) {
                    (0, ..) => 0,
                    (_, true, _) => 3,
                    (_, _, true) => 1,
                    _ => 2,
                };
                let mut strings = STRINGS.iter();
                strings
                    .find(|(of_bytes, _)| *of_bytes == code & !1)
                    .map_or(Self::Plain, |(_, names)| Self::String(names[element]))
            }
            _ => Self::Plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_instructions_have_the_prefix_or_exchange_with_memory() {
        for bytes in [
            // lock xadd %eax, (%rdi); lock cmpxchg %rcx, 8(%rbx); lock incq %gs:(%rip)
            &[0xf0, 0x0f, 0xc1, 0x07][..],
            &[0xf0, 0x48, 0x0f, 0xb1, 0x4b, 0x08],
            &[0x65, 0xf0, 0x48, 0xff, 0x05, 0, 0, 0, 0],
            // lock addl $0, -4(%rsp): a barrier
            &[0xf0, 0x83, 0x44, 0x24, 0xfc, 0x00],
            // xchg %rax, (%rdi); xchg %al, 1(%rdi); xchg %ax, (%rdi)
            &[0x48, 0x87, 0x07],
            &[0x86, 0x47, 0x01],
            &[0x66, 0x87, 0x07],
        ] {
            assert_eq!(Kind::of(bytes), Kind::Locked, "{bytes:02x?}");
        }
        for bytes in [
            // xadd and cmpxchg without lock; xchg %rax, %rbx; xchg %ax, %ax; mov %al, (%rdi)
            &[0x65, 0x0f, 0xc1, 0x07][..],
            &[0x65, 0x48, 0x0f, 0xb1, 0x4b, 0x08],
            &[0x48, 0x87, 0xc3],
            &[0x66, 0x90],
            &[0x88, 0x07],
            // add $0xf0, %al
            &[0x04, 0xf0],
        ] {
            assert_eq!(Kind::of(bytes), Kind::Plain, "{bytes:02x?}");
        }
    }

    #[test]
    fn repeated_string_instructions_have_names() {
        for (bytes, name) in [
            (&[0xf3, 0xa4][..], "rep movsb"),
            (&[0xf3, 0x48, 0xa5], "rep movsq"),
            (&[0xf3, 0xa5], "rep movsl"),
            (&[0xf3, 0xaa], "rep stosb"),
            (&[0xf3, 0x48, 0xab], "rep stosq"),
            (&[0x66, 0xf3, 0xab], "rep stosw"),
            (&[0xf2, 0xae], "rep scasb"),
            (&[0xf3, 0xa6], "rep cmpsb"),
            (&[0xf3, 0xac], "rep lodsb"),
        ] {
            assert_eq!(Kind::of(bytes), Kind::String(name), "{bytes:02x?}");
        }
        for bytes in [
            // stosb without repetition; pause; endbr64; popcnt; rep ret; movss; only prefixes; no
            // bytes
            &[0xaa][..],
            &[0xf3, 0x90],
            &[0xf3, 0x0f, 0x1e, 0xfa],
            &[0xf3, 0x48, 0x0f, 0xb8, 0xc0],
            &[0xf3, 0xc3],
            &[0xf3, 0x0f, 0x10, 0x00],
            &[0xf3, 0x48],
            &[],
        ] {
            assert_eq!(Kind::of(bytes), Kind::Plain, "{bytes:02x?}");
        }
    }
}
