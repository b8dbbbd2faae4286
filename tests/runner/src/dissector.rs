// SPDX-License-Identifier: GPL-2.0-only

//! Tests the Wireshark dissector. tshark decodes frames that a guest sent. The test compares the
//! result with the fields from the module's own parser.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{bail, ensure, Context, Result};

use crate::commands::{Commands, Verb};
use crate::judge::Part;
use crate::layout::Layout;
use crate::qemu::Clock;
use crate::step;

const SCRIPT: &str = "tools/wireshark/enet.lua";

/// Time limit for the recording; many times the usual duration.
const PATIENCE: Duration = Duration::from_secs(300);

/// Length of the Ethernet header in bytes.
const ETHERNET: usize = 14;

/// The fields that tshark prints of each frame, in this order.
const FIELDS: [&str; 22] = [
    "enet_edp.srcport",
    "enet_edp.dstport",
    "enet_edp.length",
    "enet_edp.payload",
    "enet_edp.checksum",
    "enet_edp.padding",
    "enet_esp.srcport",
    "enet_esp.dstport",
    "enet_esp.length",
    "enet_esp.seq",
    "enet_esp.ack",
    "enet_esp.flags",
    "enet_esp.payload",
    "enet_esp.checksum",
    "enet_esp.padding",
    "enet_esp.flags.syn",
    "enet_esp.flags.rrq",
    "enet_edp.stream",
    "enet_esp.stream",
    "enet_edp.control",
    "_ws.expert.message",
    "_ws.col.protocol",
];

/// The number of fields at the start of [`FIELDS`] that depend only on a frame's bytes.
const BYTES: usize = 17;

/// The remarks that tshark must make about the recording, in tshark's words.
const REMARKS: [&str; 10] = [
    "Connection attempt (SYN)",
    "End of the stream (FIN)",
    "Connection reset (RST)",
    "Requests all packets from",
    "Hold: receipt acknowledged, window closed",
    "Retransmission",
    "Packets before this one are missing",
    "The frame is shorter than its header says",
    "Invalid combination of flags",
    "Wrong checksum",
];

/// Records frames in a guest and checks how the dissector decodes them.
pub fn check(layout: &Layout) -> Part {
    step::say("reading a guest's frames with Wireshark's dissector");
    let mut part = Part::new("dissector");
    let rows = match capture(layout).and_then(|frames| Ok((decode(layout, &frames)?, frames))) {
        Ok((rows, frames)) => {
            part.take("fields", compare(&frames, &rows));
            rows
        }
        Err(error) => {
            part.take::<()>("capture", Err(error));
            return part;
        }
    };
    part.take("remarks", remarks(&rows));
    part.take("streams", streams(&rows));
    part
}

/// Records frames in a guest, and returns them.
fn capture(layout: &Layout) -> Result<Vec<Vec<u8>>> {
    let mut guest = Commands::boot(
        layout,
        "dissector",
        Verb::Commands,
        Clock::Free(2),
        PATIENCE,
    )?;
    let ended = guest.ask("scenarios --capture")?;
    guest.end()?;
    ensure!(ended.status == 0, "the story failed:\n{}", ended.text);
    let lines = ended.text.lines();
    let frames: Vec<_> = lines
        .filter_map(|line| line.strip_prefix("frame "))
        .map(bytes)
        .collect::<Result<_>>()?;
    ensure!(!frames.is_empty(), "the story had no frames");
    Ok(frames)
}

fn bytes(hexadecimal: &str) -> Result<Vec<u8>> {
    let digits = hexadecimal.as_bytes().chunks(2);
    digits
        .map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?))
        .collect()
}

/// Builds a capture file in pcap's format (microseconds, Ethernet), with one frame per millisecond.
fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    const LINKTYPE_ETHERNET: u32 = 1;
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 0x4_0000, LINKTYPE_ETHERNET] {
        file.extend_from_slice(&u32::to_ne_bytes(word));
    }
    for (number, frame) in (0u32..).zip(frames) {
        let length = frame.len() as u32;
        for word in [number / 1000, number % 1000 * 1000, length, length] {
            file.extend_from_slice(&word.to_ne_bytes());
        }
        file.extend_from_slice(frame);
    }
    file
}

/// Runs tshark; returns a row of [`FIELDS`] for each frame.
fn decode(layout: &Layout, frames: &[Vec<u8>]) -> Result<Vec<Vec<String>>> {
    // tshark runs as another user, which may have no access to the project's directory.
    let directory = tempfile::tempdir()?;
    let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755));
    open(directory.path())?;
    let (file, script) = (
        directory.path().join("story.pcap"),
        directory.path().join("enet.lua"),
    );
    fs::write(&file, pcap(frames))?;
    fs::copy(layout.project.join(SCRIPT), &script).context(SCRIPT)?;
    open(&file)?;
    open(&script)?;
    let text = tshark(directory.path(), &script, &file)?;
    let rows: Vec<Vec<String>> = text
        .lines()
        .map(|line| line.split('\t').map(str::to_owned).collect())
        .collect();
    ensure!(
        rows.len() == frames.len() && rows.iter().all(|row| row.len() == FIELDS.len()),
        "{} frames became:\n{text}",
        frames.len()
    );
    Ok(rows)
}

fn tshark(home: &Path, script: &Path, file: &Path) -> Result<String> {
    const NOBODY: u32 = 65534;
    let mut command = Command::new("tshark");
    // tshark makes two passes, because Wireshark dissects a frame when it reads the frame and again
    // when it shows the frame. tshark does not run as root, because Wireshark runs no scripts as
    // root.
    command
        .uid(NOBODY)
        .gid(NOBODY)
        .env("HOME", home)
        .args(["-n", "-2", "-X"])
        .arg(format!("lua_script:{}", script.display()))
        .arg("-r")
        .arg(file)
        .args(["-T", "fields", "-E", "separator=/t", "-E", "occurrence=a"]);
    for field in FIELDS {
        command.args(["-e", field]);
    }
    let output = command.output().context("tshark")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success() && !said.contains("Lua"),
        "tshark ({}): {}",
        output.status,
        said.trim()
    );
    Ok(String::from_utf8(output.stdout)?)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Splits the bytes that follow the header of `packet`. This header has `header` bytes, and its
/// length field is `length`. Returns the payload, the checksum and the padding, as tshark prints
/// them.
fn split(packet: &[u8], header: usize, length: u16, has_checksum: bool) -> [String; 3] {
    let rest = &packet[header..];
    let (payload, rest) = rest.split_at(usize::from(length).min(rest.len()));
    let (checksum, padding) = match rest.split_first_chunk() {
        Some((sum, padding)) if has_checksum => {
            (format!("0x{:08x}", u32::from_be_bytes(*sum)), padding)
        }
        _ => (String::new(), rest),
    };
    [hexadecimal(payload), checksum, hexadecimal(padding)]
}

/// Returns the first [`BYTES`] fields of the row that tshark must print for the frame. The module's
/// own parser supplies the values.
fn expected(frame: &[u8]) -> Result<Vec<String>> {
    let packet = frame.get(ETHERNET..).context("no Ethernet frame")?;
    let kind = u16::from_be_bytes([frame[12], frame[13]]);
    let bit = |set: bool| (if set { "True" } else { "False" }).to_owned();
    let mut row = vec![String::new(); BYTES];
    match kind {
        0x88b5 => {
            let header = edp::wire::Header::parse(packet).context("no EDP header")?;
            let [payload, checksum, padding] = split(
                packet,
                edp::wire::HEADER_LEN,
                header.len,
                header.has_checksum,
            );
            let numbers = [header.src, header.dst, header.len].map(|number| number.to_string());
            row.splice(
                0..6,
                numbers.into_iter().chain([payload, checksum, padding]),
            );
        }
        0x88b6 => {
            let header = esp::Header::parse(packet).context("no ESP header")?;
            let has_checksum = header.has_checksum();
            let [payload, checksum, padding] =
                split(packet, esp::HEADER_LEN, header.payload(), has_checksum);
            // In a grant or a skip (two kinds of ESP packets), the length field does not hold a
            // length.
            let length = (!header.is_grant() && !header.is_skip()).then(|| header.len.to_string());
            let numbers = [
                header.src.to_string(),
                header.dst.to_string(),
                length.unwrap_or_default(),
                header.seq.0.to_string(),
                header.ack.0.to_string(),
            ];
            let last = [
                format!("0x{:02x}", header.flags),
                payload,
                checksum,
                padding,
                bit(header.has(esp::flags::SYN)),
                bit(header.has(esp::flags::RRQ)),
            ];
            row.splice(6.., numbers.into_iter().chain(last));
        }
        kind => bail!("a frame of type {kind:#06x}"),
    }
    Ok(row)
}

/// Compares each field of each frame.
fn compare(frames: &[Vec<u8>], rows: &[Vec<String>]) -> Result<()> {
    for (number, (frame, row)) in frames.iter().zip(rows).enumerate() {
        let expected = expected(frame)?;
        ensure!(
            row[..BYTES] == expected,
            "frame {}: {}\nshould give {expected:?}\nbut gives {row:?}",
            number + 1,
            hexadecimal(frame)
        );
        let protocol = if expected[0].is_empty() {
            "ENET-ESP"
        } else {
            "EDP"
        };
        ensure!(
            row[21] == protocol,
            "frame {} is called {}",
            number + 1,
            row[21]
        );
    }
    Ok(())
}

/// Checks that the dissector makes each remark, and makes it only on the right frames.
fn remarks(rows: &[Vec<String>]) -> Result<()> {
    for remark in REMARKS {
        ensure!(
            rows.iter().any(|row| row[20].contains(remark)),
            "no frame is remarked with {remark:?}"
        );
    }
    for row in rows {
        let mut flags = u8::from_str_radix(row[11].trim_start_matches("0x"), 16).unwrap_or(0);
        let skipped = esp::flags::ACK | esp::flags::RRQ | esp::flags::TXS;
        if row[8].is_empty() || row[8] == "0" && flags & !esp::flags::CRC == skipped {
            // A grant, a skip and the answer to a skip have the flag RRQ, but request nothing.
            flags &= !esp::flags::RRQ;
        }
        for (remark, bit) in [
            (REMARKS[0], esp::flags::SYN),
            (REMARKS[1], esp::flags::FIN),
            (REMARKS[2], esp::flags::RST),
            (REMARKS[3], esp::flags::RRQ),
        ] {
            ensure!(
                row[20].contains(remark) == (flags & bit != 0),
                "{remark:?} is said wrongly of {row:?}"
            );
        }
    }
    let wrong = rows.iter().filter(|row| row[20].contains(REMARKS[9]));
    let wrong: Vec<_> = wrong.collect();
    // The recording has one malformed frame of each protocol.
    ensure!(wrong.len() == 2, "said to be wrong: {wrong:?}");
    // The recording has all kinds of control messages; column 19 has the number of the kind.
    for kind in ["1", "2", "3", "4"] {
        ensure!(
            rows.iter().any(|row| row[19] == kind),
            "no control message {kind}"
        );
    }
    Ok(())
}

/// Checks tshark's stream numbers. Both directions of a conversation have the same number, and each
/// conversation has a number of its own.
fn streams(rows: &[Vec<String>]) -> Result<()> {
    for (ports, index) in [([0, 1], 17), ([6, 7], 18)] {
        let mut seen: Vec<(HashSet<&str>, &str)> = Vec::new();
        for row in rows.iter().filter(|row| !row[ports[0]].is_empty()) {
            let ends: HashSet<_> = ports.iter().map(|port| row[*port].as_str()).collect();
            match seen.iter().find(|(known, _)| *known == ends) {
                Some((_, number)) => {
                    ensure!(*number == row[index], "{row:?} is not of stream {number}")
                }
                None => {
                    ensure!(
                        seen.iter().all(|(_, number)| *number != row[index]),
                        "{row:?} has another's stream"
                    );
                    seen.push((ends, row[index].as_str()));
                }
            }
        }
        ensure!(seen.len() > 2, "{} conversations", seen.len());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: &str = "02000000000202000000000188b6000100020003ffff000422616263000000";

    #[test]
    fn frames_give_the_rows_that_the_module_reads() {
        let frame = bytes(HELD).expect("hexadecimal");
        let row = expected(&frame).expect("an ESP frame");
        let words = ["1", "2", "3", "65535", "4", "0x22", "616263", "", "000000"];
        assert_eq!(row[6..15], words);
        assert_eq!(row[15..], ["False", "False"]);
        let mut wrong = row.clone();
        wrong[9] = "0".to_owned();
        wrong.resize(FIELDS.len(), String::new());
        assert!(compare(&[frame], &[wrong]).is_err());
    }

    #[test]
    fn captures_have_the_length_of_their_frames() {
        assert_eq!(
            pcap(&[vec![0; 60], vec![0; 14]]).len(),
            24 + 2 * 16 + 60 + 14
        );
    }
}
