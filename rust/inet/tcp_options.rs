// SPDX-License-Identifier: GPL-2.0

//! Options that TCP's socket cannot accept or report for a connection that the companion carries.

use super::*;

/// Returns whether an option would replace the descriptor's function table, and so also the module
/// that the descriptor holds.
pub(super) fn exchanges_table(level: c_int, name: c_int) -> bool {
    const TCP_ULP: (c_int, c_int) = (SOL_TCP, bindings::TCP_ULP as c_int);
    const IPV6_ADDRFORM: (c_int, c_int) = (
        bindings::SOL_IPV6 as c_int,
        bindings::IPV6_ADDRFORM as c_int,
    );
    (level, name) == TCP_ULP || (level, name) == IPV6_ADDRFORM
}

/// Returns the error for an option that is rejected while the companion has the connection or may
/// get it. Such options are those that only TCP supports, see [`StreamCall::needs_tcp`], and those
/// that only an unbound socket accepts: TCP's socket is unbound even if the companion has a
/// connection.
pub(super) fn refusal(level: c_int, name: c_int, is_v6: bool) -> Option<Error> {
    const SOL_IPV6: c_int = bindings::SOL_IPV6 as c_int;
    match (level, name as c_uint) {
        (SOL_SOCKET, bindings::SO_ATTACH_FILTER | bindings::SO_ATTACH_BPF) => Some(EOPNOTSUPP),
        (
            SOL_TCP,
            bindings::TCP_MD5SIG
            | bindings::TCP_MD5SIG_EXT
            | bindings::TCP_AO_ADD_KEY
            | bindings::TCP_MAXSEG
            | bindings::TCP_REPAIR,
        ) => Some(EOPNOTSUPP),
        (SOL_IPV6, bindings::IPV6_V6ONLY) if is_v6 => Some(EINVAL),
        _ => None,
    }
}

/// Returns the function that gets an option's value from the companion's [`StreamInfo`], for
/// options whose values TCP and IP report only for their own connection.
pub(super) fn of_connection(
    level: c_int,
    name: c_int,
    is_v6: bool,
) -> Option<fn(&StreamInfo) -> u32> {
    const SOL_IP: c_int = bindings::SOL_IP as c_int;
    const SOL_IPV6: c_int = bindings::SOL_IPV6 as c_int;
    match (level, name as c_uint) {
        (SOL_TCP, bindings::TCP_MAXSEG) => Some(|info| info.mss),
        (SOL_IP, bindings::IP_MTU) => Some(|info| info.mtu),
        (SOL_IPV6, bindings::IPV6_MTU) if is_v6 => Some(|info| info.mtu),
        (SOL_IPV6, bindings::IPV6_ADDRFORM) if is_v6 => Some(|_| AF_INET6.into()),
        _ => None,
    }
}
