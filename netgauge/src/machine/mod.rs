// SPDX-License-Identifier: MIT OR Apache-2.0

//! Facts about a host that matter to results: kernel, processors, device, settings.
//!
//! Unknown facts are left out.

mod ethtool;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;

use serde::{Deserialize, Serialize};
use sockaddr_en::interface_mtu;

/// The directory of ESP's parameters in this network namespace.
const ESP_PARAMETERS: &str = "/proc/sys/esp";

/// The facts about a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Version of netgauge on the host.
    pub netgauge: String,
    /// The host's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Release of the host's kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Model of the host's processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processor: Option<String>,
    /// Number of processors that netgauge may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processors: Option<usize>,
    /// The host's device that leads to the other host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<Device>,
    /// TCP's congestion control on the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// Version of the module `enet`, if it is loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enet: Option<String>,
    /// ESP's parameters, if the module `enet` is loaded.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub esp: BTreeMap<String, String>,
}

/// The facts about a network device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// The device's name.
    pub name: String,
    /// The device's driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Payload of the device's largest frame, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Speed of the device's link, Mbit/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mbit_per_s: Option<u32>,
    /// The names of the offloads that are on, among tso, gso and gro.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offloads: Option<Vec<String>>,
}

impl Machine {
    /// Returns the facts of this host, as seen from this process's network namespace. `device` is
    /// the name of the device in use, if there is one.
    pub fn here(device: Option<&str>) -> Self {
        Self {
            netgauge: env!("CARGO_PKG_VERSION").to_owned(),
            host: read("/proc/sys/kernel/hostname"),
            kernel: read("/proc/sys/kernel/osrelease"),
            processor: processor(),
            processors: thread::available_parallelism().ok().map(usize::from),
            device: device.map(Device::here),
            congestion_control: read("/proc/sys/net/ipv4/tcp_congestion_control"),
            enet: module(),
            esp: parameters(Path::new(ESP_PARAMETERS)),
        }
    }

    /// Returns the host's facts as short texts for people.
    pub fn facts(&self) -> Vec<String> {
        let mut facts = Vec::new();
        facts.extend(self.host.clone());
        facts.extend(self.kernel.as_ref().map(|kernel| format!("Linux {kernel}")));
        facts.extend(match (self.processors, &self.processor) {
            (Some(count), Some(model)) => Some(format!("{count} x {model}")),
            (Some(count), None) => Some(format!("{count} processors")),
            (None, model) => model.clone(),
        });
        facts.extend(self.device.iter().flat_map(Device::facts));
        let control = self.congestion_control.as_ref();
        facts.extend(control.map(|control| format!("TCP {control}")));
        facts.extend(self.enet.as_ref().map(|version| format!("enet {version}")));
        let parameter = |(name, value): (&String, &String)| format!("esp.{name}={value}");
        facts.extend(self.esp.iter().map(parameter));
        facts.push(format!("netgauge {}", self.netgauge));
        facts
    }
}

impl Device {
    fn here(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            driver: ethtool::driver(name),
            mtu: interface_mtu(name).ok(),
            mbit_per_s: ethtool::speed(name),
            offloads: ethtool::offloads(name),
        }
    }

    /// Returns the device's facts as short texts for people.
    pub fn facts(&self) -> Vec<String> {
        let mut facts = vec![match &self.driver {
            Some(driver) => format!("{} ({driver})", self.name),
            None => self.name.clone(),
        }];
        facts.extend(self.mtu.map(|mtu| format!("MTU {mtu}")));
        facts.extend(self.mbit_per_s.map(|speed| format!("{speed} Mbit/s")));
        facts.extend(self.offloads.as_ref().map(|offloads| match &offloads[..] {
            [] => "no offloads".to_owned(),
            offloads => offloads.join(" "),
        }));
        facts
    }
}

/// Returns a file's text without surrounding white space; `None` if there is no text.
fn read(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let (_, model) = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == "model name")?;
    Some(model.trim().to_owned())
}

/// Returns the version of the module `enet`, or a substitute if the module has no version.
fn module() -> Option<String> {
    let module = Path::new("/sys/module/enet");
    read(module.join("version"))
        .or_else(|| read(module.join("srcversion")))
        .or_else(|| module.exists().then(|| "loaded".to_owned()))
}

fn parameters(directory: &Path) -> BTreeMap<String, String> {
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    let parameter = |file: fs::DirEntry| {
        let name = file.file_name().into_string().ok()?;
        Some((name, read(file.path())?))
    };
    files.filter_map(parameter).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a host with all facts.
    pub(crate) fn sample(host: &str) -> Machine {
        let machine = serde_json::json!({
            "netgauge": "0.1.0", "host": host, "kernel": "7.2.12-cloud-amd64",
            "processor": "Sample CPU", "processors": 2,
            "device": {"name": "eth0", "driver": "virtio_net", "mtu": 1500, "mbit_per_s": 10_000,
                       "offloads": ["gso", "gro"]},
            "congestion_control": "cubic", "enet": "0.1.0",
            "esp": {"burst_length": "32", "packets_to_ack": "8"},
        });
        serde_json::from_value(machine).unwrap()
    }

    #[test]
    fn this_host_has_a_name_a_kernel_and_processors() {
        let machine = Machine::here(Some("lo"));
        assert!(machine.host.is_some() && machine.kernel.is_some());
        assert!(machine.processors.is_some_and(|count| count > 0));
        let device = machine.device.unwrap();
        assert_eq!(device.name, "lo");
        assert!(device.mtu.is_some_and(|mtu| mtu > 0));
        assert!(device.offloads.is_some());
    }

    #[test]
    fn what_is_absent_is_left_out() {
        assert_eq!(Machine::here(None).device, None);
        let absent = Device {
            name: "absent0".to_owned(),
            ..Device::default()
        };
        assert_eq!(Device::here("absent0"), absent);
        assert_eq!(absent.facts(), ["absent0"]);
        assert!(parameters(Path::new("/absent")).is_empty());
        assert_eq!(read("/absent"), None);
        let json = serde_json::to_string(&Machine::default()).unwrap();
        assert_eq!(json, r#"{"netgauge":""}"#);
    }

    #[test]
    fn facts_are_short_and_complete() {
        let facts = sample("node0").facts();
        let expected = "node0, Linux 7.2.12-cloud-amd64, 2 x Sample CPU, eth0 (virtio_net), MTU 1500, 10000 Mbit/s, \
                        gso gro, TCP cubic, enet 0.1.0, esp.burst_length=32, esp.packets_to_ack=8, netgauge 0.1.0";
        assert_eq!(facts.join(", "), expected);
    }

    #[test]
    fn another_netgauge_may_say_more_or_less() {
        let json =
            r#"{"netgauge":"9","host":"h","colour":"green","device":{"name":"e","seats":4}}"#;
        let machine: Machine = serde_json::from_str(json).unwrap();
        assert_eq!(machine.host.as_deref(), Some("h"));
        assert_eq!(machine.device.unwrap().name, "e");
        let machine = sample("node0");
        let json = serde_json::to_string(&machine).unwrap();
        assert_eq!(serde_json::from_str::<Machine>(&json).unwrap(), machine);
    }
}
