// SPDX-License-Identifier: MIT OR Apache-2.0

//! Infers from the evidence why answers are missing, and explains the cause.

use std::fmt;
use std::net::IpAddr;

use super::target::question;
use crate::interfaces::Frames;

/// Whether the host responds at all, with or without the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// The host answers neighbour discovery, or reports that a UDP port is closed.
    Answers(IpAddr),
    /// The host does not answer neighbour discovery.
    Silent(IpAddr),
    /// The host does not answer UDP, and the kernel does not ask for its address, because an
    /// administrator set the neighbour entry.
    Mute(IpAddr),
    /// No IP address is known.
    Unknown,
}

/// The evidence collected when no answer came.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// The host, as printed by [`Target`](super::target::Target).
    pub host: String,
    /// The interface.
    pub interface: String,
    /// Number of requests that the interface accepted.
    pub sent: u32,
    /// Number of requests that the interface refused.
    pub refused: u32,
    /// The frames that the interface counted during the ping; `None` if they are not known. They
    /// are not known if the target is this host, because the interface does not count frames within
    /// the host.
    pub frames: Option<Frames>,
    /// Whether the host answers ESP.
    pub esp: bool,
    /// Whether the host responds at all.
    pub life: Life,
}

/// The cause of missing answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A filter or a full queue of this host refused the frames.
    RefusedHere,
    /// The frames were lost in this host without an error.
    LostHere,
    /// The other host has the module, but EDP frames do not pass in one direction.
    EdpFiltered,
    /// The other host responds, but answers neither protocol.
    NoModuleThere,
    /// The other host does not respond.
    NoHost,
    /// Nothing is known about the other host.
    Unknown,
}

impl Verdict {
    /// Returns whether the cause is in this host.
    pub fn is_here(self) -> bool {
        matches!(self, Self::RefusedHere | Self::LostHere)
    }
}

impl Evidence {
    /// Returns the cause. Causes that leave no doubt are tested first.
    pub fn verdict(&self) -> Verdict {
        if self.sent == 0 && self.refused > 0 {
            Verdict::RefusedHere
        } else if self
            .frames
            .is_some_and(|frames| frames.sent < u64::from(self.sent))
        {
            Verdict::LostHere
        } else if self.esp {
            Verdict::EdpFiltered
        } else {
            match self.life {
                Life::Answers(_) => Verdict::NoModuleThere,
                Life::Silent(_) => Verdict::NoHost,
                Life::Mute(_) | Life::Unknown => Verdict::Unknown,
            }
        }
    }

    /// Adds a hint if answers may have reached the interface but were dropped in this host.
    fn hint_at_own_input(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(frames) = self.frames else {
            return Ok(());
        };
        if frames.received >= u64::from(self.sent) {
            write!(
                f,
                "\n{} received {} frames meanwhile, so a filter of this host may drop the answers: `tc filter show dev {0} \
                 ingress`, `nft list ruleset`.",
                self.interface, frames.received
            )
        } else {
            Ok(())
        }
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            host, interface, ..
        } = self;
        match self.verdict() {
            Verdict::RefusedHere => write!(
                f,
                "This host refuses to send: an egress filter of {interface} drops the Ethernet type of EDP (0x88b5), or the \
                 queue of {interface} is full. Look at `tc filter show dev {interface} egress`, `nft list ruleset` and \
                 `tc -s qdisc show dev {interface}`."
            ),
            Verdict::LostHere => write!(
                f,
                "The requests were lost in this host: {interface} has sent {} frames of {}. A queueing discipline or a filter \
                 drops them: look at `tc -s qdisc show dev {interface}`, `tc -s filter show dev {interface} egress` and \
                 `nft list ruleset`.",
                self.frames.map_or(0, |frames| frames.sent),
                self.sent
            ),
            Verdict::EdpFiltered => {
                write!(
                    f,
                    "{host} has the module, for it answers ESP, but EDP frames are lost: a filter on the way or at either end \
                     drops the Ethernet type of EDP (0x88b5), or the hosts have different values of the module's parameter \
                     edp_type. On both hosts look at `tc filter show dev DEVICE ingress`, the same with `egress`, `nft list \
                     ruleset`, and `modprobe --showconfig | grep enet`."
                )?;
                self.hint_at_own_input(f)
            }
            Verdict::NoModuleThere => {
                let how = match self.life {
                    Life::Answers(ip) => format!("{ip} answers {} or UDP", question(ip)),
                    _ => "it is there".to_owned(),
                };
                write!(
                    f,
                    "{host} is there ({how}), but answers neither EDP nor ESP. Either the module is not loaded there, or a \
                     filter on the way drops the Ethernet types 0x88b5 and 0x88b6, or the hosts have other values of \
                     /sys/module/enet/parameters/edp_type and esp_type. Run `lsmod | grep enet` there: if it \
                     prints nothing, run `modprobe enet`. Else run `enet stats --all` there before and after this ping: if \
                     EdpInEcho does not rise, the frames do not arrive; if it does, the answers are lost on the way back."
                )?;
                self.hint_at_own_input(f)
            }
            Verdict::NoHost => match self.life {
                Life::Silent(ip) => write!(
                    f,
                    "Nobody is there: {host} answers {} no longer. It is off, or its cable is out, or it has left the segment \
                     or VLAN of {interface}; `ip neighbour show {ip}` says what is known.",
                    question(ip)
                ),
                _ => write!(f, "Nobody is there."),
            },
            Verdict::Unknown => {
                let (unasked, check) = match self.life {
                    Life::Mute(ip) => (
                        format!(
                            "nor does {ip} report a closed port of UDP; this host does not ask for its Ethernet address, \
                             which is set by hand"
                        ),
                        format!("Compare `ip neighbour show {ip}` with the host's own address"),
                    ),
                    _ => (
                        "and no IP address is known by which the host itself could be asked".to_owned(),
                        "Try `enet ping` with its IP address".to_owned(),
                    ),
                };
                write!(
                    f,
                    "{host} answers neither EDP nor ESP, {unasked}. \
                     Either the address or the interface is wrong or the host is off, or the module is not loaded there, \
                     or a filter on the way drops the Ethernet types 0x88b5 and 0x88b6. {check}, \
                     and run `lsmod | grep enet` and `enet stats --all` there."
                )?;
                self.hint_at_own_input(f)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence() -> Evidence {
        Evidence {
            host: "10.0.0.2 (02:00:00:00:00:02%eth0)".to_owned(),
            interface: "eth0".to_owned(),
            sent: 4,
            refused: 0,
            frames: Some(Frames {
                received: 0,
                sent: 4,
            }),
            esp: false,
            life: Life::Answers([10, 0, 0, 2].into()),
        }
    }

    #[test]
    fn each_cause_has_its_verdict_and_its_check() {
        let ip = IpAddr::from([10, 0, 0, 2]);
        let cases = [
            (evidence(), Verdict::NoModuleThere, "lsmod | grep enet"),
            (
                Evidence {
                    esp: true,
                    ..evidence()
                },
                Verdict::EdpFiltered,
                "edp_type",
            ),
            (
                Evidence {
                    sent: 0,
                    refused: 4,
                    ..evidence()
                },
                Verdict::RefusedHere,
                "tc filter show dev eth0 egress",
            ),
            (
                Evidence {
                    frames: Some(Frames {
                        received: 9,
                        sent: 3,
                    }),
                    ..evidence()
                },
                Verdict::LostHere,
                "sent 3 frames of 4",
            ),
            (
                Evidence {
                    life: Life::Silent(ip),
                    ..evidence()
                },
                Verdict::NoHost,
                "ip neighbour show 10.0.0.2",
            ),
            (
                Evidence {
                    life: Life::Unknown,
                    frames: None,
                    ..evidence()
                },
                Verdict::Unknown,
                "IP address",
            ),
        ];
        let by_hand = Evidence {
            life: Life::Mute(ip),
            ..evidence()
        };
        let text = by_hand.to_string();
        assert_eq!(by_hand.verdict(), Verdict::Unknown);
        assert!(text.contains("ip neighbour show 10.0.0.2"), "{text}");
        assert!(!text.contains("no IP address"), "{text}");
        for (evidence, verdict, words) in cases {
            assert_eq!(evidence.verdict(), verdict);
            let text = evidence.to_string();
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn own_input_is_suspected_when_frames_came() {
        let mut evidence = evidence();
        assert!(!evidence.to_string().contains("ingress"));
        evidence.frames = Some(Frames {
            received: 4,
            sent: 4,
        });
        assert!(evidence.to_string().contains("dev eth0 ingress"));
    }
}
