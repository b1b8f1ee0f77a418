//! `taut capture`: the frames of a port as lines or as pcapng (ESX: `pktcap-uw`).

mod blocks;
mod line;

use std::fs::File;
use std::io::{self, Write as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args as ClapArgs, ValueEnum};
use taut_api::error::ErrorKind;
use taut_api::fabric::capture::{Directions, MAX_SNAPLEN};
use taut_api::route::PortInfo;
use taut_api::word::counted;
use taut_api::{ApiError, path};

use self::blocks::{Block, Blocks, statistics_block};
use self::line::Line;
use super::port;
use crate::client::{Client, StreamEnd};
use crate::output::{Format, Outcome, Output};

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Port by its number or its owner, such as vm/web1/nic0, or by the name of a front end's port
    port: String,
    /// Write pcapng to a file, or to standard output if it is -, instead of a line per frame
    #[arg(short, long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Longest part of each frame that is captured; all of it by default
    #[arg(
        long,
        value_name = "BYTES",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SNAPLEN))
    )]
    snaplen: Option<u32>,
    /// End after so many frames
    #[arg(long, value_name = "FRAMES", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Capture frames that the port sends (tx), receives (rx), or both
    #[arg(long, value_enum, default_value_t)]
    direction: Direction,
}

/// Directions of frames, seen from the guest behind the port.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Direction {
    #[default]
    Both,
    Tx,
    Rx,
}

impl From<Direction> for Directions {
    fn from(direction: Direction) -> Self {
        match direction {
            Direction::Both => Self::Both,
            Direction::Tx => Self::Tx,
            Direction::Rx => Self::Rx,
        }
    }
}

pub(crate) fn run(args: &Args, client: &Client, out: Output) -> Outcome {
    let port = port::find(client.get(path::PORTS)?, &args.port)?;
    let mut query = format!(
        "{}?snaplen={}&direction={}",
        path::PORT_CAPTURE.of(port.port),
        args.snaplen.unwrap_or(MAX_SNAPLEN),
        Directions::from(args.direction).as_str()
    );
    if let Some(count) = args.count {
        query += &format!("&count={count}");
    }
    let mut capture = Capture::new(&port, args.write.as_deref(), out);
    let end = client.stream(&query, |piece| capture.take(piece));
    capture.finish()?;
    match (end?, capture.reason) {
        (StreamEnd::Answer, Some(reason)) => Err(ApiError::new(
            ErrorKind::Unavailable,
            format!("the capture of {} has ended: {reason}", port.owner),
            "`taut events` shows what happened; then start it again",
        )),
        _ => Ok(()),
    }
}

/// Place for the frames.
#[derive(Debug)]
enum Target<'a> {
    /// Lines on standard output.
    Lines,
    /// pcapng on standard output.
    Stdout,
    /// pcapng in a file, which is made when the capture has begun.
    File(&'a Path, Option<File>),
}

/// A capture that runs.
#[derive(Debug)]
struct Capture<'a> {
    port: &'a PortInfo,
    out: Output,
    target: Target<'a>,
    blocks: Blocks,
    /// Beginning of the capture; `None` before the daemon has answered.
    begun_ns: Option<u64>,
    captured: u64,
    /// Number of frames that were lost before the last one that was captured.
    lost_before: u64,
    /// Number of frames that were lost.
    lost: u64,
    /// Reason for an end that was not wanted.
    reason: Option<String>,
    /// The reader of standard output has gone.
    is_left: bool,
}

impl<'a> Capture<'a> {
    fn new(port: &'a PortInfo, write: Option<&'a Path>, out: Output) -> Self {
        let target = match write {
            None => Target::Lines,
            Some(path) if path == Path::new("-") => Target::Stdout,
            Some(path) => Target::File(path, None),
        };
        Self {
            port,
            out,
            target,
            blocks: Blocks::default(),
            begun_ns: None,
            captured: 0,
            lost_before: 0,
            lost: 0,
            reason: None,
            is_left: false,
        }
    }

    /// Takes a piece of the answer.
    fn take(&mut self, piece: &[u8]) -> Result<ControlFlow<()>, ApiError> {
        if self.begun_ns.is_none() {
            self.begun_ns = Some(now_ns());
            if !self.out.quiet {
                let PortInfo { owner, port, .. } = self.port;
                eprintln!("capturing {owner} (port {port}); Ctrl-C ends");
            }
        }
        self.blocks.add(piece);
        let is_file = !matches!(self.target, Target::Lines);
        let mut bytes = Vec::new();
        while let Some(block) = self.blocks.take()? {
            match block {
                Block::Description(raw) if is_file => bytes.extend_from_slice(raw),
                Block::Description(_) => {}
                Block::Frame(raw, frame) => {
                    self.captured += 1;
                    self.lost_before = self.lost_before.saturating_add(frame.lost);
                    self.lost = self.lost.max(self.lost_before);
                    if is_file {
                        bytes.extend_from_slice(raw);
                    } else {
                        bytes.extend_from_slice(printed(&Line::of(&frame), self.out.format).as_bytes());
                    }
                }
                // The file gets those of its own frames at its end.
                Block::Statistics(statistics) => {
                    self.lost = self.lost.max(statistics.lost);
                    self.reason = statistics.reason.map(str::to_owned);
                }
            }
        }
        self.write(&bytes)
    }

    /// Writes lines or blocks.
    fn write(&mut self, bytes: &[u8]) -> Result<ControlFlow<()>, ApiError> {
        let written = match &mut self.target {
            Target::Lines | Target::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(bytes).and_then(|()| stdout.flush())
            }
            Target::File(path, file) => match file {
                Some(file) => file.write_all(bytes),
                None => File::create(*path).and_then(|new| file.insert(new).write_all(bytes)),
            },
        };
        match (written, &self.target) {
            (Ok(()), _) => Ok(ControlFlow::Continue(())),
            // Whoever reads the output has seen enough, as `head` or `tcpdump -c` do.
            (Err(error), Target::Lines | Target::Stdout) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_left = true;
                Ok(ControlFlow::Break(()))
            }
            (Err(error), target) => {
                let place = match target {
                    Target::Lines | Target::Stdout => "standard output".to_owned(),
                    Target::File(path, _) => path.display().to_string(),
                };
                let message = format!("the capture cannot be written to {place}");
                let hint = "check its folder, its rights and the space on its disk";
                Err(ApiError::new(ErrorKind::Unavailable, message, hint).because(&error))
            }
        }
    }

    /// Ends the file, and tells how many frames there were. Does nothing if the capture has not
    /// begun.
    fn finish(&mut self) -> Outcome {
        let Some(begun_ns) = self.begun_ns else { return Ok(()) };
        if !matches!(self.target, Target::Lines) && !self.is_left {
            let block = statistics_block(begun_ns, now_ns(), self.captured, self.lost);
            let _ = self.write(&block)?;
        }
        if !self.out.quiet {
            eprintln!("{} captured, {} lost by the capture", counted(self.captured, "frame"), self.lost);
        }
        Ok(())
    }
}

/// Returns the line of a frame.
fn printed(line: &Line<'_>, format: Format) -> String {
    match format {
        Format::Table => line.text(),
        Format::Json => serde_json::to_string(line).expect("a line is JSON") + "\n",
    }
}

/// Returns the wall clock in nanoseconds since the Unix epoch.
fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
