// SPDX-License-Identifier: GPL-2.0-only

//! Tests the headers of messages, which channels carry.

use esp::messages::{Place, Put, MESSAGE_LEN};
use proptest::prelude::*;

/// Returns the header of a message.
fn header(operation: u8, flags: u8, reserved: u16, key: u64, offset: u64) -> [u8; MESSAGE_LEN] {
    let fields: [&[u8]; 5] = [
        &[operation, flags],
        &reserved.to_be_bytes(),
        b"data",
        &key.to_be_bytes(),
        &offset.to_be_bytes(),
    ];
    fields.concat().try_into().unwrap()
}

#[test]
fn the_header_is_as_documented() {
    assert_eq!(Place::read(&header(1, 0, 0, 7, 8)), Some(Place::Queue));
    for tells in [false, true] {
        let put = Put {
            key: 0x0102_0304_0506_0708,
            offset: 0x1112_1314_1516_1718,
            tells,
        };
        let bytes = header(2, tells.into(), 0, put.key, put.offset);
        assert_eq!(bytes[8..16], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(Place::read(&bytes), Some(Place::Region(put)));
    }
}

#[test]
fn the_rest_of_a_put_goes_behind_the_first_part() {
    let put = Put {
        key: 1,
        offset: 10,
        tells: true,
    };
    assert_eq!(put.after(5), Put { offset: 15, ..put });
    // An offset beyond all memory does not wrap around to the region's start.
    let last = Put {
        offset: u64::MAX - 3,
        ..put
    };
    assert_eq!(last.after(5).offset, u64::MAX);
}

proptest! {
    #[test]
    fn no_other_header_is_accepted(bytes in prop::array::uniform24(0_u8..4)) {
        let known = matches!(bytes[..4], [1, 0, 0, 0] | [2, 0 | 1, 0, 0]);
        prop_assert_eq!(Place::read(&bytes).is_some(), known);
    }
}
