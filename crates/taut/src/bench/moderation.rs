//! `taut bench moderation`: costs and gains of each moderation scheme at each load.
//!
//! Two ports of the running fabric are attached during the measurement. Schemes are changed on them
//! live.

use std::path::PathBuf;
use std::time::Duration;

use taut_api::coalescing::NicCoalescing;
use taut_api::error::ErrorKind;
use taut_api::network::{ExternalPortSpec, SocketRole};
use taut_api::path;
use taut_api::route::ExternalPort;
use taut_api::{ApiError, Coalescing, MacAddr, Name, QueuePairs};
use taut_bench::paced::{Line, Listening, Paced, PacedOptions};
use taut_bench::report::{Cell, ModerationResults};

use super::cpu::OfHost;
use super::{args, host};
use crate::client::Client;
use crate::output::{self, Format, Outcome};
use crate::progress::Progress;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Port group of the two ports.
    #[arg(long, value_name = "NAME")]
    portgroup: Name,
    /// Scheme to compare; repeat for several.
    #[arg(long = "scheme", default_values = ["disabled", "static", "rbc", "adapt"], value_name = "SCHEME")]
    schemes: Vec<Coalescing>,
    /// Frames per second; repeat for several.
    #[arg(long = "rate", default_values = ["100", "10000", "100000", "1000000"], value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    rates: Vec<u32>,
    /// Length of each measurement in seconds.
    #[arg(long, default_value = "1", value_parser = args::seconds, value_name = "S")]
    duration: Duration,
    /// Number of repeats of each scheme at each load, in alternation.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100), value_name = "N")]
    repeat: u32,
    /// Entries of each ring, a power of two.
    #[arg(long, default_value_t = 256, value_name = "N")]
    entries: u16,
    /// Use packed rings.
    #[arg(long)]
    packed: bool,
    /// CPU that sends and receives.
    #[arg(long, value_name = "CPU")]
    cpu: Option<usize>,
    #[command(flatten)]
    files: args::Files,
}

pub(super) fn run(args: &Args, client: &Client, format: Format) -> Outcome {
    args.files.check()?;
    let host = host::describe(client)?;
    let ports = Ports::new(client, args)?;
    let mut line = {
        let _progress = Progress::start("attaching two ports");
        ports.connect(args)?
    };
    let mut cells = Vec::new();
    for repeat in 1..=args.repeat {
        for &rate in &args.rates {
            for &scheme in &args.schemes {
                let _progress = Progress::start(&format!(
                    "{rate} frames/s, {scheme}, repeat {repeat} of {}",
                    args.repeat
                ));
                ports.moderate(scheme)?;
                cells.push(measure(&mut line, scheme, rate, args.duration, client)?);
            }
        }
    }
    drop(line);
    let results = ModerationResults { host, entries: args.entries, packed: args.packed, cells };
    args.files.save(&results, || results.svg())?;
    output::print(format, &results, table);
    Ok(())
}

fn measure(
    line: &mut Line,
    scheme: Coalescing,
    rate: u32,
    duration: Duration,
    client: &Client,
) -> Result<Cell, ApiError> {
    // A first measurement that does not count: it drains what the load before left, and lets the
    // scheme adapt.
    line.measure(rate, duration / 5).map_err(|error| unmeasured(&error))?;
    let fabric = host::fabric_pid(client);
    let before = OfHost::now(fabric);
    let paced = line.measure(rate, duration).map_err(|error| unmeasured(&error))?;
    let after = OfHost::now(fabric);
    let fabric_percent = before.zip(after).and_then(|(before, after)| before.fabric_percent(&after));
    Ok(Cell { scheme: scheme.to_string(), paced, fabric_percent })
}

fn unmeasured(error: &impl std::fmt::Display) -> ApiError {
    ApiError::new(
        ErrorKind::Unavailable,
        format!("moderation could not be measured: {error:#}"),
        "see the ports in `taut port list` and `taut events`",
    )
}

/// The two ports, detached when this is dropped.
struct Ports<'c> {
    client: &'c Client,
    portgroup: Name,
    dir: PathBuf,
}

impl<'c> Ports<'c> {
    fn new(client: &'c Client, args: &Args) -> Result<Self, ApiError> {
        let dir = std::env::temp_dir().join(format!("taut-bench-{}", std::process::id()));
        std::fs::create_dir(&dir).map_err(|error| {
            let message = format!("the folder {} for sockets cannot be made", dir.display());
            ApiError::new(ErrorKind::Unavailable, message, "set TMPDIR to a folder that may be written to")
                .because(&error)
        })?;
        Ok(Self { client, portgroup: args.portgroup.clone(), dir })
    }

    fn name(end: usize) -> String {
        format!("bench-{}-{end}", std::process::id())
    }

    fn path(end: usize) -> String {
        path::EXTERNAL_PORT.of(&Self::name(end).parse().expect("a name"))
    }

    fn mac(end: usize) -> MacAddr {
        MacAddr::derived(&Self::name(end), 0)
    }

    fn socket(&self, end: usize) -> PathBuf {
        self.dir.join(format!("end{end}"))
    }

    fn put(&self, end: usize, coalescing: NicCoalescing) -> Outcome {
        let spec = ExternalPortSpec {
            portgroup: self.portgroup.clone(),
            socket: self.socket(end).to_string_lossy().into_owned(),
            role: SocketRole::Connect,
            mac: Some(Self::mac(end)),
            queues: QueuePairs::default(),
            offloads: false,
            coalescing,
            trusted: false,
        };
        self.client.put::<ExternalPort>(&Self::path(end), &spec).map(drop)
    }

    fn connect(&self, args: &Args) -> Result<Line, ApiError> {
        let options = PacedOptions {
            sockets: [0, 1].map(|end| self.socket(end)),
            entries: args.entries,
            packed: args.packed,
            cpu: args.cpu,
        };
        let listening = Listening::new(options).map_err(|error| unmeasured(&error))?;
        (0..2).try_for_each(|end| self.put(end, NicCoalescing::HostDefault))?;
        listening.connect([0, 1].map(|end| Self::mac(end).0)).map_err(|error| unmeasured(&error))
    }

    /// Changes the moderation scheme of both ports.
    fn moderate(&self, scheme: Coalescing) -> Outcome {
        (0..2).try_for_each(|end| self.put(end, NicCoalescing::Own(scheme)))
    }
}

impl Drop for Ports<'_> {
    fn drop(&mut self) {
        for end in 0..2 {
            // A port that was never attached cannot be detached; the result matters more than the
            // error.
            let _ = self.client.delete(&Self::path(end));
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn table(results: &ModerationResults) -> String {
    let mut rows = Vec::new();
    for rate in results.rates() {
        for scheme in results.schemes() {
            let of = |value: fn(&Paced) -> f64| {
                results.median(scheme, rate, |cell| Some(value(&cell.paced))).unwrap_or_default()
            };
            let fabric = results.median(scheme, rate, |cell| cell.fabric_percent);
            rows.push([
                rate.to_string(),
                scheme.to_owned(),
                format!("{:.0}", of(|paced| paced.sent_per_s)),
                format!("{:.0}", of(|paced| paced.lost as f64)),
                format!("{:.0}", of(|paced| paced.interrupts_per_s)),
                format!("{:.0}", of(|paced| paced.kicks_per_s)),
                fabric.map(|percent| format!("{percent:.1} %")).unwrap_or_default(),
                format!("{:.1}", of(|paced| paced.p50_us)),
                format!("{:.1}", of(|paced| paced.p99_us)),
                format!("{:.1}", of(|paced| paced.p99_9_us)),
            ]);
        }
    }
    let mut text = output::table(
        [
            "FRAMES/S",
            "SCHEME",
            "SENT/S",
            "LOST",
            "INTERRUPTS/S",
            "KICKS/S",
            "FABRIC CPU",
            "P50 µs",
            "P99 µs",
            "P99.9 µs",
        ],
        &rows,
    );
    let rings = if results.packed { "packed" } else { "split" };
    text += &format!("\n60 B, {rings} rings of {}\non  {}\n", results.entries, results.host);
    text
}
