// SPDX-License-Identifier: MIT OR Apache-2.0

//! `include/af_enet.h` and the crate have the same numbers and layouts, in C and in C++.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;

use sockaddr_en::constants::*;
use sockaddr_en::{EdpStats, EspStats, SockaddrEn};

/// C expressions and their values according to the crate.
fn expected() -> BTreeMap<&'static str, i64> {
    let mut all = BTreeMap::new();
    macro_rules! constants {
        ($($name:ident),* $(,)?) => {
            $(all.insert(stringify!($name), i64::from($name));)*
        };
    }
    constants!(
        AF_ENET,
        PF_ENET,
        SOL_EP,
        EP_RECVERR,
        EPPROTO_EDP,
        EPPROTO_EZDP,
        EPPROTO_ESP,
        ENET_INTERFACE_ANY,
        EDP_SO_MTU,
        EDP_SO_STATS,
        ESP_SO_MTU,
        ESP_SO_STATS,
        ESP_SO_USER_TIMEOUT,
        EDP_ECHO_REQUEST,
        EDP_ECHO_REPLY,
        ETH_P_EDP,
        ETH_P_ESP,
    );
    macro_rules! layout {
        ($rust:ident, $c:literal: $($field:ident),* $(,)?) => {
            all.insert(concat!("sizeof(struct ", $c, ")"), size_of::<$rust>() as i64);
            $(all.insert(
                concat!("offsetof(struct ", $c, ", ", stringify!($field), ")"),
                offset_of!($rust, $field) as i64,
            );)*
        };
    }
    layout!(SockaddrEn, "sockaddr_en": sen_family, sen_port, sen_ifindex, sen_addrlen, sen_addr, sen_zero);
    layout!(EdpStats, "edp_stats": pkt_tx, tx_err, pkt_rx, pkt_rx_drop);
    layout!(EspStats, "esp_stats": pkt_tx, pkt_rtx, tx_err, pkt_rx, pkt_rx_oos, pkt_rx_drop, seq_lost, arq_tx);
    all
}

/// A program that prints one `expression=value` line each.
fn program(expressions: impl Iterator<Item = &'static str>) -> String {
    // The header comes first, to show that it needs nothing included before it.
    let mut text = String::from("#include \"af_enet.h\"\n#include <stdio.h>\nint main(void)\n{\n");
    for expression in expressions {
        writeln!(
            text,
            "\tprintf(\"%s=%lld\\n\", \"{expression}\", (long long)({expression}));"
        )
        .unwrap();
    }
    text.push_str("\treturn 0;\n}\n");
    text
}

fn find_compiler(variable: &str, candidates: &[&str]) -> Option<String> {
    std::env::var(variable)
        .into_iter()
        .chain(candidates.iter().map(|name| (*name).to_owned()))
        .find(|name| {
            Command::new(name)
                .arg("--version")
                .output()
                .is_ok_and(|o| o.status.success())
        })
}

/// Compiles and runs the program; gives what it printed.
fn values(compiler: &str, flags: &[&str], file: &str) -> BTreeMap<String, i64> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source: PathBuf = directory.join(file);
    let binary = source.with_extension("bin");
    std::fs::write(&source, program(expected().into_keys())).unwrap();

    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let compiled = Command::new(compiler)
        .args([
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-Wno-long-long",
            "-I",
        ])
        .arg(include)
        .args(flags)
        .arg("-o")
        .args([&binary, &source])
        .output()
        .unwrap();
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );

    let ran = Command::new(binary).output().unwrap();
    assert!(ran.status.success());
    String::from_utf8(ran.stdout)
        .unwrap()
        .lines()
        .map(|line| {
            let (expression, value) = line.rsplit_once('=').unwrap();
            (expression.to_owned(), value.parse().unwrap())
        })
        .collect()
}

fn compare(compiler: &str, flags: &[&str], file: &str) {
    let found = values(compiler, flags, file);
    assert_eq!(found.len(), expected().len());
    for (expression, value) in expected() {
        assert_eq!(
            found.get(expression),
            Some(&value),
            "{expression} by {compiler} {flags:?}"
        );
    }
}

#[test]
fn c_sees_the_same_numbers() {
    let compiler = find_compiler("CC", &["cc", "gcc", "gcc-14", "clang", "clang-19"])
        .expect("this test needs a C compiler: install gcc, or name one in CC");
    compare(&compiler, &["-std=c11"], "header_c11.c");
    compare(&compiler, &["-std=gnu99"], "header_gnu99.c");
}

#[test]
fn cpp_sees_the_same_numbers() {
    // A C compiler is enough to check the header as C++ only if it also has a C++ front end,
    // which small build trees leave out; the C test above covers the numbers there.
    let Some(compiler) = find_compiler("CXX", &["c++", "g++", "g++-14", "clang++", "clang++-19"])
    else {
        eprintln!("no C++ compiler here: the header was checked as C only");
        return;
    };
    compare(&compiler, &["-std=c++17"], "header_cpp17.cc");
}

#[test]
fn the_family_is_the_number_that_linux_calls_mpls() {
    assert_eq!(i32::from(AF_ENET), libc::AF_MPLS);
}
