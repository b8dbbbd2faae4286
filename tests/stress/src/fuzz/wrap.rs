// SPDX-License-Identifier: GPL-2.0-only

//! Adds and removes tags, labels and tunnels around a frame. Each kind leads to a separate device
//! of the host.

use fastrand::Rng;

use guest::frame;
use guest::packet_ring::FRAME_MAX;
use guest::prelude::*;

/// The headers around a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wrap {
    /// No further headers.
    #[default]
    Bare,
    /// An 802.1Q tag.
    Vlan,
    /// An 802.1ad tag, followed by an 802.1Q tag.
    Qinq,
    /// An 802.1Q tag and an MPLS label.
    Mpls,
    /// Ethernet, IPv4, UDP and VXLAN.
    Vxlan,
    /// Ethernet, IPv4, UDP and GENEVE.
    Geneve,
    /// Ethernet, IPv4 and GRE.
    Gretap,
}

const VLAN: u16 = 10;
const OUTER_VLAN: u16 = 7;
const INNER_VLAN: u16 = 20;
const LABELLED_VLAN: u16 = 30;
const LABEL: u32 = 5;
const VXLAN_ID: u32 = 42;
const GENEVE_ID: u32 = 43;
const VXLAN_PORT: u16 = 4789;
const GENEVE_PORT: u16 = 6081;

const TYPE_VLAN: u16 = 0x8100;
const TYPE_SERVICE_VLAN: u16 = 0x88a8;
const TYPE_MPLS: u16 = 0x8847;
const TYPE_IPV4: u16 = 0x0800;
const TYPE_ETHERNET: u16 = 0x6558;
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_GRE: u8 = 47;

/// Number of bytes of the outer Ethernet and IPv4 headers.
const IPV4_END: usize = 34;
/// Number of bytes of two Ethernet addresses.
const ADDRESSES: usize = 12;

/// MTU of the devices. It is so small that a frame with its outer headers fits the MTU of the wire.
const MTU: usize = FRAME_MAX - 14 - 100;

fn mac(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

/// Returns two host numbers: first the number of the host that receives a frame, then the number of
/// the host that sends it.
fn ends(to_b: bool) -> [u8; 2] {
    if to_b {
        [2, 1]
    } else {
        [1, 2]
    }
}

fn tag(kind: u16, number: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (kind.to_be_bytes(), number.to_be_bytes());
    [a, b, c, d]
}

fn label(last: u16) -> Vec<u8> {
    // The bottom-of-stack bit, and a time to live.
    let entry = (LABEL << 12) | (1 << 8) | 64;
    [&last.to_be_bytes()[..], &entry.to_be_bytes()].concat()
}

impl Wrap {
    /// All kinds of headers around a frame.
    pub const ALL: [Self; 7] = [
        Self::Bare,
        Self::Vlan,
        Self::Qinq,
        Self::Mpls,
        Self::Vxlan,
        Self::Geneve,
        Self::Gretap,
    ];

    /// Returns a random kind of headers; in half of the cases [`Self::Bare`].
    pub fn any(rng: &mut Rng) -> Self {
        match rng.bool() {
            true => Self::Bare,
            false => Self::around_something(rng),
        }
    }

    /// Returns a random kind of headers except [`Self::Bare`].
    pub fn around_something(rng: &mut Rng) -> Self {
        Self::ALL[rng.usize(1..Self::ALL.len())]
    }

    /// Returns the name of the device that receives frames with these headers.
    pub fn device(self) -> &'static str {
        match self {
            Self::Bare => DEVICE,
            Self::Vlan => "v10",
            Self::Qinq => "q20",
            Self::Mpls => "m30",
            Self::Vxlan => "vx",
            Self::Geneve => "gn",
            Self::Gretap => "gt",
        }
    }

    /// Returns whether the device can send datagrams. The device that adds an MPLS label cannot,
    /// because the receiver treats every labelled packet as ESP.
    pub fn takes_datagrams(self) -> bool {
        self != Self::Mpls
    }

    /// Creates the devices of a host that add and remove tags, labels and tunnels. All have the
    /// Ethernet address of the host's own device.
    ///
    /// # Errors
    /// If `ip` or `tc` fails, with its message.
    pub fn give_devices(host: &Host, own: u8, other: u8) -> Result<()> {
        let namespace = &host.namespace;
        // The kernel does not load this module on demand.
        namespace.run("modprobe", &["mpls_gso"])?;
        let (address, far) = (print_mac(mac(own)), print_mac(mac(other)));
        let (from, to) = (format!("10.9.0.{own}"), format!("10.9.0.{other}"));
        let more = MTU + 4;
        namespace.ip(&format!(
            "address add {from}/24 dev {DEVICE}\n\
             neigh replace {to} lladdr {far} dev {DEVICE} nud permanent\n\
             link add link {DEVICE} name v10 mtu {MTU} type vlan id {VLAN}\n\
             link add link {DEVICE} name q7 mtu {more} type vlan proto 802.1ad id {OUTER_VLAN}\n\
             link add link q7 name q20 mtu {MTU} type vlan id {INNER_VLAN}\n\
             link add link {DEVICE} name m30 mtu {MTU} type vlan id {LABELLED_VLAN}\n\
             link add vx address {address} mtu {MTU} type vxlan id {VXLAN_ID} dstport {VXLAN_PORT} dev {DEVICE} \
             local {from} remote {to} nolearning\n\
             link add gn address {address} mtu {MTU} type geneve id {GENEVE_ID} remote {to}\n\
             link add gt address {address} mtu {MTU} type gretap local {from} remote {to}\n\
             link set v10 up\nlink set q7 up\nlink set q20 up\nlink set m30 up\n\
             link set vx up\nlink set gn up\nlink set gt up\n"
        ))?;
        let filter = |device: &str, words: &str| {
            let line = format!("filter add dev {device} {words}");
            let words: Vec<_> = line.split_whitespace().collect();
            namespace.run("tc", &words).map(drop)
        };
        let pop =
            format!("ingress protocol mpls_uc matchall action mpls pop protocol {ETH_P_ESP:#x}");
        for device in [DEVICE, "m30"] {
            namespace.run("tc", &["qdisc", "add", "dev", device, "clsact"])?;
            filter(device, &pop)?;
        }
        let push = format!("egress matchall action mpls push protocol mpls_uc label {LABEL}");
        filter("m30", &push)
    }

    /// Removes the tunnels, which are not removed together with the host's own device.
    ///
    /// # Errors
    /// If `ip` fails, with its message.
    pub fn take_tunnels(host: &Host) -> Result<()> {
        (host.namespace).ip("link del vx\nlink del gn\nlink del gt\n")
    }

    /// Splits a frame that a host sent into its outer headers and the inner frame; returns `None`
    /// if the headers are unknown.
    pub fn peel(frame: &[u8]) -> Option<(Self, Vec<u8>)> {
        let addresses = frame.get(..ADDRESSES)?;
        let behind = |bytes: &[u8]| {
            frame
                .get(ADDRESSES..)?
                .strip_prefix(bytes)
                .map(<[u8]>::to_vec)
        };
        let again = |rest: Vec<u8>| [addresses, &rest].concat();
        if let Some(rest) = behind(&tag(TYPE_VLAN, VLAN)) {
            return Some((Self::Vlan, again(rest)));
        }
        let two = [
            tag(TYPE_SERVICE_VLAN, OUTER_VLAN),
            tag(TYPE_VLAN, INNER_VLAN),
        ]
        .concat();
        if let Some(rest) = behind(&two) {
            return Some((Self::Qinq, again(rest)));
        }
        let labelled = [&tag(TYPE_VLAN, LABELLED_VLAN)[..], &TYPE_MPLS.to_be_bytes()].concat();
        if let Some(rest) = behind(&labelled) {
            let packet = rest.get(4..)?;
            let esp = ETH_P_ESP.to_be_bytes();
            return Some((Self::Mpls, [addresses, &esp, packet].concat()));
        }
        let half = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
        match half(ADDRESSES)? {
            ETH_P_EDP | ETH_P_ESP => return Some((Self::Bare, frame.to_vec())),
            TYPE_IPV4 => {}
            _ => return None,
        }
        let (wrap, at) = match *frame.get(23)? {
            PROTOCOL_GRE if half(IPV4_END + 2)? == TYPE_ETHERNET => (Self::Gretap, 4),
            PROTOCOL_UDP => match half(IPV4_END + 2)? {
                VXLAN_PORT => (Self::Vxlan, 16),
                GENEVE_PORT => (Self::Geneve, 16),
                _ => return None,
            },
            _ => return None,
        };
        Some((wrap, frame.get(IPV4_END + at..)?.to_vec()))
    }

    /// Adds the headers to a frame. Truncates the frame if the result would be too long.
    pub fn around(self, frame: &[u8], to_b: bool) -> Vec<u8> {
        let (addresses, rest) = frame.split_at(ADDRESSES.min(frame.len()));
        let mut wrapped = match self {
            Self::Bare => frame.to_vec(),
            Self::Vlan => [addresses, &tag(TYPE_VLAN, VLAN), rest].concat(),
            Self::Qinq => [
                addresses,
                &tag(TYPE_SERVICE_VLAN, OUTER_VLAN),
                &tag(TYPE_VLAN, INNER_VLAN),
                rest,
            ]
            .concat(),
            Self::Mpls => {
                // The label takes the place of the ethertype.
                let packet = rest.get(2..).unwrap_or_default();
                let tag = tag(TYPE_VLAN, LABELLED_VLAN);
                [addresses, &tag, &label(TYPE_MPLS), packet].concat()
            }
            Self::Vxlan => udp(VXLAN_PORT, [0x0800_0000, VXLAN_ID << 8], frame, to_b),
            Self::Geneve => udp(
                GENEVE_PORT,
                [TYPE_ETHERNET.into(), GENEVE_ID << 8],
                frame,
                to_b,
            ),
            Self::Gretap => {
                let header = u32::from(TYPE_ETHERNET).to_be_bytes();
                ipv4(PROTOCOL_GRE, &[&header, room(frame, 4)].concat(), to_b)
            }
        };
        wrapped.truncate(FRAME_MAX);
        wrapped
    }

    /// Returns the position, in a wrapped frame, of the headers that [`Self::around`] adds.
    fn headers(self) -> std::ops::Range<usize> {
        match self {
            Self::Bare => 12..14,
            Self::Vlan => 12..18,
            Self::Qinq | Self::Mpls => 12..22,
            Self::Vxlan | Self::Geneve => IPV4_END..IPV4_END + 16,
            Self::Gretap => IPV4_END..IPV4_END + 4,
        }
    }

    /// Adds headers with an error, adds the headers to a very short frame, or nests them in other
    /// headers.
    pub fn wrongly_around(self, frame: &[u8], to_b: bool, rng: &mut Rng) -> Vec<u8> {
        match rng.u8(..4) {
            0 => {
                let most = frame.len().min(40);
                let least = 14.min(most);
                self.around(&frame[..rng.usize(least..=most)], to_b)
            }
            1 => Self::around_something(rng).around(&self.around(frame, to_b), to_b),
            _ => {
                let mut wrapped = self.around(frame, to_b);
                for _ in 0..=rng.u8(..3) {
                    let at = rng.usize(self.headers());
                    if let Some(byte) = wrapped.get_mut(at) {
                        *byte ^= 1 << rng.u8(..8);
                    }
                }
                wrapped
            }
        }
    }
}

/// Returns as much of a frame as fits into an IPv4 packet after `headers` bytes of headers.
fn room(frame: &[u8], headers: usize) -> &[u8] {
    let most = FRAME_MAX - IPV4_END - headers;
    &frame[..frame.len().min(most)]
}

/// Encodes an IPv4 packet from one host to the other, in an Ethernet frame.
fn ipv4(protocol: u8, payload: &[u8], to_b: bool) -> Vec<u8> {
    let [to, from] = ends(to_b);
    let packet = frame::ipv4([10, 9, 0, from], [10, 9, 0, to], protocol, payload);
    ethernet(mac(to), mac(from), TYPE_IPV4, &packet)
}

/// Encodes a frame, preceded by two headers: a UDP header that has no checksum, and a tunnel header
/// of two words.
fn udp(port: u16, words: [u32; 2], frame: &[u8], to_b: bool) -> Vec<u8> {
    let frame = room(frame, 16);
    let mut packet = Vec::with_capacity(16 + frame.len());
    for half in [50_000, port, 16 + frame.len() as u16, 0] {
        packet.extend_from_slice(&half.to_be_bytes());
    }
    for word in words {
        packet.extend_from_slice(&word.to_be_bytes());
    }
    packet.extend_from_slice(frame);
    ipv4(PROTOCOL_UDP, &packet, to_b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrapped_is_found_again() {
        let header = EspHeader::new(1, 2, flag::ACK);
        let frame = ethernet(mac(2), mac(1), ETH_P_ESP, &header.packet(b"bytes"));
        for wrap in Wrap::ALL {
            let wrapped = wrap.around(&frame, true);
            assert_eq!(
                Wrap::peel(&wrapped),
                Some((wrap, frame.clone())),
                "{wrap:?}"
            );
        }
    }

    #[test]
    fn wrong_wraps_can_be_sent() {
        let mut rng = Rng::with_seed(1);
        for length in [0, 11, 100, FRAME_MAX - 14] {
            let frame = ethernet(mac(2), mac(1), ETH_P_ESP, &vec![0; length]);
            for wrap in Wrap::ALL {
                for _ in 0..200 {
                    let wrapped = wrap.wrongly_around(&frame, false, &mut rng);
                    assert!((14..=FRAME_MAX).contains(&wrapped.len()), "{wrap:?}");
                }
            }
        }
    }

    #[test]
    fn the_sum_of_a_tunnels_header_is_right() {
        let frame = Wrap::Gretap.around(&[0; 60], true);
        let sum: u32 = frame[14..IPV4_END]
            .chunks(2)
            .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
            .sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }
}
