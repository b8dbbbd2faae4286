// SPDX-License-Identifier: GPL-2.0-only

//! Mechanisms that decide about TCP's connections and do not see ESP's: IPsec, VRFs, BPF programs,
//! `io_uring`. Where such a mechanism is in use, TCP carries the connections of mapped sockets, or
//! ESP obeys the mechanism.

use std::alloc::{alloc_zeroed, Layout};

use io_uring::types::{
    io_uring_region_desc, io_uring_zcrx_area_reg, io_uring_zcrx_ifq_reg, Fd,
    IORING_MEM_REGION_TYPE_USER,
};
use io_uring::{cqueue, opcode, squeue, IoUring};

use super::error_queue::{has, has_etf, want_reports, ETF};
use super::mapped_listening::Group;
use guest::address::internet;
use guest::bpf;
use guest::control::receive_with_control;
use guest::harness::remark;
use guest::kernel_log::finds_leaks;
use guest::mapped::{addresses, begin, stream};
use guest::mapped::{dial, is_esp, known, learn, listener, MAPPED, PLAIN};
use guest::prelude::*;

scenarios! {
    direct mapped_listener_behind_ipsec_takes_no_esp = ipsec_at_the_server;
    direct mapped_listener_with_an_ipsec_policy_takes_no_esp = ipsec_of_the_socket;
    direct mapped_client_behind_ipsec_uses_tcp = ipsec_at_the_client;
    direct mapped_listener_hears_the_vrfs_that_tcp_hears = vrf;
    direct mapped_listener_hears_its_own_host_where_tcp_does = own_host;
    direct mapped_listener_whose_group_has_a_program_takes_no_esp = program_of_a_group;
    direct mapped_listener_that_a_program_looks_up_takes_no_esp = lookup_by_program;
    direct mapped_sockets_whose_names_a_program_looks_at_use_tcp = names_by_program;
    direct mapped_connection_refuses_zero_copy_receive = zero_copy_receive;
    direct mapped_connection_reports_packets_not_sent_in_time = late;
}

const FAR: [u8; 4] = [10, 0, 0, 2];

/// Starts a client of `host` that connects to `port` of `to`, and waits until ESP is refused.
/// `refused_before` is the number of earlier refusals.
fn refused_client(host: &Host, to: [u8; 4], port: u16, refused_before: u32) -> Result<Socket> {
    let client = begin(host, to, port)?;
    eventually("ESP is refused", || {
        client.poll(libc::POLLOUT, Duration::ZERO)?;
        Ok(host.counter("MappedTcpRefused")? == refused_before + 1)
    })?;
    Ok(client)
}

/// Connects `a` to `listener`, and checks that ESP carries the connection if `by_esp` is true, and
/// TCP otherwise.
fn carried(lab: &Lab, listener: &Socket, port: u16, by_esp: bool) -> Result<[Socket; 2]> {
    let client = dial(&lab.a, MAPPED, port)?;
    let (server, _) = listener.accept(0)?;
    for end in [&client, &server] {
        ensure!(is_esp(end) == by_esp, "port {port}: ESP is {}", !by_esp);
    }
    exchange(&client, &server)?;
    Ok([client, server])
}

/// Each row: a command for `ip`, the command that undoes the first one, and whether TCP connects
/// between the two commands.
const POLICIES: [(&str, &str, bool); 4] = [
    (
        "policy add src 192.168.7.0/24 dst 10.0.0.2/32 dir in tmpl proto esp mode transport",
        "policy flush",
        true,
    ),
    (
        "policy add src 10.0.0.2/32 dst 192.168.7.0/24 dir out tmpl proto esp mode transport",
        "policy flush",
        true,
    ),
    (
        "policy add src 10.0.0.0/24 dst 10.0.0.2/32 dir in tmpl proto esp mode transport",
        "policy flush",
        false,
    ),
    (
        "policy setdefault in block",
        "policy setdefault in accept",
        false,
    ),
];

fn ipsec_at_the_server(lab: &Lab) -> Outcome {
    if !has("xfrm_user")? {
        return Ok(());
    }
    known(lab)?;
    lab.a.tcp_tries(5)?;
    let xfrm = |line: &str| lab.b.namespace.ip(&format!("xfrm {line}\n"));
    let mut port = 820;
    for (number, (set, take_back, connects)) in (0..).zip(POLICIES) {
        let listener = listener(&lab.b, MAPPED, port, 4)?;
        xfrm(set)?;
        let client = refused_client(&lab.a, FAR, port, number).context(set)?;
        if !connects {
            let events = client.poll(libc::POLLOUT, Duration::ZERO)?;
            ensure!(events == 0, "{set}: events {events:#x}");
            xfrm(take_back)?;
        }
        // The client connects once TCP retransmits its SYN.
        await_events(&client, libc::POLLOUT).context(set)?;
        let (server, _) = listener.accept(0)?;
        ensure!(!is_esp(&client) && !is_esp(&server), "{set}: ESP");
        client.set_nonblocking(false)?;
        exchange(&client, &server)?;
        if connects {
            xfrm(take_back)?;
        }
        port += 1;
    }
    let listener = listener(&lab.b, MAPPED, port, 4)?;
    carried(lab, &listener, port, true)?;
    Ok(())
}

/// Encodes a `struct xfrm_userpolicy_info` that says that incoming packets need not be encrypted.
fn allowing() -> Vec<u8> {
    const FAMILY: usize = 40;
    let mut policy = vec![0; 168];
    policy[FAMILY..FAMILY + 2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    policy
}

fn ipsec_of_the_socket(lab: &Lab) -> Outcome {
    const IP_XFRM_POLICY: i32 = 17;
    if !has("xfrm_user")? {
        return Ok(());
    }
    known(lab)?;
    let listener = listener(&lab.b, MAPPED, 828, 4)?;
    carried(lab, &listener, 828, true)?;
    listener
        .set_option(libc::IPPROTO_IP, IP_XFRM_POLICY, &allowing())
        .context("IP_XFRM_POLICY")?;
    carried(lab, &listener, 828, false)?;
    Ok(())
}

fn ipsec_at_the_client(lab: &Lab) -> Outcome {
    if !has("xfrm_user")? {
        return Ok(());
    }
    known(lab)?;
    let listener = listener(&lab.b, MAPPED, 829, 4)?;
    let xfrm = |line: &str| lab.a.namespace.ip(&format!("xfrm {line}\n"));
    xfrm("policy add src 192.168.7.0/24 dst 10.0.0.1/32 dir in tmpl proto esp mode transport")?;
    carried(lab, &listener, 829, false)?;
    same(lab.a.counter("MappedTcpRoute")?, 1, "left to TCP")?;
    xfrm("policy flush")?;
    carried(lab, &listener, 829, true)?;
    let client = stream(&lab.a, MAPPED.0, MAPPED.1)?;
    let to = internet([10, 0, 0, 2], 829);
    waits_for_keys(lab, &client, &to, "src 10.0.0.1 dst 10.0.0.2")
}

/// Checks that TCP carries the connection of `client` to `to` while host a's IPsec policy for
/// `addresses` has no keys yet. The kernel keeps the packets until there are keys.
pub fn waits_for_keys(lab: &Lab, client: &Socket, to: &[u8], addresses: &str) -> Outcome {
    if finds_leaks() {
        // `xfrm_create_dummy_bundle` takes a reference to the route as the child of its own, which
        // `dst_destroy` releases only of a route with a key. So the route of each such connection
        // is leaked, of plain TCP as well.
        remark("left out: packets that wait for keys leak the kernel's own routes");
        return Ok(());
    }
    let host = &lab.a.namespace;
    let before = lab.a.counter("MappedTcpRoute")?;
    lab.a.sysctl("net/core/xfrm_larval_drop", "0")?;
    let out = format!("{addresses} dir out");
    host.ip(&format!(
        "xfrm policy add {out} tmpl proto esp mode transport\n"
    ))?;
    client.set_nonblocking(true)?;
    refused(client.connect_bytes(to), libc::EINPROGRESS, "connect")?;
    same(lab.a.counter("MappedTcpRoute")?, before + 1, "left to TCP")?;
    host.ip(&format!("xfrm policy del {out}\n"))
}

/// Returns a mapped listener of `host` that is bound to the device or VRF named `device`, or to
/// none if the name is empty. Other sockets may bind the same port (`SO_REUSEPORT`).
fn bound_to(host: &Host, device: &str, port: u16) -> Result<Socket> {
    let listener = stream(host, MAPPED.0, MAPPED.1)?;
    listener.set_so(libc::SO_REUSEPORT, 1)?;
    listener.set_option(libc::SOL_SOCKET, libc::SO_BINDTODEVICE, device.as_bytes())?;
    listener.bind_bytes(&internet([0; 4], port))?;
    listener.listen(4)?;
    Ok(listener)
}

fn vrf(lab: &Lab) -> Outcome {
    if !has("vrf")? {
        return Ok(());
    }
    addresses(lab)?;
    let host = &lab.b;
    // A device that enters a VRF goes down for a moment, and forgets its neighbours.
    host.namespace.ip(&format!(
        "link add red type vrf table 10\nlink set red up\nlink set {DEVICE} master red\n\
         neigh replace 10.0.0.1 lladdr {} dev {DEVICE} nud permanent\n",
        print_mac(lab.a.mac)
    ))?;
    for host in [&lab.a, host] {
        host.namespace.await_carrier(host.ifindex)?;
    }
    let all_vrfs = |on| host.sysctl("net/ipv4/tcp_l3mdev_accept", on);
    all_vrfs("1")?;
    learn(&lab.a, (host, 2))?;
    let other = listener(host, MAPPED, 830, 4)?;
    carried(lab, &other, 830, true).context("a listener of all VRFs")?;

    all_vrfs("0")?;
    let _other = listener(host, MAPPED, 831, 4)?;
    let connected = dial(&lab.a, MAPPED, 831);
    ensure!(connected.is_err(), "the default VRF's listener is reached");
    for (port, device) in [(832, "red"), (833, DEVICE)] {
        let listener = bound_to(host, device, port)?;
        let [_, server] = carried(lab, &listener, port, true).context(device)?;
        let mtu = server.int_option(libc::IPPROTO_IP, libc::IP_MTU)?;
        same(mtu, 1500, "the MTU of what the connection goes by")?;
    }
    // The VRF's listener gets the connections if it is the only listener in the VRF. It also gets
    // them in preference to a listener of all VRFs, whichever of the two was bound first.
    for (port, on, devices) in [
        (834, "0", ["", "red"]),
        (835, "1", ["", "red"]),
        (836, "1", ["red", ""]),
    ] {
        all_vrfs(on)?;
        let both: Vec<_> = devices
            .iter()
            .map(|device| bound_to(host, device, port))
            .collect::<Result<_>>()?;
        let place = devices.iter().position(|device| *device == "red");
        let of_vrf = &both[place.context("no VRF")?];
        for _ in 0..8 {
            carried(lab, of_vrf, port, true).with_context(|| format!("{devices:?}, {on}"))?;
        }
    }
    Ok(())
}

/// A wire joins two devices of one host, and rules lead the host's packets over it. These packets
/// come from the host's own addresses. ESP's listener takes them if `accept_local` is set, which
/// makes IP take them too.
fn own_host(lab: &Lab) -> Outcome {
    const THERE: [u8; 4] = [10, 1, 0, 2];
    lab.a.namespace.ip(
        "link add left address 02:00:00:00:02:01 type veth peer name right address 02:00:00:00:02:02
         address add 10.1.0.1/32 dev left
         address add 10.1.0.2/32 dev right
         link set left up
         link set right up
         neigh replace 10.1.0.2 lladdr 02:00:00:00:02:02 dev left nud permanent
         neigh replace 10.1.0.1 lladdr 02:00:00:00:02:01 dev right nud permanent
         route add 10.1.0.2/32 dev left src 10.1.0.1 table 101
         route add 10.1.0.1/32 dev right src 10.1.0.2 table 102
         rule add pref 10 iif left lookup local
         rule add pref 11 iif right lookup local
         rule add pref 20 to 10.1.0.2 lookup 101
         rule add pref 21 to 10.1.0.1 lookup 102
         rule add pref 30 lookup local
         rule del pref 0\n",
    )?;
    let accept_local = |value| lab.a.sysctl("net/ipv4/conf/all/accept_local", value);
    accept_local("1")?;
    let listener = stream(&lab.a, MAPPED.0, MAPPED.1)?;
    listener.bind_bytes(&internet(THERE, 957))?;
    listener.listen(4)?;
    // The first connection waits for the host's answer.
    Knobs(&lab.a.namespace).set("mapped_wait", 100_000)?;
    let taken = begin(&lab.a, THERE, 957)?;
    await_events(&taken, libc::POLLOUT)?;
    let (server, _) = listener.accept(0)?;
    ensure!(is_esp(&taken) && is_esp(&server), "TCP carries it");
    accept_local("0")?;
    let _left_to_tcp = refused_client(&lab.a, THERE, 957, 0)?;
    same(lab.a.counter("MappedInForeign")?, 1, "refused")
}

fn program_of_a_group(lab: &Lab) -> Outcome {
    known(lab)?;
    let member = |port| -> Result<Socket> {
        let socket = stream(&lab.b, MAPPED.0, MAPPED.1)?;
        socket.set_so(libc::SO_REUSEPORT, 1)?;
        socket.bind_bytes(&internet([0; 4], port))?;
        Ok(socket)
    };
    // The BPF program selects the socket that listens second.
    let program = [bpf::keep(1)];
    for (port, before) in [(840, true), (841, false)] {
        let first = member(port)?;
        // A listener with a BPF program can be added only to a port to which no other socket is
        // bound yet.
        if before {
            bpf::attach_to_port(&first, &program).context("the program")?;
        }
        first.listen(8)?;
        let second = member(port)?;
        second.listen(8)?;
        if !before {
            bpf::attach_to_port(&first, &program).context("the program")?;
        }
        for _ in 0..8 {
            carried(lab, &second, port, false)?;
        }
        first.set_nonblocking(true)?;
        refused(first.accept(0), libc::EAGAIN, "the other one's accept")?;
    }
    let alone = member(842)?;
    alone.listen(8)?;
    bpf::attach_to_port(&alone, &[bpf::keep(0)])?;
    bpf::detach_from_port(&alone)?;
    carried(lab, &alone, 842, true)?;
    Ok(())
}

fn lookup_by_program(lab: &Lab) -> Outcome {
    known(lab)?;
    let namespace = File::open(lab.b.namespace.path())?;
    let program = bpf::look_up_listeners(&namespace).context("the program")?;
    let one = listener(&lab.b, MAPPED, 843, 4)?;
    carried(lab, &one, 843, false)?;
    drop(program);
    let other = listener(&lab.b, MAPPED, 844, 4)?;
    carried(lab, &other, 844, true)?;
    Ok(())
}

fn names_by_program(lab: &Lab) -> Outcome {
    known(lab)?;
    let group = Group::create()?;
    let place = group.open()?;
    for (port, which) in (850..).step_by(2).zip(bpf::NAMES) {
        let program = bpf::look_at_names(&place, which).context("the program")?;
        let plain = listener(&lab.b, MAPPED, port, 4)?;
        let looked_at = group.within(|| listener(&lab.b, MAPPED, port + 1, 4))?;
        // The client is in the control group, and the listener is outside of it.
        let [client, server] = group.within(|| carried(lab, &plain, port, false))?;
        ensure!(client.peer_name()? == internet(FAR, port));
        drop((client, server));
        // Now the listener is in the control group.
        carried(lab, &looked_at, port + 1, false)?;
        drop(program);
        group.within(|| carried(lab, &plain, port, true))?;
    }
    same(lab.a.counter("MappedTcpGroup")?, 4, "left to TCP")?;
    Ok(())
}

/// Returns a ring for zero-copy receives without a device: the kernel then copies into the
/// registered memory.
fn zero_copy_ring() -> Result<IoUring<squeue::Entry, cqueue::Entry32>> {
    const NODEV: u32 = 2;
    const PAGE: usize = 4096;
    const AREA: usize = 16 * PAGE;
    let ring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(8)
        .context("io_uring_setup")?;
    let memory = |size| -> Result<u64> {
        let layout = Layout::from_size_align(size, PAGE)?;
        // SAFETY: The layout's size is not zero. The memory is never freed, so it outlives the
        // ring.
        Ok(unsafe { alloc_zeroed(layout) } as u64)
    };
    let region = io_uring_region_desc {
        user_addr: memory(PAGE)?,
        size: PAGE as u64,
        flags: IORING_MEM_REGION_TYPE_USER,
        ..Default::default()
    };
    let area = io_uring_zcrx_area_reg {
        addr: memory(AREA)?,
        len: AREA as u64,
        ..Default::default()
    };
    let queue = io_uring_zcrx_ifq_reg {
        rq_entries: 8,
        flags: NODEV,
        area_ptr: (&raw const area) as u64,
        region_ptr: (&raw const region) as u64,
        ..Default::default()
    };
    (ring.submitter())
        .register_ifq(&queue)
        .context("registering a queue")?;
    Ok(ring)
}

/// Returns the result of the first completion of `IORING_OP_RECV_ZC`.
fn receive_in_place(socket: &Socket) -> Result<i32> {
    let mut ring = zero_copy_ring()?;
    let entry = opcode::RecvZc::new(Fd(socket.as_raw_fd()), 0).build();
    // SAFETY: The operation refers only to memory that the ring has registered.
    unsafe { ring.submission().push(&entry) }.context("a full ring")?;
    ring.submit_and_wait(1).context("io_uring_enter")?;
    let come = ring.completion().next().context("no completion")?;
    Ok(come.result())
}

fn zero_copy_receive(lab: &Lab) -> Outcome {
    known(lab)?;
    for (kind, port, result) in [
        (PLAIN, 860, 3),
        // The socket is connected, so the error must not be `ENOTCONN`.
        (MAPPED, 861, -libc::EPROTONOSUPPORT),
    ] {
        let listener = listener(&lab.b, kind, port, 4)?;
        let client = dial(&lab.a, kind, port)?;
        let (server, _) = listener.accept(0)?;
        ensure!(is_esp(&client) == (kind == MAPPED));
        for (from, to) in [(&client, &server), (&server, &client)] {
            from.send_all(b"abc")?;
            await_events(to, libc::POLLIN)?;
            same(receive_in_place(to)?, result, "IORING_OP_RECV_ZC")?;
            if result < 0 {
                comes_next(to, b"abc")?;
            }
        }
        exchange(&client, &server)?;
    }
    Ok(())
}

/// Takes a report of a late packet from the error queue of a mapped socket. Returns whether there
/// was one.
fn take_late(socket: &Socket) -> Result<bool> {
    const ORIGIN_TXTIME: u8 = 6;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    match receive_with_control(socket, flags, 256) {
        Ok((_, _, control)) => {
            // struct sock_extended_err: ee_origin follows the four bytes of ee_errno.
            let origin = control.first().and_then(|one| one.data.get(4));
            ensure!(origin == Some(&ORIGIN_TXTIME), "{control:?}");
            Ok(true)
        }
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// An option that a program sets on a mapped socket is also set on the companion, ESP's socket
/// behind the mapped one. Here the option asks for reports of late packets
/// (`SOF_TXTIME_REPORT_ERRORS`).
fn late(lab: &Lab) -> Outcome {
    if !has_etf()? {
        return Ok(());
    }
    known(lab)?;
    let listener = listener(&lab.b, MAPPED, 865, 4)?;
    let [client, server] = carried(lab, &listener, 865, true)?;
    want_reports(&client)?;
    lab.a.queue("add", &ETF)?;
    client.send_all(b"late at first")?;
    eventually("a report", || take_late(&client))?;
    // Without the queueing discipline packets are sent again, and the stream continues.
    lab.a.queue("del", &[])?;
    comes_next(&server, b"late at first")
}
