// SPDX-License-Identifier: GPL-2.0-only

//! Sets up a lab: two hosts and the wire between them.

use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use netlink_packet_route::link::LinkFlags;

use crate::address::Address;
use crate::frame::{PacketSocket, EDP_HEADER};
use crate::harness::{note, refused};
use crate::knobs::Knobs;
use crate::links::LOOPBACK;
use crate::netns::Netns;
use crate::patience::{factor, patience};
use crate::processor;
use crate::relay::Relay;
use crate::socket::{interface_index, Socket};

/// Name of each host's device.
pub const DEVICE: &str = "eth0";
/// Maximum transmission unit of the devices, in bytes.
pub const MTU: usize = 1500;
/// Largest payload of an EDP packet, in bytes.
pub const EDP_MAX: usize = MTU - EDP_HEADER;
/// Largest payload of an ESP packet, in bytes.
pub const ESP_MSS: usize = MTU - 11;

/// Address of a station that does not exist.
pub const NOBODY: [u8; 6] = [2, 0, 0, 0, 0xde, 0xad];

/// A host: a namespace with one Ethernet device.
#[derive(Debug)]
pub struct Host {
    /// The host's namespace.
    pub namespace: Netns,
    /// The Ethernet address of the host's device.
    pub mac: [u8; 6],
    /// The index of the host's device.
    pub ifindex: u32,
}

impl Host {
    /// Makes the host of an existing namespace whose device has the address `mac`.
    ///
    /// # Errors
    /// If the namespace has no such device.
    pub fn named(namespace: Netns, mac: [u8; 6]) -> Result<Self> {
        let ifindex = namespace.within(|| interface_index(DEVICE))??;
        Ok(Self {
            namespace,
            mac,
            ifindex,
        })
    }

    /// Makes a host whose device leads nowhere: the other end of its veth pair is up, but no socket
    /// receives there.
    ///
    /// # Errors
    /// If it cannot be set up.
    pub fn alone(mac: [u8; 6]) -> Result<Self> {
        let namespace = Netns::create()?;
        namespace.add_veth((DEVICE, Some(mac)), (("far0", None), &namespace))?;
        let host = Self::named(namespace, mac)?;
        let far = host.namespace.within(|| interface_index("far0"))??;
        for index in [LOOPBACK, host.ifindex, far] {
            host.namespace.set_up(index)?;
        }
        Ok(host)
    }

    /// Changes this host's device by `ip link set`, for example with "down".
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn link(&self, change: &str) -> Result<()> {
        (self.namespace).ip(&format!("link set {DEVICE} {change}\n"))
    }

    /// Sets the MTU of this host's device.
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn set_mtu(&self, mtu: u32) -> Result<()> {
        self.link(&format!("mtu {mtu}"))
    }

    /// Changes the Ethernet address of this host's device to `mac`.
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn set_mac(&self, mac: [u8; 6]) -> Result<()> {
        self.link(&format!("address {}", print_mac(mac)))
    }

    /// Makes an ESP socket on this host.
    ///
    /// # Errors
    /// The errno of `socket(2)`.
    pub fn esp(&self) -> Result<Socket> {
        self.namespace.within(Socket::esp)?.context("ESP socket")
    }

    /// Makes an EDP socket on this host.
    ///
    /// # Errors
    /// The errno of `socket(2)`.
    pub fn edp(&self) -> Result<Socket> {
        self.namespace.within(Socket::edp)?.context("EDP socket")
    }

    /// Makes an EDP socket bound to `port` of the device.
    ///
    /// # Errors
    /// The errno of the failing call.
    pub fn edp_bound(&self, port: u16) -> Result<Socket> {
        let socket = self.edp()?;
        socket
            .bind(&self.here(port))
            .with_context(|| format!("binding EDP port {port}"))?;
        Ok(socket)
    }

    /// Makes an ESP socket that listens on `port` of the device.
    ///
    /// # Errors
    /// The errno of the failing call.
    pub fn esp_listener(&self, port: u16, backlog: i32) -> Result<Socket> {
        let socket = self.esp()?;
        socket
            .bind(&self.here(port))
            .with_context(|| format!("binding ESP port {port}"))?;
        socket.listen(backlog).context("listen")?;
        Ok(socket)
    }

    /// Makes an ESP socket connected to `address`.
    ///
    /// # Errors
    /// The errno of the failing call.
    pub fn esp_connected(&self, address: &Address) -> Result<Socket> {
        let socket = self.esp()?;
        socket
            .connect(address)
            .with_context(|| format!("connecting to ESP port {}", address.port))?;
        Ok(socket)
    }

    /// Connects from this host to `listener` on `port` of `server`; returns both ends.
    ///
    /// # Errors
    /// The errno of the failing call.
    pub fn esp_pair_through(
        &self,
        server: &Self,
        listener: &Socket,
        port: u16,
    ) -> Result<(Socket, Socket)> {
        let client = self.esp_connected(&self.to(server, port))?;
        let (server, _) = listener.accept(0).context("accept")?;
        Ok((client, server))
    }

    /// Connects from each of `clients` to `listener` on `port` of this host; returns both ends of
    /// each connection.
    ///
    /// # Errors
    /// The errno of the failing call.
    pub fn esp_pairs_from<'a>(
        &self,
        clients: impl IntoIterator<Item = &'a Self>,
        listener: &Socket,
        port: u16,
    ) -> Result<Vec<(Socket, Socket)>> {
        let pair = |client: &Self| client.esp_pair_through(self, listener, port);
        clients.into_iter().map(pair).collect()
    }

    /// Makes a non-blocking ESP socket that is connecting to `address`.
    ///
    /// # Errors
    /// If the attempt succeeds or fails at once.
    pub fn esp_attempt(&self, address: &Address) -> Result<Socket> {
        let socket = self.esp()?;
        socket.set_nonblocking(true)?;
        refused(socket.connect(address), libc::EINPROGRESS, "connect")?;
        Ok(socket)
    }

    /// Opens a packet socket for whole frames of `ethertype`.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn packets(&self, ethertype: u16) -> Result<PacketSocket> {
        PacketSocket::open(&self.namespace, DEVICE, ethertype)
    }

    /// Makes TCP retransmit a SYN `count` times before a connection attempt fails.
    ///
    /// # Errors
    /// If the host refuses the setting.
    pub fn tcp_tries(&self, count: u32) -> Result<()> {
        self.sysctl("net/ipv4/tcp_syn_retries", &count.to_string())
    }

    /// Writes `value` to the kernel's setting `name`, which is a path below `/proc/sys`.
    ///
    /// # Errors
    /// If the host refuses the setting.
    pub fn sysctl(&self, name: &str, value: &str) -> Result<()> {
        let path = format!("/proc/sys/{name}");
        self.namespace
            .within(|| std::fs::write(&path, value))?
            .context(path)
    }

    /// Runs `tc qdisc` at the root of the device. `verb` is "add" or "del", and `discipline` is the
    /// queueing discipline to add.
    ///
    /// # Errors
    /// If `tc` fails, with its message.
    pub fn queue(&self, verb: &str, discipline: &[&str]) -> Result<()> {
        let start = ["qdisc", verb, "dev", DEVICE, "root"];
        let arguments = [&start, discipline].concat();
        self.namespace.run("tc", &arguments)?;
        Ok(())
    }

    /// Adds the queueing discipline to which [`drop_frames`](Self::drop_frames) attaches filters.
    ///
    /// # Errors
    /// If `tc` fails, with its message.
    pub fn prepare_filters(&self) -> Result<()> {
        self.namespace
            .run("tc", &["qdisc", "add", "dev", DEVICE, "clsact"])?;
        Ok(())
    }

    /// Drops frames of `ethertype` that this host sends ("egress") or receives ("ingress").
    ///
    /// # Errors
    /// If `tc` fails, with its message.
    pub fn drop_frames(&self, direction: &str, ethertype: u16) -> Result<()> {
        let place = ["filter", "add", "dev", DEVICE, direction];
        let protocol = format!("{ethertype:#06x}");
        let rule = ["protocol", &protocol, "matchall", "action", "drop"];
        self.namespace.run("tc", &[&place[..], &rule].concat())?;
        Ok(())
    }

    /// Returns the address of `port` on this host's device, for binding.
    pub fn here(&self, port: u16) -> Address {
        Address {
            port,
            ifindex: self.ifindex,
            mac: [0; 6],
        }
    }

    /// Returns the address of `port` on every interface, for binding.
    pub fn anywhere(&self, port: u16) -> Address {
        Address {
            port,
            ..Address::default()
        }
    }

    /// Returns the address of `port` on `other`, as this host sees it.
    pub fn to(&self, other: &Self, port: u16) -> Address {
        Address {
            port,
            ifindex: self.ifindex,
            mac: other.mac,
        }
    }

    /// Returns the address of `port` on a station that does not exist.
    pub fn to_nobody(&self, port: u16) -> Address {
        Address {
            port,
            ifindex: self.ifindex,
            mac: NOBODY,
        }
    }

    /// Returns the counter `name` of `/proc/net/enet`.
    ///
    /// # Errors
    /// If there is no such counter.
    pub fn counter(&self, name: &str) -> Result<u32> {
        let text = self.namespace.proc_net("enet")?;
        let value = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .find_map(|(label, value)| (label == name).then_some(value))
            .with_context(|| format!("no {name} in {text:?}"))?;
        value.trim().parse().context("a counter")
    }

    /// Waits until the counter `name` of `/proc/net/enet` reads `wanted`.
    ///
    /// # Errors
    /// If it does not within [`patience`].
    pub fn await_counter(&self, name: &str, wanted: u32) -> Result<()> {
        let mut value = 0;
        eventually(name, || {
            value = self.counter(name)?;
            Ok(value == wanted)
        })
        .with_context(|| format!("{name} is {value}, not {wanted}"))
    }

    /// Waits until `file` of `/proc/net` satisfies `wanted`.
    ///
    /// # Errors
    /// If it does not within [`patience`]; the message has the file's text.
    pub fn await_proc(&self, file: &str, wanted: impl Fn(&str) -> bool) -> Result<()> {
        let mut text = String::new();
        eventually(&format!("/proc/net/{file}"), || {
            text = self.namespace.proc_net(file)?;
            Ok(wanted(&text))
        })
        .with_context(|| format!("the file reads {text:?}"))
    }

    /// Waits until neither protocol has a socket left on this host.
    ///
    /// # Errors
    /// If one still exists after [`patience`].
    pub fn await_no_sockets(&self) -> Result<()> {
        for file in ["edp", "esp"] {
            self.await_proc(file, |text| text.lines().count() <= 1)
                .with_context(|| format!("{file} sockets are left behind"))?;
        }
        Ok(())
    }
}

/// Two hosts: `a` has the Ethernet address 02:00:00:00:00:01, and `b` has 02:00:00:00:00:02.
#[derive(Debug)]
pub struct Lab {
    /// The first host.
    pub a: Host,
    /// The second host.
    pub b: Host,
    // Fields are dropped in the order of declaration. So the switch's namespace exists until the
    // relay has been dropped.
    relay: Option<Relay>,
    _switch: Option<Netns>,
}

/// Makes a host's device accept only single packets, like a real device, by switching SCTP's
/// segmentation off: the module's GSO packets have SCTP's type. A veth pair otherwise accepts GSO
/// packets whole. A switch or queue that dropped or damaged one would affect all its segments at
/// once.
///
/// # Errors
/// If `ethtool` fails, with its message.
pub fn send_single_packets(namespace: &Netns) -> Result<()> {
    namespace.run("ethtool", &["-K", DEVICE, "tx-sctp-segmentation", "off"])?;
    Ok(())
}

/// How the hosts of a [`Lab`] are joined.
#[derive(Clone, Copy, Debug)]
pub enum Wiring {
    /// One veth pair joins the hosts. This is the fastest wiring.
    Direct,
    /// A veth pair joins each host to a [`Relay`], which can inject faults.
    Switched,
}

impl Lab {
    /// Sets up both hosts.
    ///
    /// # Errors
    /// If the namespaces or devices cannot be made.
    pub fn new(wiring: Wiring) -> Result<Self> {
        let (mac_a, mac_b) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let (a, b) = (Netns::create()?, Netns::create()?);
        let switch = match wiring {
            Wiring::Direct => {
                a.add_veth((DEVICE, Some(mac_a)), ((DEVICE, Some(mac_b)), &b))?;
                None
            }
            Wiring::Switched => Some(Self::join_by_switch([(&a, mac_a), (&b, mac_b)])?),
        };
        let (a, b) = (Host::named(a, mac_a)?, Host::named(b, mac_b)?);
        for host in [&a, &b] {
            host.namespace.set_up(LOOPBACK)?;
            host.namespace.set_up(host.ifindex)?;
        }
        let relay = switch
            .as_ref()
            .map(|switch| Relay::start(switch, ["port0", "port1"], 0x5eed))
            .transpose()?;
        if matches!(wiring, Wiring::Switched) {
            for host in [&a, &b] {
                send_single_packets(&host.namespace)?;
            }
        }
        for host in [&a, &b] {
            host.namespace.await_carrier(host.ifindex)?;
        }
        Ok(Self {
            a,
            b,
            relay,
            _switch: switch,
        })
    }

    fn join_by_switch(hosts: [(&Netns, [u8; 6]); 2]) -> Result<Netns> {
        let switch = Netns::create()?;
        for (port, (namespace, mac)) in hosts.into_iter().enumerate() {
            let port = format!("port{port}");
            switch.add_veth((&port, None), ((DEVICE, Some(mac)), namespace))?;
            let index = switch.within(|| interface_index(&port))??;
            switch.set_flags(index, LinkFlags::Up | LinkFlags::Promisc)?;
        }
        Ok(switch)
    }

    /// Returns the switch.
    ///
    /// # Panics
    /// If the lab has none.
    pub fn relay(&self) -> &Relay {
        self.relay.as_ref().expect("a lab made with a switch")
    }

    /// Sets the MTU of both hosts' devices.
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn set_mtu(&self, mtu: u32) -> Result<()> {
        self.a.set_mtu(mtu)?;
        self.b.set_mtu(mtu)
    }

    /// Adds the hosts' counters to the scenario's remarks. The counters may explain a failure.
    pub fn note_counters(&self) {
        for (name, host) in [("a", &self.a), ("b", &self.b)] {
            let Ok(text) = host.namespace.proc_net("enet") else {
                continue;
            };
            let counted: Vec<_> = text.lines().filter(|line| !line.ends_with(" 0")).collect();
            if !counted.is_empty() {
                note(&format!("{name} counted {}", counted.join(", ")));
            }
        }
    }

    /// Adds `netem` to the devices of both hosts, for outgoing frames.
    ///
    /// # Errors
    /// If `tc` fails, with its message.
    pub fn netem(&self, arguments: &[&str]) -> Result<()> {
        for host in [&self.a, &self.b] {
            send_single_packets(&host.namespace)?;
            host.queue("add", &[&["netem"], arguments].concat())?;
        }
        Ok(())
    }

    /// Prevents spurious retransmissions by ESP on a busy machine. Late acknowledgements cause some
    /// of them. Others occur because packets of different processors overtake each other: each
    /// processor has its own queue for the frames of a veth pair. Call this function before making
    /// connections and starting threads.
    ///
    /// # Errors
    /// If a setting is refused.
    pub fn calm(&self) -> Result<()> {
        processor::stay()?;
        for host in [&self.a, &self.b] {
            Knobs(&host.namespace).set("retransmission_time_min", 1_000_000)?;
        }
        Ok(())
    }

    /// Connects by ESP from `a` to `port` of `b`; returns both ends.
    ///
    /// # Errors
    /// If a call fails.
    pub fn esp_pair(&self, port: u16) -> Result<(Socket, Socket)> {
        let listener = self.b.esp_listener(port, 16)?;
        self.esp_pair_through(&listener, port)
    }

    /// Connects by ESP from `a` to a listener of `b`; returns both ends.
    ///
    /// # Errors
    /// If a call fails.
    pub fn esp_pair_through(&self, listener: &Socket, port: u16) -> Result<(Socket, Socket)> {
        self.a.esp_pair_through(&self.b, listener, port)
    }

    /// Makes an EDP socket on each host, each connected to the other's `port`.
    ///
    /// # Errors
    /// If a call fails.
    pub fn edp_pair(&self, port: u16) -> Result<(Socket, Socket)> {
        let (a, b) = (self.a.edp_bound(port)?, self.b.edp_bound(port)?);
        a.connect(&self.a.to(&self.b, port)).context("connect")?;
        b.connect(&self.b.to(&self.a, port)).context("connect")?;
        Ok((a, b))
    }

    /// Gives the hosts the addresses 10.0.0.1 and 10.0.0.2, for comparisons with the kernel's own
    /// protocols. 10.0.0.99 is the address of the station of [`Host::to_nobody`], which does not
    /// exist: frames are sent to it, and nothing answers. The neighbour entries are permanent,
    /// because a scenario may lose frames, and a lost ARP request would end a connection attempt.
    /// An unanswered TCP connection attempt ends after some seconds.
    ///
    /// # Errors
    /// If the kernel refuses an address, an entry or the setting of TCP.
    pub fn give_ip_addresses(&self) -> Result<()> {
        let stations = [(1, self.a.mac), (2, self.b.mac), (99, NOBODY)];
        let address = |number| Ipv4Addr::new(10, 0, 0, number);
        for (host, number) in [(&self.a, 1), (&self.b, 2)] {
            host.namespace
                .add_address(host.ifindex, address(number), 24)?;
            for (other, mac) in stations.iter().filter(|(other, _)| *other != number) {
                let index = host.ifindex;
                host.namespace.add_neighbour(index, address(*other), *mac)?;
            }
            // With one retransmission of the SYN, an attempt takes three seconds. Each further
            // retransmission more than doubles that time.
            host.tcp_tries(1 + factor().ilog2())?;
        }
        Ok(())
    }

    /// Gives each host an IPv6 address: `a` fd00::1 and `b` fd00::2.
    ///
    /// # Errors
    /// If the kernel refuses an address.
    pub fn give_ip6_addresses(&self) -> Result<()> {
        for (host, number) in [(&self.a, 1), (&self.b, 2)] {
            (host.namespace).ip(&format!(
                "address add fd00::{number}/64 dev {DEVICE} nodad\n"
            ))?;
        }
        Ok(())
    }

    /// Gives each host permanent entries for the other host's IPv6 address and for the station
    /// fd00::63, which does not exist.
    ///
    /// # Errors
    /// If the kernel refuses an entry.
    pub fn give_ip6_neighbours(&self) -> Result<()> {
        for (host, other, far) in [(&self.a, 2, self.b.mac), (&self.b, 1, self.a.mac)] {
            for (number, mac) in [(other, far), (63, NOBODY)] {
                (host.namespace).ip(&format!(
                    "neigh add fd00::{number} lladdr {} dev {DEVICE} nud permanent\n",
                    print_mac(mac)
                ))?;
            }
        }
        Ok(())
    }

    /// Waits until no socket of the module is left on either host.
    ///
    /// # Errors
    /// If one still exists after [`patience`].
    pub fn await_no_sockets(&self) -> Result<()> {
        self.a.await_no_sockets().context("host a")?;
        self.b.await_no_sockets().context("host b")
    }
}

/// Calls `done` repeatedly, with short pauses, until it returns `true`.
///
/// # Errors
/// If `done` fails, or does not return `true` within [`patience`].
pub fn eventually(what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + patience();
    while !done()? {
        ensure!(Instant::now() < end, "{what}: not within {:?}", patience());
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Waits until `poll(2)` reports one of `events` for `socket`; returns all events that it reports.
///
/// # Errors
/// If it reports none within [`patience`].
pub fn await_events(socket: &Socket, events: i16) -> Result<i16> {
    let found = socket.poll(events, patience())?;
    ensure!(
        found != 0,
        "descriptor {}: none of the events {events:#x} came",
        socket.as_raw_fd()
    );
    Ok(found)
}

/// Waits until `length` bytes of a stream, or a datagram of that length, are queued.
///
/// # Errors
/// If they are not within [`patience`].
pub fn arrived(socket: &Socket, length: usize) -> Result<()> {
    eventually(&format!("{length} bytes to read"), || {
        Ok(socket.queued(libc::FIONREAD)? == length as i32)
    })
}

/// Formats an address in colon notation, for `ip`.
pub fn print_mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
