//! Connections of which only one end is left: the other host was restarted, or had nothing more to say.

use anyhow::{ensure, Context};

use crate::frame::flag;
use crate::harness::{Outcome, Scenario};
use crate::lab::{eventually, Lab};
use crate::station::Station;
use crate::transfer::exchange;

/// The scenarios of this file.
pub const ALL: &[Scenario] = &[
    Scenario::direct("esp_end_by_reset_leaves_nothing_queued", left_behind),
];

/// A reset that answers a repetition ends a connection well. Its bytes must not wait for the socket's next one.
fn left_behind(lab: &Lab) -> Outcome {
    let (mut station, client) = Station::connect(lab, 641)?;
    station.send(flag::FIN | flag::ACK, &[])?;
    station.next = station.next.wrapping_add(1);
    ensure!(client.receive(&mut [0; 8], 0)? == 0, "bytes from nowhere");
    client.send_all(&[0x41; 1000])?;
    client.shutdown(libc::SHUT_WR)?;
    let first = station.expected;
    for time in ["first", "second"] {
        station
            .wait_for(|header| header.length > 0 && header.sequence == first)
            .with_context(|| format!("the bytes, for the {time} time"))?;
    }
    station.send(flag::RST, &[])?;
    lab.a.await_proc("esp", |text| !text.contains("last-ack"))?;
    let error = client.pending_error()?;
    ensure!(error == 0, "SO_ERROR {error} after a clean end");
    let left = client.queued(libc::TIOCOUTQ)?;
    ensure!(left == 0, "{left} bytes are queued on a closed connection");

    client
        .connect_bytes(&[0; 16])
        .context("connect to AF_UNSPEC")?;
    let listener = lab.b.esp_listener(642, 1)?;
    client.connect(&lab.a.to(&lab.b, 642))?;
    let (server, _) = listener.accept(0)?;
    for _ in 0..3 {
        exchange(&client, &server).context("the next connection")?;
    }
    eventually("every byte acknowledged", || {
        Ok(client.queued(libc::TIOCOUTQ)? == 0)
    })
}
