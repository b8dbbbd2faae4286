// SPDX-License-Identifier: GPL-2.0-only

//! Tests tun and tap devices, whose frames a program writes byte for byte.

use guest::frame::{edp, EDP_HEADER};
use guest::prelude::*;
use guest::tun::{Carries, Tun};

scenarios! {
    direct tun_packets_without_an_ethernet_header_are_dropped = without_header;
    direct tun_echo_requests_longer_than_the_mtu_get_no_answer = long_echo;
}

/// `ARPHRD_ETHER`, <linux/if_arp.h>.
const ETHER: u16 = 1;

/// In this test the program that owns a tun device declares the device to be Ethernet, but writes
/// packets without an Ethernet header. So unrelated memory is in front of a packet, where the
/// sender's address would be.
fn without_header(lab: &Lab) -> Outcome {
    const COUNT: u32 = 500;
    let host = &lab.a;
    let tun = Tun::create(&host.namespace, "tun0", Carries::Packets)?;
    tun.set_type(ETHER)?;
    host.namespace.ip("link set tun0 up\n")?;
    let device = Device::named(&host.namespace, "tun0")?;
    let datagrams = device.edp(98)?;
    let _listener = device.listener(98)?;
    let packet = |ethertype: u16, bytes: &[u8]| {
        let mut packet = vec![0, 0];
        packet.extend_from_slice(&ethertype.to_be_bytes());
        packet.extend_from_slice(bytes);
        tun.write(&packet)
    };
    // Write packets without payload, and packets with bytes where an Ethernet address would be.
    for payload in [&[][..], &[2; 8]] {
        for _ in 0..COUNT {
            let bytes = edp(97, 98, payload.len() as u16, payload);
            packet(ETH_P_EDP, &bytes)?;
            packet(ETH_P_ESP, &bytes)?;
        }
    }
    host.await_counter("EdpInNotOurs", 2 * COUNT)?;
    host.await_counter("EspInNotOurs", 2 * COUNT)?;
    silent(&datagrams, "a datagram without a sender")?;
    // The socket still receives the device's own frames, which have a header.
    let there = device.to(&device, 98);
    device.edp(99)?.send_to(b"whole", 0, &there)?;
    receives(&datagrams, b"whole")
}

/// A tap device accepts written frames of any length; the frames that it transmits fit its MTU.
fn long_echo(lab: &Lab) -> Outcome {
    const MTU: usize = 600;
    const STRANGER: [u8; 6] = [2, 0, 0, 0, 0, 0x66];
    let host = &lab.a;
    let tap = Tun::create(&host.namespace, "tap0", Carries::Frames)?;
    let up = format!("link set tap0 mtu {MTU}\nlink set tap0 up\n");
    host.namespace.ip(&up)?;
    let device = Device::ready(&host.namespace, "tap0")?;
    let echo = |kind: u8, source: u16, destination: u16, length: usize| {
        let mut payload = vec![7; length];
        payload[0] = kind;
        edp(source, destination, length as u16, &payload)
    };
    let largest = MTU - EDP_HEADER;
    for length in [largest + 1, 1400, largest] {
        let request = echo(1, 4711, 0, length);
        tap.write(&ethernet(device.mac, STRANGER, ETH_P_EDP, &request))?;
    }
    // Other frames of the host, such as IPv6 router solicitations, have another type.
    let answer = loop {
        let frame = tap.read(patience())?.context("no answer")?;
        if frame[12..14] == ETH_P_EDP.to_be_bytes() {
            break frame;
        }
    };
    let expected = ethernet(STRANGER, device.mac, ETH_P_EDP, &echo(2, 0, 4711, largest));
    ensure!(
        answer == expected,
        "the first answer has {} bytes, the one that fits {}",
        answer.len(),
        expected.len()
    );
    host.await_counter("EdpInMalformed", 2)
}
