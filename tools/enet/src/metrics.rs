// SPDX-License-Identifier: MIT OR Apache-2.0

//! Formats counters and sockets as metrics, in the text format of Prometheus, version 0.0.4.

use crate::counters::Counter;
use crate::mapped::Sum;
use crate::sockets::{Protocol, Socket};

/// Returns the metrics of a host on which the module is not loaded.
pub fn without_module() -> String {
    build_info("") + &loaded(false)
}

/// Returns the metrics of a loaded module, whose version is `module`.
pub fn print(module: &str, counters: &[Counter], sockets: &[Socket], mapped: &[Sum]) -> String {
    let mut text = build_info(module) + &loaded(true);
    for counter in counters {
        let name = format!("enet_{}_total", snake_case(&counter.name));
        let meaning = counter.meaning.unwrap_or("A counter of /proc/net/enet.");
        text += &head(&name, "counter", meaning);
        text += &format!("{name} {}\n", counter.value);
    }
    text += &head("enet_sockets", "gauge", "Sockets by protocol and state.");
    for protocol in Protocol::ALL {
        for state in protocol.states() {
            let count = of(sockets, protocol)
                .filter(|socket| socket.state == state)
                .count();
            text += &format!(
                "enet_sockets{{protocol=\"{}\",state=\"{state}\"}} {count}\n",
                protocol.name()
            );
        }
    }
    // Listeners are left out because their receive queue counts connections, not bytes.
    text += &sum(
        sockets,
        "enet_receive_queue_bytes",
        "Bytes that programs have not read, of all sockets but listeners; of EDP with the overhead of buffers.",
        |socket| if listens(socket) { 0 } else { socket.receive_queue },
    );
    text += &sum(
        sockets,
        "enet_send_queue_bytes",
        "Bytes that peers have not acknowledged (ESP), or devices not sent (EDP, with the overhead of buffers).",
        |socket| socket.send_queue,
    );
    text += &sum(
        sockets,
        "enet_accept_queue_connections",
        "Connections that wait in accept queues.",
        |socket| {
            if listens(socket) {
                socket.receive_queue
            } else {
                0
            }
        },
    );
    text += &sum(
        sockets,
        "enet_socket_drops",
        "Received packets that the sockets which are open now have dropped.",
        |socket| socket.drops,
    );
    text + &connections(mapped)
}

fn connections(mapped: &[Sum]) -> String {
    let name = "enet_mapped_connections";
    let mut text = head(
        name,
        "gauge",
        "Open connections of mapped sockets, by program if it may be looked into, protocol, and the reason why TCP carries them.",
    );
    for sum in mapped {
        let (program, reason) = (label(&sum.program), sum.choice.reason.as_deref());
        let (carrier, reason) = (
            label(&sum.choice.carrier),
            label(reason.unwrap_or_default()),
        );
        text += &format!(
            "{name}{{program=\"{program}\",carrier=\"{carrier}\",reason=\"{reason}\"}} {}\n",
            sum.connections
        );
    }
    text
}

/// Escapes the value of a label.
fn label(value: &str) -> String {
    let escape = |letter: char| match letter {
        '\\' => "\\\\".to_owned(),
        '"' => "\\\"".to_owned(),
        '\n' => "\\n".to_owned(),
        letter => letter.to_string(),
    };
    value.chars().map(escape).collect()
}

/// Returns the metric whose labels are the versions of this program and of the module.
fn build_info(module: &str) -> String {
    let name = "enet_build_info";
    let head = head(
        name,
        "gauge",
        "1; the labels are the versions of the exporter and of the loaded module, which is empty without one.",
    );
    // Remove characters that would need escapes in a label; no version has them.
    let is_version = |letter: &char| letter.is_ascii_alphanumeric() || ".+~-".contains(*letter);
    let module: String = module.chars().filter(is_version).collect();
    let version = env!("CARGO_PKG_VERSION");
    format!("{head}{name}{{version=\"{version}\",module=\"{module}\"}} 1\n")
}

fn listens(socket: &Socket) -> bool {
    socket.state == crate::sockets::State::Listen
}

fn loaded(loaded: bool) -> String {
    let name = "enet_module_loaded";
    let head = head(name, "gauge", "1 if the module enet is loaded, 0 if not.");
    format!("{head}{name} {}\n", u8::from(loaded))
}

fn of(sockets: &[Socket], protocol: Protocol) -> impl Iterator<Item = &Socket> {
    sockets
        .iter()
        .filter(move |socket| socket.protocol == protocol)
}

fn sum(sockets: &[Socket], name: &str, help: &str, value: impl Fn(&Socket) -> u64) -> String {
    let mut text = head(name, "gauge", help);
    for protocol in Protocol::ALL {
        let sum: u64 = of(sockets, protocol).map(&value).sum();
        text += &format!("{name}{{protocol=\"{}\"}} {sum}\n", protocol.name());
    }
    text
}

/// Returns the header lines of a metric. The help texts contain no backslash or line break, which
/// would need escapes.
fn head(name: &str, kind: &str, help: &str) -> String {
    format!("# HELP {name} {help}\n# TYPE {name} {kind}\n")
}

/// Converts `EspInNoSocket` to `esp_in_no_socket`.
fn snake_case(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        // Metric names consist of letters, digits and `_`.
        text.push(match letter {
            letter if letter.is_ascii_alphanumeric() => letter.to_ascii_lowercase(),
            _ => '_',
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::{self, tests::TEXT};
    use crate::mapped::Choice;
    use crate::sockets::tests::{sockets, EDP, ESP};

    fn text() -> String {
        let mut all = sockets(Protocol::Esp, ESP);
        all.extend(sockets(Protocol::Edp, EDP));
        let mapped = [
            ("redis-server", "esp", None),
            ("a \"b\\", "tcp", Some("refused")),
        ];
        let mapped = mapped.map(|(program, carrier, reason)| Sum {
            connections: 2,
            program: program.to_owned(),
            choice: Choice {
                carrier: carrier.to_owned(),
                reason: reason.map(str::to_owned),
                explanation: None,
            },
        });
        let counters = counters::parse(TEXT).unwrap();
        print("0.1.0+git1.abc\"\\", &counters, &all, &mapped)
    }

    #[test]
    fn counters_and_sockets_are_metrics() {
        let text = text();
        for line in [
            "enet_module_loaded 1",
            concat!(
                "enet_build_info{version=\"",
                env!("CARGO_PKG_VERSION"),
                "\",module=\"0.1.0+git1.abc\"} 1"
            ),
            "# TYPE enet_esp_ack_queue_waited_total counter",
            "enet_esp_ack_queue_waited_total 7",
            "enet_esp_in_dreams_total 4294967295",
            "enet_sockets{protocol=\"esp\",state=\"listen\"} 1",
            "enet_sockets{protocol=\"esp\",state=\"last-ack\"} 0",
            "enet_sockets{protocol=\"edp\",state=\"bound\"} 1",
            "enet_receive_queue_bytes{protocol=\"esp\"} 5000",
            "enet_accept_queue_connections{protocol=\"esp\"} 1",
            "enet_send_queue_bytes{protocol=\"esp\"} 19",
            "enet_send_queue_bytes{protocol=\"edp\"} 768",
            "enet_socket_drops{protocol=\"esp\"} 3",
            r#"enet_mapped_connections{program="redis-server",carrier="esp",reason=""} 2"#,
            r#"enet_mapped_connections{program="a \"b\\",carrier="tcp",reason="refused"} 2"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(!text.contains("protocol=\"esp\",state=\"bound\""), "{text}");
        assert!(without_module().ends_with("enet_module_loaded 0\n"));
    }

    /// The metrics of a new module without sockets.
    fn all_exported() -> String {
        let text = counters::names().map(|name| format!("{name} 0\n"));
        let counters = counters::parse(&text.collect::<String>()).unwrap();
        print("1", &counters, &[], &[])
    }

    /// Returns the expressions of the packaged alerts.
    fn expressions() -> Vec<&'static str> {
        let rules = include_str!("../../../docs/prometheus/enet.rules.yml");
        let lines = rules.lines().map(str::trim);
        lines
            .filter_map(|line| line.strip_prefix("expr: "))
            .collect()
    }

    /// The packaged alerts use only metrics that are exported. `mk/lint` tests when the alerts
    /// fire.
    #[test]
    fn alerts_name_metrics_that_are_exported() {
        let exported = all_exported();
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let named: Vec<_> = expressions()
            .into_iter()
            .flat_map(|line| line.split(|letter| !is_part(letter)))
            .filter(|word| word.starts_with("enet_"))
            .collect();
        assert!(named.len() > 10, "{named:?}");
        for name in named {
            let kind = format!("# TYPE {name} ");
            assert!(exported.contains(&kind), "nothing exports {name}");
        }
    }

    /// The packaged alerts use only labels of the metrics, or of the job that docs/operations.md
    /// configures.
    #[test]
    fn alerts_name_labels_that_are_exported() {
        let exported = all_exported();
        let operations = include_str!("../../../docs/operations.md");
        let mut checked = 0;
        for expression in expressions() {
            for (before, rest) in expression
                .match_indices('{')
                .map(|(at, _)| expression.split_at(at))
            {
                let name =
                    before.rsplit(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
                let name = name.into_iter().next().unwrap();
                let (label, value) = rest[1..].split_once(['=', '!', '~']).unwrap();
                if name == "up" {
                    let job = value.trim_matches('"').split('"').next().unwrap();
                    assert_eq!(label, "job");
                    let configured = format!("  - job_name: {job}\n");
                    assert!(operations.contains(&configured), "no {configured:?}");
                } else {
                    let mut samples = exported
                        .lines()
                        .filter(|line| line.starts_with(&format!("{name}{{")));
                    let sample = samples
                        .next()
                        .unwrap_or_else(|| panic!("{name} has no labels"));
                    assert!(
                        sample.contains(&format!("{label}=\"")),
                        "{name} has no label {label}"
                    );
                }
                checked += 1;
            }
        }
        assert!(checked >= 3, "{checked}");
    }

    /// Each metric's help and type appear once, before its samples, as the format requires.
    #[test]
    fn the_format_is_kept() {
        let text = text();
        let mut seen = std::collections::HashSet::new();
        let mut current = String::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                current = help.split(' ').next().unwrap().to_owned();
                assert!(seen.insert(current.clone()), "{current} comes twice");
                let kind = lines.next().unwrap();
                assert!(kind.starts_with(&format!("# TYPE {current} ")), "{kind}");
                continue;
            }
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert_eq!(name.split('{').next().unwrap(), current);
            value.parse::<u64>().unwrap();
        }
    }
}
