// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests that a family number that is set once applies to every socket and address. The number
//! belongs to the process, so these tests run in a process of their own.

use std::io;
use std::time::Duration;

use sockaddr_en::{
    family, set_family, Address, EdpSocket, EspListener, EspSocket, EspStream, FamilyMissing,
    MacAddr,
};

/// No kernel registers this number: `AF_MAX` is far below it.
const ABSENT: u16 = 4000;
const PEER: Address = Address::new(MacAddr([2, 0, 0, 0, 0, 1]), 1, 2805);

#[test]
fn the_number_is_set_for_all_sockets_and_addresses() {
    let usual = PEER.to_raw();
    assert_eq!((family(), usual.sen_family), (28, 28));

    set_family(ABSENT);
    assert_eq!(PEER.to_raw().sen_family, ABSENT);
    assert_eq!(
        Address::from_raw(&usual).unwrap_err().kind(),
        io::ErrorKind::InvalidData
    );

    let errors = [
        EdpSocket::bind(Address::any(0)).unwrap_err(),
        EspListener::bind(Address::any(0)).unwrap_err(),
        EspSocket::new().unwrap_err(),
        EspStream::connect(PEER).unwrap_err(),
        EspStream::connect_timeout(&PEER, Duration::from_secs(1)).unwrap_err(),
    ];
    for error in errors {
        assert!(FamilyMissing::is(&error));
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        let told = error.to_string();
        assert!(
            told.contains("4000") && told.contains("modprobe enet"),
            "{told}"
        );
    }
}
