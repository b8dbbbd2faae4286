// SPDX-License-Identifier: GPL-2.0-only

//! Tests the program `enet`: its lists, counters and metrics, and the faults that `enet ping`
//! diagnoses.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Child;

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use serde_json::Value;

use guest::prelude::*;
use guest::program::{start, wait_for_word};

scenarios! {
    direct enet_ss_lists_sockets_with_their_peers = list;
    direct enet_ss_tells_a_sockets_processes_and_counters = owners;
    direct enet_stats_tells_what_is_refused = counters;
    direct enet_exporter_speaks_prometheus = exporter;
    direct enet_ping_is_answered_by_a_good_peer = good_peer, within(120);
    direct enet_ping_prints_a_summary_when_interrupted = interrupted;
    direct enet_ping_prints_a_summary_when_the_device_changes = changed_device;
    direct enet_takes_interfaces_by_number_and_alternative_name = interface_names;
    direct enet_ping_refuses_addresses_of_no_host_once = no_hosts;
    guest enet_ping_says_that_the_module_is_not_loaded_here = no_module_here;
    direct enet_ping_says_what_is_wrong_with_the_device = bad_device;
    direct enet_ping_says_that_the_peer_lacks_the_module = no_module_there;
    direct enet_ping_says_that_a_filter_drops_frames = filters;
    direct enet_ping_says_that_nobody_is_there = nobody;
}

/// The exit code and the output of a run of `enet`.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    output: String,
    complaints: String,
}

/// Runs `enet` with `arguments` in this thread's network namespace.
fn enet(arguments: &str) -> Result<Ended> {
    let output = Command::new("enet")
        .args(arguments.split_whitespace())
        .output()
        .context("starting enet")?;
    Ok(Ended {
        code: output.status.code(),
        output: String::from_utf8(output.stdout)?,
        complaints: String::from_utf8(output.stderr)?,
    })
}

/// Runs `enet` on `host`, checks that it succeeds, and returns its output.
fn printed(host: &Host, arguments: &str) -> Result<String> {
    let ended = host.namespace.within(|| enet(arguments))??;
    ensure!(ended.code == Some(0), "enet {arguments}: {ended:?}");
    Ok(ended.output)
}

/// Checks that `enet` exited with `code`, and that its complaints contain each of `words`.
fn complains(ended: &Ended, code: i32, words: &[&str]) -> Outcome {
    same(ended.code, Some(code), &format!("{ended:?}"))?;
    for word in words {
        ensure!(
            ended.complaints.contains(word),
            "{word:?} is missing: {ended:?}"
        );
    }
    Ok(())
}

/// Runs `enet ping` on `host`, with two quick requests. Checks the exit code and the complaints
/// with [`complains`].
fn ping_complains(host: &Host, target: &str, code: i32, words: &[&str]) -> Outcome {
    let arguments = format!("ping -c 2 -i 0.1 -W 0.5 {target}");
    let ended = host.namespace.within(|| enet(&arguments))??;
    complains(&ended, code, words).with_context(|| target.to_owned())
}

/// Gives the hosts IP addresses, and lets them find each other by ARP.
///
/// # Errors
/// When the kernel refuses an address.
pub fn give_addresses(lab: &Lab) -> Outcome {
    for (host, number) in [(&lab.a, 1), (&lab.b, 2)] {
        host.namespace
            .ip(&format!("address add 10.0.0.{number}/24 dev {DEVICE}\n"))?;
    }
    Ok(())
}

fn list(lab: &Lab) -> Outcome {
    let listener = lab.b.esp_listener(2806, 4)?;
    let (client, _server) = lab.esp_pair_through(&listener, 2806)?;
    let _datagrams = lab.edp_pair(2805)?;
    let port = client.local_address()?.port;
    let connection = [
        "esp",
        "stream",
        "established",
        "0",
        "0",
        &format!("02:00:00:00:00:01%{DEVICE}:{port}"),
        &format!("02:00:00:00:00:02%{DEVICE}:2806"),
        "0",
        "root",
    ];
    let text = printed(&lab.a, "ss --esp --no-header")?;
    let fields: Vec<_> = text.split_whitespace().collect();
    ensure!(
        fields.len() == 10 && fields[..9] == connection,
        "a connection is listed as {text:?}"
    );

    let text = printed(&lab.b, "ss -l")?;
    ensure!(
        text.lines().count() == 2 && text.contains("listen") && text.contains(":2806"),
        "the listener is listed as {text:?}"
    );
    let text = printed(&lab.b, "ss -aH")?;
    ensure!(text.lines().count() == 3, "all sockets are {text:?}");
    let text = printed(&lab.b, "ss -aH --state established --port 2806");
    ensure!(text.is_err(), "-a and --state together: {text:?}");
    let text = printed(&lab.b, "ss -H --state established --port 2806")?;
    ensure!(text.lines().count() == 1, "connections are {text:?}");

    let text = printed(&lab.a, &format!("ss --edp --json --interface {DEVICE}"))?;
    let json: Value = serde_json::from_str(&text)?;
    let peer = &json[0]["peer"];
    ensure!(
        json[0]["state"] == "connected"
            && peer["mac"] == "02:00:00:00:00:02"
            && peer["interface"] == DEVICE
            && peer["port"] == 2805,
        "JSON has {text:?}"
    );
    ensure!(json.get(1).is_none(), "a socket too many: {text:?}");
    let ended = lab.a.namespace.within(|| enet("ss -a -i nope0"))??;
    complains(&ended, 1, &["no interface nope0", "ip link"])
}

/// `enet ss` shows the process and the counters of each socket. `enet` can read the counters
/// because it runs as root, and so may trace this process, which owns the sockets.
fn owners(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(2806)?;
    client.send_all(b"one packet")?;
    server.receive_exact(&mut [0; 10])?;
    let _datagrams = lab.edp_pair(2805)?;
    let text = printed(&lab.a, "ss --processes --counters --json")?;
    let json: Value = serde_json::from_str(&text)?;
    let own = Value::from(std::process::id());
    let sockets = json.as_array().context("no array")?;
    ensure!(sockets.len() == 2, "sockets are {text}");
    for socket in sockets {
        ensure!(socket["processes"][0]["pid"] == own, "processes: {text}");
        ensure!(socket["processes"].get(1).is_none(), "processes: {text}");
    }
    // An acknowledgement may arrive after `enet` has read the counters and before this process
    // reads them. So both read them again until they agree.
    eventually("the counters that the owner reads", || {
        let json: Value = serde_json::from_str(&printed(&lab.a, "ss --esp -c --json")?)?;
        let told = &json[0]["counters"];
        let own = client.counters(8)?;
        let names = ["pkt_tx", "pkt_rtx", "tx_err", "pkt_rx"];
        Ok(names
            .iter()
            .zip(own)
            .all(|(name, value)| told[name] == value))
    })?;
    ensure!(sockets[1]["counters"]["pkt_tx"] == 0, "datagrams: {text}");
    let text = printed(&lab.a, "ss -PcH --esp")?;
    let lines: Vec<_> = text.lines().collect();
    ensure!(
        lines.len() == 2 && lines[0].contains(&format!("[{own}]:")) && lines[1].contains("pkt_tx "),
        "in words: {text}"
    );
    Ok(())
}

fn counters(lab: &Lab) -> Outcome {
    let text = printed(&lab.a, "stats")?;
    ensure!(text.contains("zero"), "a new host has counted {text:?}");
    let socket = lab.b.edp()?;
    for _ in 0..3 {
        socket.send_to(b"refused", 0, &lab.b.to(&lab.a, 4000))?;
    }
    lab.a.await_counter("EdpInNoSocket", 3)?;
    let text = printed(&lab.a, "stats")?;
    let words: Vec<_> = text.split_whitespace().collect();
    ensure!(
        words[..2] == ["3", "EdpInNoSocket"] && text.contains("no socket has the destination port"),
        "three refused datagrams are {text:?}"
    );
    let all = printed(&lab.a, "stats --all")?;
    let file = lab.a.namespace.proc_net("enet")?;
    ensure!(
        all.lines().count() == file.lines().count() && !all.contains("does not know"),
        "{file:?} is explained as {all:?}"
    );
    let json: Value = serde_json::from_str(&printed(&lab.a, "stats --json")?)?;
    ensure!(
        json[0]["name"] == "EdpInNoSocket" && json[0]["value"] == 3,
        "JSON has {json}"
    );
    Ok(())
}

/// A running exporter. Dropping this value ends it.
struct Exporter(Child);

impl Drop for Exporter {
    fn drop(&mut self) {
        // An error of `kill` is ignored, because the program may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Requests `path` from the exporter on `host`, and returns the response.
fn scraped(host: &Host, path: &str) -> Result<String> {
    let mut stream = host
        .namespace
        .within(|| TcpStream::connect("127.0.0.1:9817"))?
        .context("connecting to the exporter")?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

fn exporter(lab: &Lab) -> Outcome {
    let _listener = lab.a.esp_listener(2805, 4)?;
    lab.b
        .edp()?
        .send_to(b"refused", 0, &lab.b.to(&lab.a, 4000))?;
    lab.a.await_counter("EdpInNoSocket", 1)?;
    let mut command = Command::new("enet");
    command.arg("exporter");
    let mut exporter = Exporter(start((&lab.a, command), Stdio::null(), Stdio::null())?);
    // The program's later output is ignored.
    drop(wait_for_word(&mut exporter.0, "serving metrics")?);

    let text = scraped(&lab.a, "/metrics")?;
    let (head, metrics) = text.split_once("\r\n\r\n").context("no head")?;
    ensure!(
        head.starts_with("HTTP/1.0 200 OK\r\n") && head.contains("text/plain; version=0.0.4"),
        "the head is {head:?}"
    );
    for line in [
        "# TYPE enet_edp_in_no_socket_total counter",
        "enet_module_loaded 1",
        "enet_edp_in_no_socket_total 1",
        "enet_sockets{protocol=\"esp\",state=\"listen\"} 1",
        "enet_sockets{protocol=\"edp\",state=\"bound\"} 0",
    ] {
        ensure!(
            metrics.lines().any(|found| found == line),
            "{line:?} is not in {metrics:?}"
        );
    }
    let missing = scraped(&lab.a, "/secret")?;
    ensure!(missing.starts_with("HTTP/1.0 404 "), "{missing:?}");
    let once = printed(&lab.a, "exporter --once")?;
    ensure!(once == metrics, "--once prints {once:?}, not {metrics:?}");
    Ok(())
}

fn good_peer(lab: &Lab) -> Outcome {
    give_addresses(lab)?;
    let own = format!("{}%{DEVICE}", print_mac(lab.a.mac));
    let peer = format!("{}%{DEVICE}", print_mac(lab.b.mac));
    // The first target makes the kernel resolve the address. The last two are the host's own
    // addresses, which the host answers itself.
    let targets = ["10.0.0.2", &peer, "10.0.0.1", &own];
    for target in targets {
        let text = printed(&lab.a, &format!("ping -c 3 -i 0.05 -W 10 {target}"))?;
        ensure!(
            text.contains("3 sent, 3 answered, 0% lost; time min/avg/max "),
            "{target}: {text:?}"
        );
        ensure!(
            text.lines().any(|line| line.starts_with("peer: version ")
                && line.contains("takes mapped connections")),
            "{target}: {text:?}"
        );
        let answers = text.lines().filter(|line| line.contains(" bytes from "));
        ensure!(answers.count() == 3, "{target}: {text:?}");
    }
    lab.b.await_counter("EdpInEcho", 6)?;
    let largest = format!("ping -c 1 -W 10 -I {DEVICE} -s 1494 10.0.0.2");
    ensure!(
        printed(&lab.a, &largest)?.contains("1494 bytes from 10.0.0.2"),
        "the largest request is not answered"
    );
    ping_complains(&lab.a, "-s 1495 10.0.0.2", 2, &["--size 1494"])?;
    // The first requests are lost, because they are too large for the peer's device. Then the
    // kernel knows the peer's limit.
    lab.b
        .namespace
        .ip(&format!("link set {DEVICE} mtu 1000\n"))?;
    let ended = (lab.a.namespace).within(|| enet("ping -c 60 -i 0.5 -s 1400 10.0.0.2"))??;
    complains(
        &ended,
        2,
        &["1400 bytes", "its MTU is smaller", "--size 994"],
    )
}

fn interrupted(lab: &Lab) -> Outcome {
    let mut command = Command::new("enet");
    let target = format!("{}%{DEVICE}", print_mac(lab.b.mac));
    command.args(["ping", "-c", "0", "-i", "0.05", &target]);
    let mut ping = start((&lab.a, command), Stdio::null(), Stdio::piped())?;
    let mut lines = BufReader::new(ping.stdout.take().context("no output")?).lines();
    // The heading, and two answers.
    for _ in 0..3 {
        lines.next().context("it ended early")??;
    }
    kill(Pid::from_raw(ping.id().try_into()?), Signal::SIGINT).context("kill")?;
    let last = lines.last().context("no summary")??;
    let status = ping.wait()?;
    ensure!(
        status.code() == Some(0) && last.contains(" answered, "),
        "{status}, and the last line is {last:?}"
    );
    Ok(())
}

/// Starts an endless ping by host A, and changes the device after two answers. Checks that the ping
/// ends with a summary, and returns its complaint.
fn ping_until(lab: &Lab, changes: &[&str]) -> Result<String> {
    let mut command = Command::new("enet");
    let target = format!("{}%{DEVICE}", print_mac(lab.b.mac));
    command.args(["ping", "-c", "0", "-i", "0.05", &target]);
    command.stderr(Stdio::piped());
    let mut ping = start((&lab.a, command), Stdio::null(), Stdio::piped())?;
    let mut lines = BufReader::new(ping.stdout.take().context("no output")?).lines();
    // The heading, and two answers.
    for _ in 0..3 {
        lines.next().context("it ended early")??;
    }
    for change in changes {
        lab.a.namespace.ip(&format!("{change}\n"))?;
    }
    let last = lines.last().context("no summary")??;
    let mut complaint = String::new();
    let mut errors = ping.stderr.take().context("no standard error")?;
    errors.read_to_string(&mut complaint)?;
    let status = ping.wait()?;
    ensure!(
        status.code() == Some(0) && last.contains(" answered, "),
        "{status}, and the last line is {last:?}: {complaint}"
    );
    Ok(complaint)
}

fn changed_device(lab: &Lab) -> Outcome {
    let down = format!("link set {DEVICE} down");
    let complaint = ping_until(lab, &[&down])?;
    let hint = format!("{DEVICE} is down: set it up with `ip link set {DEVICE} up`");
    ensure!(complaint.contains(&hint), "{complaint}");
    lab.a.namespace.ip(&format!("link set {DEVICE} up\n"))?;
    await_carrier(&lab.a, true)?;
    // The hint has the device's new name. The device is renamed first, because a request may leave
    // between the two changes.
    let rename = format!("link set {DEVICE} name other0");
    let complaint = ping_until(lab, &[&rename, "link set other0 down"])?;
    ensure!(complaint.contains("ip link set other0 up"), "{complaint}");
    Ok(())
}

fn interface_names(lab: &Lab) -> Outcome {
    let long = "n".repeat(127);
    for name in ["short0", &long] {
        let add = format!("link property add dev {DEVICE} altname {name}\n");
        lab.a.namespace.ip(&add)?;
    }
    let index = lab
        .a
        .namespace
        .within(|| sockaddr_en::interface_index(DEVICE))??;
    let _bound = lab.a.edp_bound(2805)?;
    for name in ["short0", &long, &index.to_string()] {
        let target = format!("{}%{name}", print_mac(lab.b.mac));
        let text = printed(&lab.a, &format!("ping -c 1 -W 10 {target}"))?;
        ensure!(text.contains("1 sent, 1 answered"), "{name}: {text}");
        let by_option = format!("ping -c 1 -W 10 -I {name} {}", print_mac(lab.b.mac));
        printed(&lab.a, &by_option)?;
        let text = printed(&lab.a, &format!("ss -a -i {name}"))?;
        let named = format!("%{DEVICE}:2805");
        ensure!(text.contains(&named), "{name}: {text}");
    }
    let peer = print_mac(lab.b.mac);
    ping_complains(&lab.a, &format!("{peer}%4711"), 2, &["no interface 4711"])
}

fn no_hosts(lab: &Lab) -> Outcome {
    give_addresses(lab)?;
    for (target, words) in [
        ("10.0.0.255", "10.0.0.255 is not the IP address of one host"),
        ("::", ":: is not the IP address of one host"),
        (
            &format!("ff02::1%{DEVICE}"),
            "ff02::1 is not the IP address",
        ),
        ("fe80::1", "as in fe80::1%eth0"),
        (
            &format!("02-00-00-00-00-02%{DEVICE}"),
            "write 02:00:00:00:00:02%",
        ),
    ] {
        let ended = (lab.a.namespace).within(|| enet(&format!("ping {target}")))??;
        complains(&ended, 2, &[words])?;
        let told = ended.complaints.matches(words).count();
        same(told, 1, &ended.complaints)?;
    }
    let text = printed(&lab.a, "ping -c 1 -W 10 ::ffff:10.0.0.2")?;
    ensure!(text.contains("from 10.0.0.2 ("), "{text}");
    Ok(())
}

/// Disables the kernel's module autoloading. Dropping this value restores it.
#[derive(Debug)]
pub struct NoAutoload(String);

const MODPROBE: &str = "/proc/sys/kernel/modprobe";

impl NoAutoload {
    /// Disables autoloading.
    ///
    /// # Errors
    /// When the kernel's setting cannot be written.
    pub fn begin() -> Result<Self> {
        let program = fs::read_to_string(MODPROBE).context(MODPROBE)?;
        fs::write(MODPROBE, "/bin/false").context(MODPROBE)?;
        Ok(Self(program))
    }
}

impl Drop for NoAutoload {
    fn drop(&mut self) {
        if let Err(error) = fs::write(MODPROBE, &self.0) {
            note(&format!("{MODPROBE} cannot be restored: {error}"));
        }
    }
}

/// Hides the installed modules. Dropping this value shows them again.
struct Hidden;

const MODULES: &str = "/lib/modules";
const ELSEWHERE: &str = "/lib/modules.hidden";

impl Hidden {
    fn begin() -> Result<Self> {
        fs::rename(MODULES, ELSEWHERE).context(MODULES)?;
        Ok(Self)
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        if let Err(error) = fs::rename(ELSEWHERE, MODULES) {
            note(&format!("{MODULES} cannot be restored: {error}"));
        }
    }
}

fn no_module_here() -> Outcome {
    let _restore = Restore;
    // The host is made before autoloading is disabled, because its device may need a module too.
    let host = Host::alone([2, 0, 0, 0, 0, 9])?;
    let _autoload = NoAutoload::begin()?;
    module::unload()?;
    complains(
        &enet("ping 10.0.0.2")?,
        2,
        &["not loaded on this host", "modprobe enet"],
    )?;
    for command in ["ss", "stats"] {
        complains(&enet(command)?, 1, &["not loaded", "modprobe enet"])?;
    }
    {
        // This is the state after an update of the kernel's package: modprobe finds no module for
        // the running kernel.
        let _hidden = Hidden::begin()?;
        for (command, status) in [
            ("ping 10.0.0.2", 2),
            ("ss", 1),
            ("stats", 1),
            ("run -r true", 125),
        ] {
            let ended = enet(command)?;
            complains(
                &ended,
                status,
                &["not loaded", "install the package enet-modules-"],
            )?;
            ensure!(!ended.complaints.contains("modprobe"), "{ended:?}");
        }
    }
    let exported = enet("exporter --once")?;
    ensure!(
        exported.code == Some(0) && exported.output.ends_with("\nenet_module_loaded 0\n"),
        "without the module: {exported:?}"
    );
    // The program reports a wrong command line, and not the missing module, because loading the
    // module would not help.
    for (arguments, words) in [
        ("ping 02:00:00:00:00:02:veth0", "02:00:00:00:00:02%veth0"),
        ("ping 02:00:00:00:00:02", "needs an interface"),
        ("ss -i nope0", "no interface nope0"),
    ] {
        let ended = enet(arguments)?;
        complains(
            &ended,
            if arguments.starts_with("ss") { 1 } else { 2 },
            &[words],
        )?;
        ensure!(!ended.complaints.contains("not loaded"), "{ended:?}");
    }
    // 45 is the number of AF_MCTP, which no other module registers here.
    module::load(&["family=45"])?;
    let target = format!("{}%{DEVICE}", print_mac(host.mac));
    ping_complains(&host, &target, 2, &["loaded here", "--family"])?;
    printed(&host, &format!("ping -c 1 -W 10 --family 45 {target}")).map(drop)
}

/// Waits until the device of `host` has a carrier, or, if `wanted` is false, until it has none.
fn await_carrier(host: &Host, wanted: bool) -> Outcome {
    eventually("the carrier", || {
        let state = host.namespace.run("ip", &["link", "show", DEVICE])?;
        Ok(state.contains("LOWER_UP") == wanted)
    })
}

fn bad_device(lab: &Lab) -> Outcome {
    give_addresses(lab)?;
    let peer = print_mac(lab.b.mac);
    let on = |device: &str| format!("{peer}%{device}");
    ping_complains(&lab.a, &peer, 2, &["needs an interface"])?;
    ping_complains(&lab.a, &on("eth7"), 2, &["no interface eth7"])?;
    ping_complains(&lab.a, &on("lo"), 2, &["lo is not an Ethernet device"])?;
    ping_complains(&lab.a, "127.0.0.1", 2, &["lo is not an Ethernet device"])?;

    lab.b.namespace.ip(&format!("link set {DEVICE} down\n"))?;
    await_carrier(&lab.a, false)?;
    let words = format!("{DEVICE} is up but has no carrier");
    for target in [&on(DEVICE), "10.0.0.2"] {
        ping_complains(&lab.a, target, 2, &[&words])?;
    }
    lab.a.namespace.ip(&format!("link set {DEVICE} down\n"))?;
    let words = format!("{DEVICE} is down: set it up with `ip link set {DEVICE} up`");
    for target in [&on(DEVICE), "10.0.0.2"] {
        ping_complains(&lab.a, target, 2, &[&words])?;
    }
    Ok(())
}

/// One kernel serves both hosts, so a filter that drops both protocols' frames stands in for a
/// missing module.
fn no_module_there(lab: &Lab) -> Outcome {
    give_addresses(lab)?;
    lab.b.prepare_filters()?;
    for ethertype in [ETH_P_EDP, ETH_P_ESP] {
        lab.b.drop_frames("ingress", ethertype)?;
    }
    let check = ["lsmod | grep enet", "enet stats --all"];
    let there = ["10.0.0.2", "is there", "answers ARP"];
    ping_complains(&lab.a, "10.0.0.2", 1, &[&there[..], &check].concat())?;
    // By now the neighbour table has an IP address for this Ethernet address, so the complaint can
    // name the IP address.
    let target = format!("{}%{DEVICE}", print_mac(lab.b.mac));
    ping_complains(&lab.a, &target, 1, &[&there[..], &check].concat())?;
    // For a neighbour that was set by hand, the kernel sends no ARP request.
    lab.a.namespace.ip(&format!(
        "neighbour replace 10.0.0.7 lladdr 02:00:00:00:00:07 dev {DEVICE} nud permanent\n"
    ))?;
    let by_hand = ["set by hand", "ip neighbour show 10.0.0.7"];
    ping_complains(&lab.a, "10.0.0.7", 1, &[&by_hand[..], &check].concat())?;
    // No IP address is known for this Ethernet address.
    let target = format!("02:00:00:00:00:77%{DEVICE}");
    let unknown = ["no IP address is known", "not loaded there", "filter"];
    ping_complains(&lab.a, &target, 1, &[&unknown[..], &check].concat())
}

fn filters(lab: &Lab) -> Outcome {
    give_addresses(lab)?;
    let target = format!("{}%{DEVICE}", print_mac(lab.b.mac));
    lab.b.prepare_filters()?;
    lab.b.drop_frames("ingress", ETH_P_EDP)?;
    let elsewhere = ["has the module", "answers ESP", "edp_type"];
    ping_complains(&lab.a, "10.0.0.2", 1, &elsewhere)?;

    lab.a.prepare_filters()?;
    lab.a.drop_frames("egress", ETH_P_EDP)?;
    let here = format!("tc filter show dev {DEVICE} egress");
    let refused = ["This host refuses to send", &here];
    ping_complains(&lab.a, "10.0.0.2", 1, &refused)?;
    lab.a
        .namespace
        .run("tc", &["qdisc", "del", "dev", DEVICE, "clsact"])?;

    // netem loses frames without an error.
    lab.a.queue("add", &["netem", "loss", "100%"])?;
    let lost = ["were lost in this host", "0 frames of 2"];
    ping_complains(&lab.a, &target, 1, &lost)
}

fn nobody(lab: &Lab) -> Outcome {
    give_addresses(lab)?;
    ping_complains(&lab.a, "10.0.0.9", 1, &["nobody answers ARP for 10.0.0.9"])?;
    // A host that was reachable some time ago.
    lab.a.namespace.ip(&format!(
        "neighbour replace 10.0.0.8 lladdr 02:00:00:00:00:08 dev {DEVICE} nud stale\n"
    ))?;
    let gone = ["Nobody is there", "ip neighbour show 10.0.0.8"];
    ping_complains(&lab.a, "10.0.0.8", 1, &gone)?;
    // An address that no route leads to.
    ping_complains(&lab.a, "192.0.2.1", 2, &["ip route get 192.0.2.1"])
}
