// SPDX-License-Identifier: GPL-2.0-only

//! Tests objects that outlive a call or a descriptor. They do not block a device's removal, and
//! keep the module loaded as long as they need it.

use nix::mount::{mount, umount, MsFlags};

use guest::address::{internet, IPPROTO_ENET};
use guest::bpf;
use guest::held_page::{HeldPage, PAGE};
use guest::prelude::*;
use guest::socket::interface_index;
use guest::zero_copy;

scenarios! {
    guest device_goes_while_an_option_of_edp_waits_for_memory = edp_option_waits;
    guest device_goes_while_an_option_of_esp_waits_for_memory = esp_option_waits;
    direct device_goes_while_an_option_waits_for_a_send = option_waits_for_send;
    guest module_stays_while_a_datagram_waits_in_a_queue = datagram_waits, within(120);
    guest module_stays_while_a_datagram_in_place_waits_in_a_queue = datagram_in_place_waits, within(120);
    guest module_stays_while_a_paced_syn_waits_in_a_queue = paced_syn_waits, within(120);
    guest module_stays_while_a_paced_answer_to_a_syn_waits_in_a_queue = paced_child_waits, within(120);
    guest module_stays_while_stream_data_in_place_waits_in_a_queue = stream_in_place_waits, within(120);
    guest module_goes_while_unpaced_stream_data_waits_in_a_queue = stream_waits, within(120);
    guest namespace_goes_while_a_reader_holds_back_its_frames = sender_goes, within(120);
    guest module_counts_no_mapped_socket_that_a_cgroup_refuses = cgroup_refuses;
    guest module_goes_while_a_mapped_connection_of_tcp_is_in_time_wait = time_wait, within(90);
    guest module_comes_and_goes_while_mapped_sockets_are_made = comes_and_goes, within(120);
}

/// `EDP_SO_MTU` and `ESP_SO_MTU`.
const SO_MTU: i32 = 1;

/// Calls `getsockopt(2)` for the MTU, with `place` as the address of the value.
fn ask_for_mtu(socket: &Socket, place: usize) -> std::io::Result<()> {
    let mut length: libc::socklen_t = 4;
    // SAFETY: `place` is an address with room for four bytes, or the call fails; the length is
    // alive and writable.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            SOL_EP,
            SO_MTU,
            place as *mut libc::c_void,
            &mut length,
        )
    };
    check(result).map(drop)
}

/// Starts `call`, which blocks on `page`. Once `reached` has returned, removes the host's device.
/// Then fills `page`, so that the call ends.
fn remove_meanwhile(
    host: &Host,
    page: &HeldPage,
    call: impl FnOnce() -> std::io::Result<()> + Send,
    reached: impl FnOnce() -> Outcome,
) -> Outcome {
    thread::scope(|scope| {
        let calling = scope.spawn(call);
        let removed = reached().and_then(|()| {
            let removal = scope.spawn(|| host.namespace.ip(&format!("link del {DEVICE}\n")));
            eventually("the device's removal", || Ok(removal.is_finished()))?;
            removal.join().map_err(|_| anyhow!("ip panicked"))?
        });
        // Fill the page even after a failure, so that no call waits for it.
        let filled = page.release();
        let called = calling.join();
        removed?;
        filled?;
        called.map_err(|_| anyhow!("the call panicked"))??;
        Ok(())
    })
}

fn edp_option_waits() -> Outcome {
    let host = Host::alone([2, 0, 0, 0, 0, 9])?;
    let socket = host.edp_bound(700)?;
    option_waits(&host, &socket)
}

fn esp_option_waits() -> Outcome {
    let host = Host::alone([2, 0, 0, 0, 0, 9])?;
    let socket = host.esp()?;
    socket.bind(&host.here(700))?;
    option_waits(&host, &socket)
}

fn option_waits(host: &Host, socket: &Socket) -> Outcome {
    let page = HeldPage::new(PAGE, 0)?;
    let place = page.address();
    let call = || ask_for_mtu(socket, place);
    remove_meanwhile(host, &page, call, || page.await_sleeper())?;
    refused(
        socket.option(SOL_EP, SO_MTU, 4, 4),
        libc::ENODEV,
        "the MTU without a device",
    )
}

/// A send call waits for the page with its bytes, and holds the socket's lock. A `getsockopt` call
/// waits for this lock.
fn option_waits_for_send(lab: &Lab) -> Outcome {
    let (client, _server) = lab.esp_pair(701)?;
    let page = HeldPage::new(PAGE, 0)?;
    let place = page.address();
    let send = || {
        // SAFETY: The kernel reads four bytes at `place`, or the call fails.
        unsafe { libc::send(client.as_raw_fd(), place as *const libc::c_void, 4, 0) };
        // The result is ignored because another scenario checks the result of a send without a
        // device.
        Ok(())
    };
    let asker = std::sync::atomic::AtomicI32::new(0);
    thread::scope(|scope| {
        let mut asked = None;
        let removed = remove_meanwhile(&lab.a, &page, send, || {
            page.await_sleeper()?;
            asked = Some(scope.spawn(|| {
                // SAFETY: The call takes no arguments and touches no memory of the process.
                asker.store(unsafe { libc::gettid() }, Ordering::Relaxed);
                client.option(SOL_EP, SO_MTU, 4, 4)
            }));
            eventually("the option waiting for the lock", || {
                let stat = format!("/proc/self/task/{}/stat", asker.load(Ordering::Relaxed));
                let text = fs::read_to_string(stat).unwrap_or_default();
                Ok(text.contains(") D "))
            })
        });
        if let Some(asked) = asked {
            asked.join().map_err(|_| anyhow!("the option panicked"))??;
        }
        removed
    })
}

/// Calls `use_up`, which leaves a packet in a queue of host `a` for an hour and closes all
/// descriptors. Then checks that unloading the module fails at once, and succeeds after the queue's
/// removal.
fn stays(use_up: impl FnOnce(&Lab) -> Outcome) -> Outcome {
    let _restore = Restore;
    let lab = Lab::new(Wiring::Direct)?;
    use_up(&lab)?;
    let outcome = unload_with_queue(&lab)?;
    refused(outcome, libc::EWOULDBLOCK, "delete_module")?;
    module::unload()
}

/// Tries to unload the module while the queue exists, and then removes the queue. Returns the
/// result of unloading.
fn unload_with_queue(lab: &Lab) -> Result<std::io::Result<()>> {
    let unloading = thread::spawn(module::try_unload);
    let ended = eventually("delete_module's end", || Ok(unloading.is_finished()));
    // The queue's removal ends the call in any case. A scenario that waits in the kernel for ever
    // could not be killed.
    lab.a.queue("del", &[])?;
    let outcome = unloading
        .join()
        .map_err(|_| anyhow!("delete_module panicked"))?;
    ended?;
    Ok(outcome)
}

/// Delays all frames of host `a` by an hour.
fn hold_back(lab: &Lab) -> Outcome {
    lab.a.queue("add", &["netem", "delay", "3600s"])
}

fn datagram_waits() -> Outcome {
    stays(|lab| {
        let socket = lab.a.edp_bound(702)?;
        hold_back(lab)?;
        socket.send_to(b"late", 0, &lab.a.to_nobody(702))?;
        Ok(())
    })
}

fn datagram_in_place_waits() -> Outcome {
    stays(|lab| {
        let socket = lab.a.edp_bound(703)?;
        zero_copy::switch(&socket, 1)?;
        hold_back(lab)?;
        socket.send_to(&[7; 1000], libc::MSG_ZEROCOPY, &lab.a.to_nobody(703))?;
        Ok(())
    })
}

const RATE: i32 = 1_000_000;

fn paced_syn_waits() -> Outcome {
    stays(|lab| {
        hold_back(lab)?;
        let socket = lab.a.esp()?;
        socket.set_so(libc::SO_MAX_PACING_RATE, RATE)?;
        socket.set_nonblocking(true)?;
        let connected = socket.connect(&lab.a.to_nobody(704));
        refused(connected, libc::EINPROGRESS, "connect")
    })
}

/// In this test the listener is closed before it has accepted the connection.
fn paced_child_waits() -> Outcome {
    stays(|lab| {
        hold_back(lab)?;
        let listener = lab.a.esp_listener(705, 4)?;
        listener.set_so(libc::SO_MAX_PACING_RATE, RATE)?;
        let _client = lab.b.esp_attempt(&lab.b.to(&lab.a, 705))?;
        eventually("an answer to the SYN", || {
            Ok(lab.a.counter("EspOutPkts")? > 0)
        })
    })
}

fn stream_in_place_waits() -> Outcome {
    stays(|lab| {
        let (client, _server) = lab.esp_pair(706)?;
        zero_copy::switch(&client, 1)?;
        hold_back(lab)?;
        client.send(&[7; 8000], libc::MSG_ZEROCOPY)?;
        Ok(())
    })
}

/// A reader waits for a page while further frames wait in its socket's backlog. The frames had an
/// owner, since their sender is paced. They keep neither the sender nor its namespace.
fn sender_goes() -> Outcome {
    for paced in [false, true] {
        let lab = Lab::new(Wiring::Direct)?;
        let (client, server) = lab.esp_pair(709)?;
        let page = HeldPage::new(PAGE, 0)?;
        if paced {
            client.set_so(libc::SO_MAX_PACING_RATE, RATE)?;
        }
        client.send_all(b"first")?;
        thread::scope(|scope| {
            let reading = scope.spawn(|| page.receive(&server, 0));
            let gone = page.await_sleeper().and_then(|()| {
                client.send_all(b"second")?;
                client.set_linger(Some(0))?;
                drop(client);
                let Lab { a, b, .. } = lab;
                drop(a);
                let device = || b.namespace.within(|| interface_index(DEVICE));
                eventually("the end of the sender's namespace", || {
                    Ok(device()?.is_err())
                })
            });
            // Fill the page even after a failure, so that the call ends.
            page.release()?;
            joined(reading)?.context("the call that waited")?;
            gone.with_context(|| format!("paced: {paced}"))
        })?;
    }
    Ok(())
}

/// Frames without a reference to a socket do not keep the module loaded.
fn stream_waits() -> Outcome {
    let _restore = Restore;
    let lab = Lab::new(Wiring::Direct)?;
    let (client, server) = lab.esp_pair(707)?;
    hold_back(&lab)?;
    client.send_all(&[7; 8000])?;
    drop((client, server));
    module::await_unused()?;
    unload_with_queue(&lab)?.context("delete_module")
}

/// The control group refuses a socket late, when the socket already holds a reference to the
/// module.
fn cgroup_refuses() -> Outcome {
    const ROOT: &str = "/tmp/cgroup-of-sockets";
    let before = module::references()?;
    fs::create_dir_all(ROOT)?;
    mount(
        Some("none"),
        ROOT,
        Some("cgroup2"),
        MsFlags::empty(),
        None::<&str>,
    )
    .context("mount")?;
    let outcome = (|| -> Outcome {
        let refusal = bpf::refuse_internet_sockets(&File::open(ROOT)?).context("bpf")?;
        for family in [libc::AF_INET, libc::AF_INET6] {
            for _ in 0..10 {
                let made = Socket::new(family, libc::SOCK_STREAM, IPPROTO_ENET);
                refused(made, libc::EPERM, "a socket")?;
            }
        }
        drop(refusal);
        Ok(())
    })();
    let _ = umount(ROOT);
    outcome?;
    eventually("the references that the sockets took", || {
        Ok(module::references()? == before)
    })
}

/// The side that closes first enters TIME_WAIT, while its descriptor still exists.
fn time_wait() -> Outcome {
    let _restore = Restore;
    let lab = Lab::new(Wiring::Direct)?;
    lab.give_ip_addresses()?;
    let stream = |host: &Host, protocol| -> Result<Socket> {
        Ok((host.namespace)
            .within(|| Socket::new(libc::AF_INET, libc::SOCK_STREAM, protocol))??)
    };
    let listener = stream(&lab.b, libc::IPPROTO_TCP)?;
    listener.bind_bytes(&internet([0; 4], 708))?;
    listener.listen(1)?;
    let client = stream(&lab.a, IPPROTO_ENET)?;
    client.connect_bytes(&internet([10, 0, 0, 2], 708))?;
    let (server, _) = listener.accept(0)?;
    client.shutdown(libc::SHUT_WR)?;
    same(server.receive(&mut [0; 8], 0)?, 0, "bytes at the end")?;
    drop(server);
    same(client.receive(&mut [0; 8], 0)?, 0, "bytes at the end")?;
    drop(client);
    let waiting = (lab.a.namespace).run("ss", &["--tcp", "--numeric", "state", "time-wait"]);
    if let Ok(text) = waiting {
        ensure!(text.contains("10.0.0.2:708"), "nothing waits: {text:?}");
    }
    module::unload()
}

fn comes_and_goes() -> Outcome {
    const ROUNDS: u32 = 10;
    let _restore = Restore;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for family in [libc::AF_INET, libc::AF_INET6] {
            let over = &over;
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    // Any error is fine while the module is being unloaded or is not loaded.
                    drop(Socket::new(family, libc::SOCK_STREAM, IPPROTO_ENET));
                }
            });
        }
        let outcome = (0..ROUNDS).try_for_each(|round| {
            eventually(&format!("unloading in round {round}"), || {
                // The module can be unloaded between the creation of two sockets.
                Ok((0..1000).any(|_| module::try_unload().is_ok()))
            })?;
            module::load(&[])
        });
        over.store(true, Ordering::Relaxed);
        outcome
    })
}
