// SPDX-License-Identifier: MIT OR Apache-2.0

//! Draws pictures of saved results (`netgauge plot`), and of runs between more than two hosts
//! (option `--plot`).
//!
//! The picture depends on the results and not on the pattern's name. So a new pattern whose rows
//! have a size, and times or throughput, can be drawn without changes here.

pub mod axis;
pub mod chart;
mod figure;
pub(crate) mod goodput;
mod results;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{bail, ensure, Context as _, Result};
use clap::Args;

use crate::group::coordinator::heat_map::HeatMap;
use crate::{picture, picture_file};
use figure::PlotKind;
use results::{Measured, Results};

const EXAMPLES: &str = include_str!("../help/plot.txt");

/// Arguments of `plot`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PlotArgs {
    /// Results that netgauge printed with --format json
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The picture's file; its name ends in .svg or .png
    #[arg(short = 'o', long, value_name = "PICTURE", value_parser = picture_file::parse_path)]
    output: PathBuf,

    /// Kind of picture [default: the kind that suits the results]
    #[arg(long, value_enum)]
    kind: Option<PlotKind>,

    /// Draw only these transports: names separated by commas
    #[arg(
        short = 'm',
        long = "mode",
        value_name = "NAMES",
        value_delimiter = ','
    )]
    transports: Vec<String>,

    /// Title above the picture
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
}

impl PlotArgs {
    /// Draws the picture.
    ///
    /// # Errors
    ///
    /// Fails if a file has no results of netgauge, or if the files have no results for this kind of
    /// picture. Also fails if the picture cannot be written.
    pub fn run(&self) -> Result<ExitCode> {
        let files = self.files.iter().map(|path| Results::read(path));
        let files: Vec<_> = files.collect::<Result<_>>()?;
        let kind = self.kind.unwrap_or_else(|| figure::suitable(&files));
        match kind {
            PlotKind::HeatMap => self.heat_map(&files),
            kind => self.chart(kind, &files),
        }?;
        Ok(ExitCode::SUCCESS)
    }

    fn heat_map(&self, files: &[Results]) -> Result<()> {
        let [file] = files else {
            bail!("a heat map is of one file: draw each by itself");
        };
        let Measured::Params(report) = &file.measured else {
            bail!(
                "{} has nothing for a heat map: measure -x esp-params",
                file.name
            );
        };
        ensure!(
            self.transports.is_empty(),
            "a heat map is of esp alone: leave -m away"
        );
        let mut map = HeatMap::of(report).with_context(|| file.name.clone())?;
        map.title = self.title.clone().unwrap_or(map.title);
        picture::save(&map, &self.output)
    }

    fn chart(&self, kind: PlotKind, files: &[Results]) -> Result<()> {
        for file in files {
            ensure!(
                !matches!(file.measured, Measured::Params(_)),
                "{} is of esp-params, which is drawn as a heat map: --kind heat-map",
                file.name
            );
        }
        let mut chart = figure::chart(kind, files, &self.transports)?;
        chart.title = self.title.clone().unwrap_or(chart.title);
        picture::save(&chart, &self.output)
    }
}
