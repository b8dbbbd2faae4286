// SPDX-License-Identifier: GPL-2.0-only

//! Runs packaging/rack with substitutes for ssh, apt, modprobe and systemctl. Each substitute
//! records its arguments.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// The result of a run of `packaging/rack`.
struct Outcome {
    is_good: bool,
    said: String,
    complaints: String,
    /// The arguments of the substitutes, a line for each call.
    log: String,
}

/// A directory with the substitutes.
struct Stage(TempDir);

impl Stage {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn program(&self, name: &str, body: &str) {
        let place = self.0.path().join(name);
        fs::write(&place, format!("#!/bin/bash\n{body}\n")).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn rack(&self, hosts: &str) -> Outcome {
        let place = |name: &str| self.0.path().join(name);
        fs::write(place("hosts"), hosts).unwrap();
        let _ = fs::remove_file(place("log"));
        let path = std::env::var("PATH").unwrap();
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let output = Command::new(project.join("packaging/rack"))
            .arg(place("hosts"))
            .args(["http://www/enet", "redis-server"])
            .env("PATH", format!("{}:{path}", self.0.path().display()))
            .env("LOG", place("log"))
            .env("PLACE", self.0.path())
            .env("VERSION", "0.1.0")
            .output()
            .unwrap();
        Outcome {
            is_good: output.status.success(),
            said: String::from_utf8(output.stdout).unwrap(),
            complaints: String::from_utf8(output.stderr).unwrap(),
            log: fs::read_to_string(place("log")).unwrap_or_default(),
        }
    }
}

/// Returns a stage whose ssh answers for the hosts. Each host has three addresses: a bridge's,
/// which is the same on every host, and two that end in the number of the host's name. Requests to
/// 192.168.0.2 and to 10.0.0.3 fail.
fn answering() -> Stage {
    let stage = Stage::new();
    stage.program(
        "ssh",
        r#"host=$2
shift 2
if [ "$1" = enet ]; then
    echo "$host $*" >>"$LOG"
    [ "${!#}" != 10.0.0.3 ] && [ "${!#}" != 192.168.0.2 ]
else
    echo "$host ${1##*; }" >>"$LOG"
    [ "$host" != broken ] && echo "0.1.0 172.17.0.1 192.168.0.${host#h} 10.0.0.${host#h} "
fi"#,
    );
    stage
}

#[test]
fn a_rack_is_installed_host_by_host_until_one_fails() {
    let stage = answering();
    let installs = "on_host http://www/enet 0.1.0 redis-server";
    let outcome = stage.rack("h1\nbroken\nh2\n");
    assert!(!outcome.is_good && outcome.said == "h1: enet 0.1.0\n");
    assert!(outcome.complaints.contains("broken failed"));
    let wanted = format!("h1 {installs}\nbroken {installs}\n");
    assert_eq!(outcome.log, wanted);
}

/// The first address that `hostname -I` prints may belong to a network that the other hosts do not
/// reach.
#[test]
fn a_host_answers_at_one_of_its_addresses() {
    let stage = answering();
    let installs = "on_host http://www/enet 0.1.0 redis-server";
    let outcome = stage.rack("h1\n# h9\n\nh2\n");
    assert!(outcome.is_good, "{}", outcome.complaints);
    assert_eq!(outcome.said, "h1: enet 0.1.0\nh2: enet 0.1.0\n");
    let pings = "h1 enet ping -c 2 192.168.0.2\nh1 enet ping -c 2 10.0.0.2\n";
    let wanted = format!("h1 {installs}\nh2 {installs}\n{pings}");
    assert_eq!(outcome.log, wanted);
    let outcome = stage.rack("h1\nh2 10.0.0.9");
    assert!(outcome.is_good, "{}", outcome.complaints);
    assert!(outcome
        .log
        .ends_with("redis-server\nh1 enet ping -c 2 10.0.0.9\n"));
    let outcome = stage.rack("h1\nh3 10.0.0.3\nh2\n");
    assert!(!outcome.is_good);
    let words = "h1 gets no answer from h3 (10.0.0.3)";
    assert!(outcome.complaints.contains(words), "{}", outcome.complaints);
}

/// Returns a stage with one host, on which the module is loaded and the packages `installed` are
/// installed. Files in the stage's directory, such as `no-package`, make the host's programs fail.
fn hosting(installed: &str) -> Stage {
    let stage = Stage::new();
    stage.program(
        "ssh",
        r#"words=${3//\/etc\/apt/$PLACE/apt}
exec bash -c "${words//\/sys\/module/$PLACE}""#,
    );
    stage.program(
        "apt-get",
        r#"echo "apt-get $*" >>"$LOG"
case " $* " in
*" update "*) [ ! -e "$PLACE/no-repository" ] ;;
*) [ ! -e "$PLACE/no-package" ] ;;
esac"#,
    );
    stage.program(
        "dpkg-query",
        &format!(
            r#"case " {installed} " in *" ${{!#}} "*) echo -n installed ;; *) exit 1 ;; esac"#
        ),
    );
    stage.program(
        "modprobe",
        r#"echo "modprobe $*" >>"$LOG"
if [ "$1" = -r ]; then
    [ ! -e "$PLACE/is-busy" ] && rm -r "$PLACE/enet"
else
    mkdir -p "$PLACE/enet" && echo 0.1.0 >"$PLACE/enet/version"
fi"#,
    );
    for name in ["systemctl", "sysctl"] {
        stage.program(name, &format!(r#"echo "{name} $*" >>"$LOG""#));
    }
    stage.program("sleep", "true");
    stage.program("uname", "echo 7.3.4");
    stage.program("hostname", "echo 10.0.0.1");
    fs::create_dir_all(stage.0.path().join("apt/sources.list.d")).unwrap();
    fs::create_dir(stage.0.path().join("enet")).unwrap();
    stage
}

/// Returns the packages that the run of `apt-get install` names.
fn packages(outcome: &Outcome) -> Vec<&str> {
    let mut lines = outcome.log.lines();
    let line = lines.find(|line| line.contains(" install ")).unwrap();
    line.split(' ')
        .filter(|word| word.ends_with("=0.1.0"))
        .collect()
}

#[test]
fn a_host_gets_what_it_has_in_the_new_version() {
    let stage = hosting("enet-tools netgauge openmpi-btl-esp");
    let outcome = stage.rack("h1\n");
    assert!(outcome.is_good, "{}", outcome.complaints);
    assert_eq!(outcome.said, "h1: enet 0.1.0\n");
    let wanted = [
        "enet-tools=0.1.0",
        "enet-modules-7.3.4=0.1.0",
        "netgauge=0.1.0",
        "openmpi-btl-esp=0.1.0",
    ];
    assert_eq!(packages(&outcome), wanted);
    let log = &outcome.log;
    let end = "systemctl restart enet-policy\nsysctl -q --system\nsystemctl start redis-server\n";
    assert!(log.ends_with(end), "{log}");
    let source = fs::read_to_string(stage.0.path().join("apt/sources.list.d/enet.list"));
    assert_eq!(source.unwrap(), "deb [trusted=yes] http://www/enet ./\n");
}

/// To install enet-modules, apt would remove enet-dkms without asking.
#[test]
fn a_host_with_dkms_keeps_it() {
    let outcome = hosting("enet-tools enet-dkms").rack("h1\n");
    assert!(outcome.is_good, "{}", outcome.complaints);
    assert_eq!(packages(&outcome), ["enet-tools=0.1.0", "enet-dkms=0.1.0"]);
}

#[test]
fn services_start_again_after_a_failure() {
    for obstacle in ["no-package", "is-busy"] {
        let stage = hosting("enet-tools");
        fs::write(stage.0.path().join(obstacle), "").unwrap();
        let outcome = stage.rack("h1\nh2\n");
        let log = &outcome.log;
        assert!(!outcome.is_good, "{obstacle}: {log}");
        assert!(log.contains("systemctl stop redis-server\n"), "{obstacle}");
        let starts = log.ends_with("systemctl start redis-server\n");
        assert!(starts, "{obstacle}: {log}");
        assert_eq!(log.matches("systemctl stop").count(), 1, "{log}");
        assert!(stage.0.path().join("enet").exists(), "{obstacle}");
    }
}

#[test]
fn a_repository_that_does_not_answer_stops_nothing() {
    let stage = hosting("enet-tools");
    fs::write(stage.0.path().join("no-repository"), "").unwrap();
    let outcome = stage.rack("h1\n");
    assert!(!outcome.is_good);
    let update = "apt-get -qq -o APT::Update::Error-Mode=any update\n";
    assert_eq!(outcome.log, update);
}
