// SPDX-License-Identifier: GPL-2.0-only

//! Tests both protocols over MACsec, which adds the encryption and authentication that they lack.

use guest::frame::ETH_P_ALL;
use guest::prelude::*;

scenarios! {
    direct macsec_hides_both_protocols_and_refuses_forged_frames = hides;
}

const KEYS: [&str; 2] = [
    "00112233445566778899aabbccddeeff",
    "ffeeddccbbaa99887766554433221100",
];

/// The payload, which must not appear on the wire.
const SECRET: &[u8] = b"nobody but the two of us reads this";

/// Sets up `host`'s end of the secured channel.
fn secure(host: &Host, other: &Host, [own, others]: [&str; 2]) -> Result<()> {
    let far = print_mac(other.mac);
    host.namespace.ip(&format!(
        "link add link eth0 sec0 type macsec port 1 encrypt on validate strict replay on window 0\n\
         macsec add sec0 tx sa 0 pn 1 on key 00 {own}\n\
         macsec add sec0 rx port 1 address {far}\n\
         macsec add sec0 rx port 1 address {far} sa 0 pn 1 on key 01 {others}\n\
         link set sec0 up\n"
    ))
}

/// Sets up both ends of the secured channel: the device `sec0` of either host.
pub fn secure_both(lab: &Lab) -> Outcome {
    let [one, other] = KEYS;
    secure(&lab.a, &lab.b, [one, other])?;
    secure(&lab.b, &lab.a, [other, one])
}

fn hides(lab: &Lab) -> Outcome {
    secure_both(lab)?;
    let near = Device::ready(&lab.a.namespace, "sec0")?;
    let far = Device::ready(&lab.b.namespace, "sec0")?;
    let wire = lab.b.packets(ETH_P_ALL)?;
    let listener = far.listener(995)?;
    let (client, server) = near.stream_to(&far, 996)?;
    client.send_all(SECRET)?;
    comes_next(&server, SECRET)?;
    let (datagrams, far_datagrams) = (near.edp(997)?, far.edp(997)?);
    datagrams.send_to(SECRET, 0, &near.to(&far, 997))?;
    receives(&far_datagrams, SECRET)?;
    let mut seen = 0;
    let mut frame = [0; 4096];
    while let Ok(length) = wire.take(&mut frame) {
        let frame = &frame[..length];
        let kind = u16::from_be_bytes([frame[12], frame[13]]);
        ensure!(
            kind != ETH_P_EDP && kind != ETH_P_ESP,
            "a frame of type {kind:#x} was on the wire"
        );
        ensure!(
            !frame.windows(SECRET.len()).any(|part| part == SECRET),
            "the secret was on the wire"
        );
        seen += 1;
    }
    ensure!(seen > 3, "only {seen} frames were on the wire");
    // An attacker on the wire without the keys sends a SYN and a datagram as plain frames.
    let syn = EspHeader::new(9, 995, flag::SYN);
    let forger = lab.a.packets(0)?;
    forger.send_esp(lab.b.mac, lab.a.mac, syn)?;
    let datagram = guest::frame::edp(997, 997, 6, b"forged");
    forger.send(&ethernet(lab.b.mac, lab.a.mac, ETH_P_EDP, &datagram))?;
    // The plain frames reach `eth0`, the device under `sec0`. No socket is bound to `eth0`.
    lab.b.await_counter("EspInNoSocket", 1)?;
    lab.b.await_counter("EdpInNoSocket", 1)?;
    silent(&far_datagrams, "a forged datagram")?;
    listener.set_nonblocking(true)?;
    refused(listener.accept(0).map(drop), libc::EAGAIN, "a forged one")?;
    let load = Load::of(1 << 20, 20_000, 995);
    transfer_both_ways(&client, &server, load)
}
