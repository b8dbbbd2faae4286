// SPDX-License-Identifier: MIT OR Apache-2.0

//! Runs a pattern between more than two hosts: plans the measurement, directs the participants, and
//! prints the report.

pub mod args;
pub mod esp_params;
pub mod figures;
#[cfg(feature = "pictures")]
pub mod heat_map;
pub mod hosts;
pub mod location;
pub mod mesh;
pub mod patterns;
pub mod plan;
pub(crate) mod print;
pub mod remotes;
pub mod report;
pub mod start;

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{bail, ensure, Context as _, Result};

use crate::pattern::PatternInfo;
use crate::progress::{Bar, Progress};
use crate::report::format::Format;
use crate::report::LeftOut;
use crate::signals::{Interrupted, Signals};
use args::Options;
use location::Location;
use plan::{Plan, Roles};
use remotes::Group;

/// A pattern of more than two participants.
pub trait GroupPattern: Sync + fmt::Debug {
    /// Returns the roles of the participants.
    fn roles(&self) -> Roles;

    /// Returns the number of rows that will be measured, for the progress bar.
    fn steps(&self, plan: &Plan) -> usize;

    /// Measures everything that is planned, until a participant is gone or the user interrupts the
    /// run. A round without progress for longer than `give_up` fails.
    fn run(
        &self,
        group: &mut Group,
        plan: &Plan,
        give_up: Duration,
        progress: &dyn Progress,
    ) -> Box<dyn Results>;
}

/// Results that can be printed in each format.
pub trait Results {
    /// Prints the results.
    ///
    /// # Errors
    ///
    /// Fails with the writer's error.
    fn write(&self, format: Format, out: &mut dyn Write) -> io::Result<()>;

    /// Returns the errors of failed runs.
    fn errors(&self) -> Vec<String>;

    /// Returns the transports that were left out, with the reasons.
    fn left_out(&self) -> &[LeftOut] {
        &[]
    }

    /// Draws the results as a picture.
    ///
    /// # Errors
    ///
    /// Fails if there is nothing to draw, or if the file cannot be written.
    #[cfg(feature = "pictures")]
    fn draw(&self, path: &Path) -> Result<()>;

    /// Returns an error, because this netgauge was built without pictures.
    ///
    /// # Errors
    ///
    /// Always fails.
    #[cfg(not(feature = "pictures"))]
    fn draw(&self, _path: &Path) -> Result<()> {
        bail!(crate::picture_file::WITHOUT)
    }
}

/// A planned measurement. The plan is checked before any participant is started or contacted.
pub struct Coordinator {
    options: Options,
    locations: Vec<Location>,
    work: &'static dyn GroupPattern,
    plan: Plan,
}

impl Coordinator {
    /// Plans a measurement with `pattern`, whose code is `work`.
    ///
    /// # Errors
    ///
    /// Fails if the options conflict.
    pub fn new(
        options: Options,
        pattern: &PatternInfo,
        work: &'static dyn GroupPattern,
    ) -> Result<Self> {
        ensure!(
            options.port != 0,
            "port 0 is nobody's: give the servers' with --port"
        );
        ensure!(
            options.group.peers.is_empty() || options.interface.is_none(),
            "with --peers, --interface is each server's own option"
        );
        ensure!(
            options.measuring.sockets.is_default(),
            "options of sockets are for patterns of two"
        );
        let locations = options
            .group
            .locations(options.connect.as_deref(), options.port)?;
        let plan = Plan::new(&options, pattern, work.roles(), locations.len())?;
        Ok(Self {
            options,
            locations,
            work,
            plan,
        })
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Measures, and prints the report. Returns whether everything was measured.
    ///
    /// # Errors
    ///
    /// Fails if a participant cannot be started or reached. Fails with [`Interrupted`] if the user
    /// interrupts the run; the results so far are printed first.
    pub fn run(&self, signals: Signals) -> Result<bool> {
        let mut group = Group::gather(&self.locations, &self.options, signals)?;
        let bar = Bar::new(self.work.steps(&self.plan) as u64);
        let give_up = self.options.measuring.give_up;
        let report = self.work.run(&mut group, &self.plan, give_up, &bar);
        bar.finish();
        let interrupted = group.was_interrupted();
        // Dropping the group stops the participants, so that they restore ESP's parameters before
        // the report is printed.
        drop(group);
        let format = self.options.measuring.format;
        report
            .write(format, &mut io::stdout().lock())
            .context("writing the report")?;
        let plot = self.options.group.many.plot.as_deref();
        if interrupted {
            format.tell(report.left_out(), &[]);
            // Drawing fails if there are no results yet. That error is ignored, because the
            // interruption is reported instead.
            let _ = plot.map(|path| report.draw(path));
            bail!(Interrupted);
        }
        let errors = report.errors();
        format.tell(report.left_out(), &errors);
        if let Some(path) = plot {
            report.draw(path)?;
        }
        Ok(errors.is_empty())
    }
}
