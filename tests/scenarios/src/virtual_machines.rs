// SPDX-License-Identifier: GPL-2.0-only

//! Tests tap devices, by which hypervisors connect virtual machines to a network. On their way to
//! the other host, frames pass through a program, or through `vhost-net`.

use guest::prelude::*;
use guest::tun::{Carries, Tun};
use guest::vhost::Port;

scenarios! {
    direct taps_cabled_by_a_program_carry_both_protocols = by_a_program;
    direct taps_cabled_by_vhost_carry_both_protocols = by_vhost;
}

/// A cable is a thread that moves frames from one tap device to the other. It waits this long for a
/// frame before it checks whether it is still needed.
const PAUSE: Duration = Duration::from_millis(10);

/// Returns a tap device on the host.
fn tap(host: &Host) -> Result<Tun> {
    let tap = Tun::create(&host.namespace, "tap0", Carries::SegmentedFrames)?;
    host.namespace.ip("link set tap0 up\n")?;
    Ok(tap)
}

/// Checks both protocols between the hosts' tap devices, while `cables` move frames from each to
/// the other.
fn carry<F: FnMut() -> Result<()> + Send>(lab: &Lab, cables: [F; 2]) -> Outcome {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for mut cable in cables {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    if let Err(error) = cable() {
                        note(&format!("the cable: {error:#}"));
                        return;
                    }
                }
            });
        }
        let carried = both_protocols(lab);
        done.store(true, Ordering::Relaxed);
        carried
    })
}

fn both_protocols(lab: &Lab) -> Outcome {
    let near = Device::ready(&lab.a.namespace, "tap0")?;
    let far = Device::ready(&lab.b.namespace, "tap0")?;
    near.carries_both_protocols_to(&far, 1500)
}

fn by_a_program(lab: &Lab) -> Outcome {
    let (a, b) = (&tap(&lab.a)?, &tap(&lab.b)?);
    let cables = [(a, b), (b, a)].map(|(from, to)| {
        move || match from.read(PAUSE)? {
            Some(frame) => to.write(&frame),
            None => Ok(()),
        }
    });
    carry(lab, cables)
}

fn by_vhost(lab: &Lab) -> Outcome {
    let taps = [tap(&lab.a)?, tap(&lab.b)?];
    let [mut a, mut b] = [Port::new(&taps[0])?, Port::new(&taps[1])?];
    let ways = [
        (&mut a.receive_queue, &mut b.transmit_queue),
        (&mut b.receive_queue, &mut a.transmit_queue),
    ];
    let cables = ways.map(|(from, to)| {
        move || match from.read(PAUSE)? {
            Some(frame) => to.write(&frame, patience()),
            None => Ok(()),
        }
    });
    carry(lab, cables)
}
