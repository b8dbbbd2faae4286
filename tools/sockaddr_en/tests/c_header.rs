// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests that the headers in `include/`, compiled as C and as C++, have the same numbers, layouts
//! and texts of addresses as the crate.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sockaddr_en::constants::*;
use sockaddr_en::{Address, EdpStats, EspStats, SockaddrEn};

/// Returns C expressions, each with the value that the crate has for it.
fn expected() -> BTreeMap<&'static str, i64> {
    let mut all = BTreeMap::new();
    macro_rules! constants {
        ($($name:ident),* $(,)?) => {
            $(all.insert(stringify!($name), $name as i64);)*
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
        IPPROTO_ENET,
        ENET_INTERFACE_ANY,
        EP_IOC_END_REGION,
        EP_IOC_REGION,
        EP_PUT,
        EP_SEND,
        EP_SO_DOMAIN,
        EP_SO_RECEIVE_RING,
        EP_TELLS,
        EP_SO_ZEROCOPY,
        EDP_SO_MTU,
        EDP_SO_STATS,
        EDP_SO_CHECKSUM,
        ESP_SO_MTU,
        ESP_SO_STATS,
        ESP_SO_USER_TIMEOUT,
        ESP_SO_CHECKSUM,
        EDP_ECHO_REQUEST,
        EDP_ECHO_REPLY,
        EDP_QUERY,
        EDP_ANSWER,
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

/// Returns a program that prints a line `expression=value` for each expression.
fn program(expressions: impl Iterator<Item = &'static str>) -> String {
    // The header comes first, which proves that it includes all it needs.
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

/// Compiles a program as `file`. Returns the compiler's result and the path of the binary.
fn compile(compiler: &str, flags: &[&str], file: &str, program: &str) -> (Output, PathBuf) {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source: PathBuf = directory.join(file);
    let binary = source.with_extension("bin");
    std::fs::write(&source, program).unwrap();

    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let compiled = Command::new(compiler)
        .args([
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Wconversion",
            "-Wsign-conversion",
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
    (compiled, binary)
}

/// Compiles a program as `file`, runs it and returns its output.
fn output(compiler: &str, flags: &[&str], file: &str, program: &str) -> String {
    let (compiled, binary) = compile(compiler, flags, file, program);
    assert!(
        compiled.status.success(),
        "{compiler} {flags:?}: {}",
        String::from_utf8_lossy(&compiled.stderr)
    );

    let ran = Command::new(binary).output().unwrap();
    assert!(ran.status.success());
    String::from_utf8(ran.stdout).unwrap()
}

fn values(compiler: &str, flags: &[&str], file: &str) -> BTreeMap<String, i64> {
    output(compiler, flags, file, &program(expected().into_keys()))
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

fn c_compiler() -> String {
    find_compiler("CC", &["cc", "gcc", "gcc-14", "clang", "clang-19"])
        .expect("this test needs a C compiler: install gcc, or name one in CC")
}

/// Returns the C compiler, and clang if it is installed too.
fn c_compilers() -> Vec<String> {
    let mut all = vec![c_compiler()];
    all.extend(find_compiler("CLANG", &["clang", "clang-19"]));
    all
}

#[test]
fn c_sees_the_same_numbers() {
    let compiler = c_compiler();
    compare(&compiler, &["-std=c11"], "header_c11.c");
    compare(&compiler, &["-std=gnu99"], "header_gnu99.c");
}

#[test]
fn cpp_sees_the_same_numbers() {
    // Without a C++ front end, the header cannot be checked as C++, and only the C test above
    // covers the numbers.
    let Some(compiler) = find_compiler("CXX", &["c++", "g++", "g++-14", "clang++", "clang++-19"])
    else {
        eprintln!("no C++ compiler here: the header was checked as C only");
        return;
    };
    compare(&compiler, &["-std=c++17"], "header_cpp17.cc");
    let clang = find_compiler("CLANGXX", &["clang++", "clang++-19"]);
    for (number, compiler) in [compiler].iter().chain(&clang).enumerate() {
        for standard in ["c++11", "c++17", "c++20"] {
            let file = format!("address_{number}_{standard}.cc");
            compare_addresses(compiler, &[&format!("-std={standard}")], &file);
        }
    }
}

/// An alternative name of an interface (`altname`) of the maximum length, 127 bytes.
macro_rules! LONGEST {
    () => {
        "an-alternative-name-of-an-interface-of-127-bytes-which-is-the-longest-that-the-kernel-allows-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
    };
}

/// Texts that are addresses, and texts that are not.
const TEXTS: &[&str] = &[
    "02:00:00:00:00:01%lo:2805",
    "AA:bb:0C:d0:00:ff%1:65535",
    "02:00:00:00:00:01%0:1",
    "02:00:00:00:00:01%4294967295:0",
    "*%lo:2805",
    "*%1:2805",
    "*:0",
    "*%0:007",
    "02:00:00:00:00:01%nowhere0:1",
    "*%a%b:1",
    "",
    "*",
    ":",
    "*:",
    "*:65536",
    "*:+1",
    "*:1x",
    "*:99999999999999999999999",
    "*x:1",
    "%lo:1",
    "*%:1",
    "*%lo",
    "*%l o:1",
    "*%l/o:1",
    "*%4294967296:1",
    "*%sixteen-letters-:1",
    concat!("*%", LONGEST!(), ":1"),
    concat!("*%", LONGEST!(), "1:1"),
    "02:00:00:00:00:01:2805",
    "02:00:00:00:00:01",
    "02:00:00:00:00%lo:1",
    "02:00:00:00:00:01:02%lo:1",
    "02:00:00:00:00:0g%lo:1",
    "02:00:00:00:00:1%lo:1",
    "0x:00:00:00:00:01%lo:1",
];

/// Returns the line that the C program must print for `text`: the result of `en_pton` and the text
/// of `en_ntop`.
fn read_by_the_crate(text: &str) -> String {
    match text.parse::<Address>() {
        Ok(address) => format!(
            "1 {} {} {address}",
            address.to_raw().sen_ifindex,
            address.port
        ),
        Err(sockaddr_en::AddressError::NoInterface(_)) => "-1".to_owned(),
        Err(_) => "0".to_owned(),
    }
}

const READER: &str = r#"#include "en_address.h"
int main(void)
{
	static const char *const texts[] = {
TEXTS
	};
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		struct sockaddr_en address;
		char text[EN_ADDRSTRLEN], small[5];
		int result = en_pton(texts[i], &address);

		printf("%d", result);
		if (result == 1)
			printf(" %u %u %s", (unsigned int)address.sen_ifindex,
			       (unsigned int)ntohs(address.sen_port),
			       en_ntop(&address, text, sizeof(text)));
		if (result == 1 && strlen(text) >= sizeof(small) &&
		    (en_ntop(&address, small, sizeof(small)) || errno != ENOSPC))
			printf(" fits into 5 bytes");
		printf("\n");
	}
	return 0;
}
"#;

fn compare_addresses(compiler: &str, flags: &[&str], file: &str) {
    let texts: Vec<_> = TEXTS
        .iter()
        .map(|text| format!("\t\t\"{text}\","))
        .collect();
    let read = output(
        compiler,
        flags,
        file,
        &READER.replace("TEXTS", &texts.join("\n")),
    );
    let read: Vec<_> = read.lines().collect();
    assert_eq!(read.len(), TEXTS.len());
    for (text, read) in TEXTS.iter().zip(read) {
        assert_eq!(
            read,
            read_by_the_crate(text),
            "`{text}` by {compiler} {flags:?}"
        );
    }
}

#[test]
fn c_reads_and_writes_addresses_as_the_crate_does() {
    for (number, compiler) in c_compilers().iter().enumerate() {
        for standard in ["c99", "c11", "c17", "gnu99", "gnu11", "gnu17"] {
            let file = format!("address_{number}_{standard}.c");
            compare_addresses(compiler, &[&format!("-std={standard}")], &file);
        }
        let strict = ["-std=c11", "-D_POSIX_C_SOURCE=200809L"];
        compare_addresses(compiler, &strict, &format!("address_{number}_posix.c"));
    }
}

/// Prints for each host the result of `en_lookup`, the error's number, and whether the address has
/// changed.
const FINDER: &str = r#"#include "en_address.h"
int main(void)
{
	static const char *const hosts[] = {
		"", "02:00:00:00:00:02", "02:00:00:00:00:02:lo", "10.0.0.2%nowhere0", "10.0.0.2%4294967295",
		"127.0.0.1", "02:00:00:00:00:01%lo",
	};
	for (size_t i = 0; i < sizeof(hosts) / sizeof(*hosts); i++) {
		struct sockaddr_en address, before;
		int result;

		memset(&before, 0x5a, sizeof(before));
		address = before;
		result = en_lookup(hosts[i], 2805, &address);
		printf("%d %d %d\n", result, result < 0 ? errno : 0,
		       memcmp(&address, &before, sizeof(address)) != 0);
	}
	return 0;
}
"#;

#[test]
fn a_failed_lookup_leaves_the_address_as_it_was() {
    let nodev = format!("-1 {} 0", libc::ENODEV);
    let nothing = "0 0 0";
    let expected = [nothing, nothing, nothing, &nodev, &nodev, &nodev, "1 0 1"];
    for (number, compiler) in c_compilers().iter().enumerate() {
        for (name, flags) in [
            ("gnu99", &["-std=gnu99"][..]),
            ("default", &["-std=c11", "-D_DEFAULT_SOURCE"]),
        ] {
            let file = format!("lookup_{number}_{name}.c");
            let found = output(compiler, flags, &file, FINDER);
            assert_eq!(
                found.lines().collect::<Vec<_>>(),
                expected,
                "{compiler} {flags:?}"
            );
        }
    }
}

#[test]
fn a_lookup_in_iso_c_says_what_to_define() {
    for (number, compiler) in c_compilers().iter().enumerate() {
        let file = format!("lookup_{number}_c11.c");
        let (compiled, _) = compile(compiler, &["-std=c11"], &file, FINDER);
        let complaint = String::from_utf8_lossy(&compiled.stderr);
        assert!(!compiled.status.success());
        assert!(
            complaint.contains("en_lookup_needs_DEFAULT_SOURCE"),
            "{complaint}"
        );
    }
}

#[test]
fn the_family_is_the_number_that_linux_calls_mpls() {
    assert_eq!(i32::from(AF_ENET), libc::AF_MPLS);
}
