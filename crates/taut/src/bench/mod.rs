//! `taut bench`: measurements between any two of VM, microguest, network namespace and host.
//!
//! Each end point runs an agent. The sender's agent measures against the receiver's; meanwhile taut
//! itself only waits, so that it does not disturb the measurement. Two pairs are measured in
//! alternation.

mod address;
mod args;
mod cpu;
mod end_point;
mod host;
mod measure;
mod moderation;
mod neighbours;
mod parties;
mod puts;
mod raw;
mod ready;
mod sensitive;
mod shaping;
mod switch;
mod vsock;

use std::path::Path;

use serde::Serialize;
use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_bench::report::{Configuration, Figures, PictureError, Report};

pub(crate) use args::Command;
pub(crate) use end_point::EndPoint;

use crate::client::Client;
use crate::output::{self, Format, Outcome};
use crate::progress::Progress;
use args::{Files, Pair, Task};
use measure::{Line, Measurement};
use parties::Parties;

pub(crate) fn run(command: Command, client: &Client, format: Format) -> Outcome {
    match command {
        Command::Between(command) => between(command.task(), client, format),
        Command::Raw(args) => raw::run(&args, client, format),
        Command::Placement(args) => raw::placement(&args, format),
        Command::Switch(args) => switch::run(args, format),
        Command::Shaping(args) => shaping::run(&args, client, format),
        Command::Moderation(args) => moderation::run(&args, client, format),
        Command::Neighbours(args) => neighbours::run(&args, client, format),
        Command::Puts(args) => puts::run(&args, client, format),
        Command::Vsock(args) => vsock::run(&args, client, format),
    }
}

fn between(task: Task, client: &Client, format: Format) -> Outcome {
    let Task { pair, versus, measurement, settings, files } = task;
    files.check()?;
    let host = host::describe(client)?;
    let pairs: Vec<_> = std::iter::once(pair).chain(versus).collect();
    let measured = alternate(client, &pairs, &measurement, settings.repeats)?;
    let no_echo = measured.iter().find_map(unanswered);
    let mut configurations = measured.into_iter();
    let a = configurations.next().expect("the first pair was measured");
    let report = Report::new(measurement.kind(), settings, host, a, configurations.next());
    files.save(&report, || report.svg())?;
    output::print(format, &report, Report::table);
    no_echo.map_or(Ok(()), Err)
}

/// Returns an error if no echo came back at all: a script must not take that for a measurement.
fn unanswered(measured: &Configuration) -> Option<ApiError> {
    let lost: u64 = measured.repeats.iter().filter_map(|repeat| repeat.lost).sum();
    let came = measured.repeats.iter().any(|repeat| repeat.count != Some(0));
    (lost > 0 && !came).then(|| {
        ApiError::new(
            ErrorKind::Unavailable,
            format!("{}: no echo came back, {lost} were lost", measured.name),
            "`taut port list` shows links and drops on the way; check firewalls in between, too",
        )
    })
}

/// Measures all pairs once, then all again, and so on, so that other load on the host affects them
/// alike.
fn alternate(
    client: &Client,
    pairs: &[Pair],
    measurement: &Measurement,
    repeats: u32,
) -> Result<Vec<Configuration>, ApiError> {
    let mut parties = Parties::default();
    let mut lines = Vec::new();
    for Pair { sender, receiver, address } in pairs {
        let _progress = Progress::start(&format!("asking the agents of {sender} and {receiver}"));
        let sender = parties.join(client, sender)?;
        let receiver = parties.join(client, receiver)?;
        lines.push((Line::prepare(&mut parties, sender, receiver, *address, measurement)?, Vec::new()));
    }
    for repeat in 1..=repeats {
        for ((line, results), Pair { sender, receiver, .. }) in lines.iter_mut().zip(pairs) {
            let what = measurement.kind().name();
            let _progress =
                Progress::start(&format!("{what} {sender} → {receiver}, repeat {repeat} of {repeats}"));
            results.push(line.measure(&mut parties, measurement, host::fabric_pid(client))?);
        }
    }
    let configuration = |(line, results): (Line, Vec<Figures>)| {
        Configuration::new(parties.describe(line.sender), line.describe_receiver(&parties), results)
    };
    Ok(lines.into_iter().map(configuration).collect())
}

impl Files {
    /// Checks before the measurement that the files can be written.
    fn check(&self) -> Outcome {
        for file in [&self.json, &self.svg].into_iter().flatten() {
            let opened = std::fs::File::options().create(true).append(true).open(file);
            opened.map_err(|error| unwritable(file, &error))?;
        }
        Ok(())
    }

    /// Writes the files that were asked for.
    fn save(&self, results: &impl Serialize, svg: impl FnOnce() -> Result<String, PictureError>) -> Outcome {
        if let Some(file) = &self.json {
            write(file, &serde_json::to_string_pretty(results).expect("reports are JSON"))?;
        }
        if let Some(file) = &self.svg {
            let picture = svg().map_err(|error| {
                ApiError::new(
                    ErrorKind::Internal,
                    "no picture was made",
                    "the result is in the table and in the file of --json",
                )
                .because(&error)
            })?;
            write(file, &picture)?;
        }
        Ok(())
    }
}

fn write(file: &Path, text: &str) -> Outcome {
    std::fs::write(file, text).map_err(|error| unwritable(file, &error))
}

fn unwritable(file: &Path, error: &std::io::Error) -> ApiError {
    ApiError::new(
        ErrorKind::Unavailable,
        format!("{} cannot be written", file.display()),
        "choose a file in an existing folder with write permission",
    )
    .because(error)
}
