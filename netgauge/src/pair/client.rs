// SPDX-License-Identifier: MIT OR Apache-2.0

//! The client, which measures.

use std::time::Duration;

use anyhow::{anyhow, bail, ensure, Result};

use super::{is_peer_gone, Link, PairPattern, Plan, Streams};
use crate::control::{reach, Control, Message, Open};
use crate::host::interface_in_use;
use crate::machine::Machine;
use crate::measuring::Measuring;
use crate::pattern::PatternInfo;
use crate::progress::Progress;
use crate::report::record::Record;
use crate::report::{LeftOut, Outcome, Report, Row, Run};
use crate::transport::kind::Kind;
use crate::transport::kinds;
use crate::transport::{self, Context, Role, SocketOptions};

/// The client's options.
#[derive(Clone)]
pub struct ClientOptions {
    /// The server's name or address.
    pub host: String,
    /// The server's port.
    pub port: u16,
    /// The time to keep trying to reach a server that is not up yet.
    pub wait: Duration,
    /// Transports to measure, in this order.
    pub transports: Vec<&'static Kind>,
    /// Patterns to measure each transport with, and the plan of each.
    pub patterns: Vec<Planned>,
    /// Name of the interface to use; without a name, the interface of the control connection.
    pub interface: Option<String>,
    /// Options of the measurement, such as time limits and options of sockets.
    pub measuring: Measuring,
}

/// A pattern, with its code and the plan of its measurement.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The pattern's name and limits.
    pub pattern: &'static PatternInfo,
    /// The pattern's code.
    pub work: &'static dyn PairPattern,
    /// Sizes, tests and options of the measurement.
    pub plan: Plan,
}

impl Planned {
    /// Checks that the pattern, with its options, can measure this transport.
    fn check(&self, kind: &Kind) -> Result<()> {
        self.work.suits(kind)?;
        self.plan.args.suits(self.pattern.name, kind)
    }
}

impl ClientOptions {
    /// Returns warnings about options that do not apply to some of the transports.
    pub fn remarks(&self) -> Vec<String> {
        if self.measuring.is_all() {
            return kinds::remarks(&self.measuring.sockets);
        }
        let without = self.transports.iter().filter(|kind| !kind.interface);
        let names: Vec<_> = without.map(|kind| kind.name).collect();
        let remark = format!("--interface means nothing to {}", names.join(", "));
        let said = self.interface.is_some() && !names.is_empty();
        said.then_some(remark).into_iter().collect()
    }

    /// Checks that the patterns can carry out their plans.
    ///
    /// # Errors
    ///
    /// Fails if a size is too large for its pattern, or if no test is planned.
    pub fn check(&self) -> Result<()> {
        for Planned { pattern, plan, .. } in &self.patterns {
            let most = pattern.most;
            if let Some(size) = plan.sizes.iter().find(|size| **size > most) {
                bail!(
                    "size {size} is above what {} takes, {most} bytes: lower -s",
                    pattern.name
                );
            }
            ensure!(
                plan.tests > 0,
                "without tests there is nothing to report: raise -c"
            );
        }
        Ok(())
    }
}

/// Measures everything that is planned. If a transport fails, reports the failure and goes on with
/// the next transport, unless the peer is gone.
///
/// # Errors
///
/// Fails if a size is too large for its pattern, or if no server can be reached.
pub fn run(options: &ClientOptions, progress: &dyn Progress) -> Result<Report> {
    options.check()?;
    let mut client = Client {
        control: reach(
            &options.host,
            options.port,
            options.wait,
            options.measuring.give_up,
        )?,
        options,
        gone: None,
        opened: false,
        remark: None,
    };
    let mut report = Report::new(client.control.addresses()?.1, client.record()?);
    for planned in &options.patterns {
        for kind in &options.transports {
            let done = client.add(&mut report, kind, planned, progress);
            progress.advance(planned.plan.sizes.len().saturating_sub(done) as u64);
        }
    }
    Ok(report)
}

struct Client<'a> {
    control: Control,
    options: &'a ClientOptions,
    /// The reason why nothing more can be measured, if the peer is gone.
    gone: Option<String>,
    /// Whether both ends of the present transport are open.
    opened: bool,
    /// The transport's remark for the report, if the most recent measurement had one.
    remark: Option<String>,
}

impl Client<'_> {
    /// Returns the record of the run, with both machines.
    fn record(&self) -> Result<Record> {
        let (local, _) = self.control.addresses()?;
        let device = interface_in_use(self.options.interface.as_deref(), Some(local.ip()));
        let mut record = Record::begin();
        record.add("client", Machine::here(device.as_deref()));
        if let Some(machine) = self.control.peer_machine() {
            record.add("server", machine.clone());
        }
        Ok(record)
    }

    /// Measures one transport with one pattern, adds the results to the report, and returns the
    /// number of sizes measured.
    fn add(
        &mut self,
        report: &mut Report,
        kind: &'static Kind,
        planned: &Planned,
        progress: &dyn Progress,
    ) -> usize {
        if report.left_out.iter().any(|out| out.is_of(kind)) {
            return 0;
        }
        let pattern = planned.pattern.name;
        if let Err(reason) = planned.check(kind) {
            let left_out = LeftOut::new(kind, Some(pattern), &reason);
            report.left_out.push(left_out);
            return 0;
        }
        let options = self.options;
        let sockets = &options.measuring.sockets;
        let run = |outcome, rows| Run::new(kind, sockets, pattern, outcome, rows);
        let tell = |rows: &[Row]| {
            let mut so_far = report.clone();
            let interrupted = Outcome::failed(&anyhow!("interrupted"));
            so_far.runs.push(run(interrupted, rows.to_vec()));
            progress.measured(so_far);
        };
        let mut rows = Vec::new();
        let result = match &self.gone {
            Some(reason) => Err(anyhow!("not measured: {reason}")),
            None => {
                progress.begin(kind.name, pattern);
                // The earlier runs are reported now, so that they are not lost if the user
                // interrupts this run before its first row.
                tell(&rows);
                self.measure(kind, planned, &mut |row| {
                    progress.advance(1);
                    rows.push(row);
                    tell(&rows);
                })
            }
        };
        let done = rows.len();
        let outcome = match result {
            Ok(()) => Outcome::Ok,
            Err(error) => {
                if is_peer_gone(&error) {
                    self.gone = Some(error.to_string());
                } else if options.measuring.is_all() && self.gone.is_none() && !self.opened {
                    report.left_out.push(LeftOut::new(kind, None, &error));
                    return done;
                }
                Outcome::failed(&error)
            }
        };
        let mut run = run(outcome, rows);
        if let Some(remark) = self.remark.take() {
            run.about += &format!("; {remark}");
        }
        report.runs.push(run);
        done
    }

    /// Measures one transport with one pattern, and closes the transport at both ends.
    fn measure(
        &mut self,
        kind: &'static Kind,
        planned: &Planned,
        rows: &mut dyn FnMut(Row),
    ) -> Result<()> {
        self.opened = false;
        let (local, peer) = self.control.addresses()?;
        let measuring = &self.options.measuring;
        let context = Context {
            role: Role::Leader,
            local: Some(local),
            peer: Some(peer),
            interface: self.options.interface.clone(),
            ethertype: measuring.ethertype,
            loss_timeout: measuring.loss_timeout,
            give_up: measuring.give_up,
            options: kind.options(&measuring.sockets),
            congestion: None,
        };
        // This side's socket is prepared before the peer is asked, so that a failure does not
        // involve the peer.
        let prepared = (kind.prepare)(&context)?;
        let streams = Streams::of(kind, &context);
        self.control.send(&Message::Open(Open {
            transport: kind.name.to_owned(),
            pattern: planned.pattern.name.to_owned(),
            ethertype: context.ethertype,
            endpoint: prepared.endpoint.clone(),
            options: context.options.clone(),
        }))?;
        let result = self.open_and_lead(prepared, &context.options, streams, planned, rows);
        match result {
            Err(error) if is_peer_gone(&error) => Err(error),
            // If the peer dies during `close`, the run fails, but the report keeps the run's rows.
            result => self.close().and(result),
        }
    }

    fn open_and_lead(
        &mut self,
        prepared: transport::Prepared,
        sockets: &SocketOptions,
        streams: Option<Streams>,
        planned: &Planned,
        rows: &mut dyn FnMut(Row),
    ) -> Result<()> {
        let endpoint = match self.control.answer()? {
            Message::Endpoint(endpoint) => endpoint,
            other => bail!("the peer answered {other:?} to an opening"),
        };
        let mut transport = transport::open(prepared, &endpoint, None, sockets)?;
        match self.control.answer()? {
            Message::Opened => {}
            other => bail!("the peer answered {other:?} to an opening"),
        }
        self.opened = true;
        let mut link = Link {
            transport: transport.as_mut(),
            control: &mut self.control,
            streams,
        };
        let result = planned.work.lead(&mut link, &planned.plan, rows);
        self.remark = transport.remark();
        result
    }

    /// Makes the peer close this transport, and discards the peer's remaining messages, among them
    /// `Failed` from a peer that was still waiting for this side's connection.
    fn close(&mut self) -> Result<()> {
        self.control.send(&Message::Close)?;
        while self.control.receive()? != Message::Closed {}
        Ok(())
    }
}
