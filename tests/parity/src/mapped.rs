// SPDX-License-Identifier: GPL-2.0-only

//! Lists the deliberate differences between TCP and mapped sockets over ESP; `docs/sockets.md`
//! gives the reasons.

use super::Difference;

/// The differences, by the name of the behaviour (the test that runs once per family).
pub const DIFFERENCES: &[(&str, &[Difference])] = &[
    (
        "stream_file_calls",
        &[Difference::new("mmap", "mapped", "ENODEV")],
    ),
    (
        "stream_urgent_data",
        &[Difference::new("send", "1", "EOPNOTSUPP")],
    ),
    (
        "stream_port_bound_again_after_closing_first",
        &[Difference::new("bind", "EADDRINUSE", "success")],
    ),
    (
        "stream_port_of_a_closed_listener",
        &[Difference::new(
            "bind again beside a connection",
            "EADDRINUSE",
            "success",
        )],
    ),
    (
        "stream_filter_sees_the_header",
        &[
            Difference::new("attach", "success", "EOPNOTSUPP"),
            Difference::new("attach another", "success", "EOPNOTSUPP"),
        ],
    ),
    (
        "stream_filter_extended",
        &[
            Difference::new("no descriptor", "EBADF", "EOPNOTSUPP"),
            Difference::new("no program", "EINVAL", "EOPNOTSUPP"),
            Difference::new("attach", "success", "EOPNOTSUPP"),
            Difference::new("detach", "success", "ENOENT"),
        ],
    ),
    (
        "stream_option_memory",
        &[Difference::new(
            "more is charged than the payload",
            "true",
            "false",
        )],
    ),
];

/// Behaviours that never end if ESP is tried first. After a host has refused ESP, TCP's SYN is sent
/// only when the program calls `poll` or makes another call on the socket. These behaviours wait
/// for the connection without such a call, so they would wait for ever.
pub const WITHOUT_CALLS: &[&str] = &["stream_filter_refuses_everybody"];

/// Returns the deliberate differences of the behaviour (the test) `name`.
pub fn differences(name: &str) -> &'static [Difference] {
    DIFFERENCES
        .iter()
        .find_map(|(behaviour, all)| (*behaviour == name).then_some(*all))
        .unwrap_or(&[])
}
