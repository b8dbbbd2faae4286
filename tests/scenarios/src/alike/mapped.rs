//! Where mapped sockets over ESP differ from TCP on purpose; `docs/sockets.md` gives the reasons.

use super::Difference;

/// By behaviour.
pub const DIFFERENCES: &[(&str, &[Difference])] = &[
    (
        "stream_file_calls",
        &[Difference {
            what: "mmap",
            inet: "mapped",
            enet: "ENODEV",
        }],
    ),
    (
        "stream_zero_copy",
        &[Difference {
            what: "SO_ZEROCOPY",
            inet: "success",
            enet: "EOPNOTSUPP",
        }],
    ),
    (
        "stream_urgent_data",
        &[Difference {
            what: "send",
            inet: "1",
            enet: "EOPNOTSUPP",
        }],
    ),
    (
        "stream_port_bound_again_after_closing_first",
        &[Difference {
            what: "bind",
            inet: "EADDRINUSE",
            enet: "success",
        }],
    ),
    (
        "stream_port_of_a_closed_listener",
        &[Difference {
            what: "bind again beside a connection",
            inet: "EADDRINUSE",
            enet: "success",
        }],
    ),
    (
        "stream_filter_sees_the_header",
        &[
            Difference {
                what: "attach",
                inet: "success",
                enet: "EOPNOTSUPP",
            },
            Difference {
                what: "attach another",
                inet: "success",
                enet: "EOPNOTSUPP",
            },
        ],
    ),
    (
        "stream_filter_extended",
        &[
            Difference {
                what: "no descriptor",
                inet: "EBADF",
                enet: "EOPNOTSUPP",
            },
            Difference {
                what: "no program",
                inet: "EINVAL",
                enet: "EOPNOTSUPP",
            },
            Difference {
                what: "attach",
                inet: "success",
                enet: "EOPNOTSUPP",
            },
            Difference {
                what: "detach",
                inet: "success",
                enet: "ENOENT",
            },
        ],
    ),
    (
        "stream_option_memory",
        &[Difference {
            what: "more is charged than the payload",
            inet: "true",
            enet: "false",
        }],
    ),
];

/// Behaviours that do not end where ESP is tried first: once ESP is refused, TCP's SYN leaves by the next call on the
/// socket, `poll` or another, and these wait for it without one.
pub const WITHOUT_CALLS: &[&str] = &["stream_filter_refuses_everybody"];

/// The differences of the behaviour `name`.
pub fn differences(name: &str) -> &'static [Difference] {
    DIFFERENCES
        .iter()
        .find_map(|(behaviour, all)| (*behaviour == name).then_some(*all))
        .unwrap_or(&[])
}
