// SPDX-License-Identifier: GPL-2.0-only

//! Tests `enet map` for the programs of containers: a network namespace that a bridge or a macvlan
//! leads to, and a control group at the place that an engine chooses.

use guest::mapped::{listener, MAPPED};
use guest::prelude::*;

use crate::enet_run::{has_types, is_carried_by_esp, Mounted, Unit};

scenarios! {
    direct mapped_containers_on_a_bridge = |lab| containers(lab, &BRIDGE), within(60);
    direct mapped_containers_by_macvlan = |lab| containers(lab, &MACVLAN), within(60);
}

/// Commands of `ip` on the container's host, which move `c0` to the container. `CONTAINER` is the
/// path of the container's namespace.
const BRIDGE: [&str; 6] = [
    "link add br0 type bridge",
    "link set eth0 master br0",
    "link set br0 up",
    "link add c0 type veth peer name c1",
    "link set c1 master br0 up",
    "link set c0 netns CONTAINER",
];
const MACVLAN: [&str; 2] = [
    "link add c0 link eth0 type macvlan mode bridge",
    "link set c0 netns CONTAINER",
];

/// The control groups of containers: of Docker with the driver of systemd, and with its own; of
/// podman; of a pod's container by containerd.
const GROUPS: [&str; 4] = [
    "system.slice/docker-0123456789ab.scope",
    "docker/0123456789ab",
    "machine.slice/libpod-0123456789ab.scope/container",
    "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0123.slice/cri-containerd-0123456789ab.scope",
];

/// Maps the group of a container of host `a`, whose programs then connect to `b` by ESP. Once the
/// group is no longer mapped, TCP carries new connections.
fn containers(lab: &Lab, wiring: &[&str]) -> Outcome {
    if !has_types() {
        return Ok(());
    }
    lab.give_ip_addresses()?;
    let container = Netns::create()?;
    let lines = wiring.join("\n") + "\n";
    (lab.a.namespace).ip(&lines.replace("CONTAINER", &container.path()))?;
    container.ip("link set lo up\nlink set c0 up\naddress add 10.0.0.3/24 dev c0\n")?;
    Knobs(&container).set("mapped_wait", 100_000)?;
    let _mounted = Mounted::pins()?;
    for (number, name) in GROUPS.into_iter().enumerate() {
        let group = Unit::make(name)?;
        let port = 880 + number as u16;
        let server = listener(&lab.b, MAPPED, port, 4)?;
        let ask = |verb: &[&str]| container.run("enet", &[verb, &[&group.path()]].concat());
        // A statically linked program of the container.
        let mut client = group.shell("", &format!("busybox nc 10.0.0.2 {port}"));
        ask(&["map", "--allow", &format!(":{port}")])?;
        let (by_esp, _) = is_carried_by_esp(&container, &mut client, &server)?;
        ensure!(by_esp, "{name}: TCP");
        ask(&["unmap"])?;
        let (by_esp, _) = is_carried_by_esp(&container, &mut client, &server)?;
        ensure!(!by_esp, "{name}: ESP");
    }
    Ok(())
}
