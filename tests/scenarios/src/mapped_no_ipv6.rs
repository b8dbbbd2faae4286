// SPDX-License-Identifier: GPL-2.0-only

//! Tests mapped sockets on a kernel that was booted with `ipv6.disable=1`. Such a kernel has no
//! routes, addresses or neighbours of IPv6, and its pointers to these tables are null.

use std::net::Ipv6Addr;

use guest::mapped::{answer_to, dial, is_esp, listener, option6, stream, MAPPED};
use guest::prelude::*;

scenarios! {
    direct mapped_sockets_of_a_kernel_without_ipv6_use_ipv4 = uses_ipv4, needs_no_ipv6;
    direct mapped_syn_of_ipv6_to_a_kernel_without_it_is_refused = refuses, needs_no_ipv6;
}

fn uses_ipv4(lab: &Lab) -> Outcome {
    let six = stream(&lab.a, libc::AF_INET6, MAPPED.1);
    ensure!(six.is_err(), "the kernel has IPv6");
    lab.give_ip_addresses()?;
    let listener = listener(&lab.b, MAPPED, 830, 4)?;
    let client = dial(&lab.a, MAPPED, 830)?;
    let (server, _) = listener.accept(0)?;
    ensure!(is_esp(&client) && is_esp(&server), "TCP carries it");
    exchange(&client, &server)
}

/// The test needs a mapped listener: without one, the host would refuse the SYN before it reads the
/// addresses in the SYN's option.
fn refuses(lab: &Lab) -> Outcome {
    lab.give_ip_addresses()?;
    let _listener = listener(&lab.b, MAPPED, 831, 4)?;
    let ends: [[Ipv6Addr; 2]; 3] = [
        ["fd00::1".parse()?, "fd00::2".parse()?],
        ["fe80::1".parse()?, "fe80::2".parse()?],
        [Ipv6Addr::UNSPECIFIED, Ipv6Addr::LOCALHOST],
    ];
    for (from, [client, server]) in (3000..).zip(ends) {
        let flags = answer_to(lab, &option6(client, server, 831), from, 831)?;
        ensure!(flags & flag::RST != 0, "{client} to {server}: {flags:#x}");
    }
    same(lab.b.counter("MappedInForeign")?, 3, "refused")
}
