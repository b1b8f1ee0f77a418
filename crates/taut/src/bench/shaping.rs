//! `taut bench shaping`: shapes a port group to one rate after another, and measures the frames
//! that arrive.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use taut_api::error::ErrorKind;
use taut_api::network::PortGroupSpec;
use taut_api::path;
use taut_api::route::PortGroup;
use taut_api::shaping::{Shape, Shaping};
use taut_api::units::BitRate;
use taut_api::{ApiError, Bytes, Name};
use taut_bench::load::{Asked, LoadOptions, Paced, Pacing, Setup};

use super::args;
use crate::client::Client;
use crate::output::{self, Format, Outcome};

/// Time that a changed document takes to be in force; the daemon answers when it is written.
const IN_FORCE: Duration = Duration::from_millis(200);
/// The burst is what the average rate carries in this time, but at least this many frames.
const BURST_MS: u64 = 50;
const BURST_FRAMES: u64 = 4;
/// The peak rate is this many times the average.
const PEAK: u64 = 10;
/// Length and number of the neighbours' measurements in each state.
const TURN: Duration = Duration::from_millis(50);
const TURNS: usize = 25;
/// Least number of frame intervals in a measurement.
const INTERVALS: f64 = 6.0;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// vhost-user sockets of two ports of one segment, on which taut listens.
    ///
    /// The first port is in the port group that is shaped, the second in another one.
    #[arg(num_args = 2, required = true, value_names = ["SOCKET", "SOCKET2"])]
    sockets: Vec<PathBuf>,
    /// The port group to shape. Its own shaping is restored at the end.
    #[arg(long)]
    portgroup: Name,
    /// Two more ports that are not shaped: their loss meanwhile is measured.
    #[arg(long, num_args = 2, value_names = ["SOCKET3", "SOCKET4"])]
    neighbours: Option<Vec<PathBuf>>,
    /// Directions to shape.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "to-switch,to-guest")]
    direction: Vec<Direction>,
    /// Bytes of a frame without its checksum, 60 to 65549; above 1518 it is TCP to be segmented.
    #[arg(long, default_value_t = 1518, value_name = "BYTES")]
    size: u32,
    /// Average rates.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1kbit,10kbit,64kbit,256kbit,1Mbit,10Mbit,100Mbit,1Gbit,2500Mbit,10Gbit,40Gbit,100Gbit",
        value_name = "RATE,…"
    )]
    average: Vec<BitRate>,
    /// Length of the measurement of each rate after its burst, in seconds.
    #[arg(long, default_value = "1", value_parser = args::seconds, value_name = "S")]
    duration: Duration,
    /// Seconds; leave out what takes longer (at 1 kbit/s, a frame of 64 KiB takes 524 seconds).
    #[arg(long, default_value = "30", value_parser = args::seconds, value_name = "S")]
    most: Duration,
    /// CPU of the generator.
    #[arg(long, value_name = "CPU")]
    cpu: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Direction {
    /// From the first port to the switch.
    ToSwitch,
    /// From the switch to the first port.
    ToGuest,
}

/// All results.
#[derive(Debug, Serialize)]
struct Report {
    /// Bytes of a frame.
    size: u32,
    rates: Vec<Line>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    neighbours: Vec<Beside>,
}

/// One rate.
#[derive(Debug, Serialize)]
struct Line {
    direction: Direction,
    average: u64,
    peak: u64,
    burst: u64,
    /// Rate in bit/s that the path carries in this direction with a shaper that does not limit.
    capacity: f64,
    /// The average is well below the capacity.
    limits: bool,
    /// Absent if the measurement would have taken too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    paced: Option<Paced>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_error_percent: Option<f64>,
    /// The larger of what was missing at the start and what was too much anywhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    burst_error_percent: Option<f64>,
}

/// Rate of the neighbours while the shaped port is idle, and while it offers too much.
#[derive(Debug, Serialize)]
struct Beside {
    direction: Direction,
    average: u64,
    alone_mpps: f64,
    loaded_mpps: f64,
    loss_percent: f64,
}

/// The port group, and its shaping before.
struct Group<'c> {
    client: &'c Client,
    path: String,
    spec: PortGroupSpec,
}

impl Group<'_> {
    fn shape(&self, shaping: Shaping) -> Outcome {
        let spec = PortGroupSpec { shaping, ..self.spec.clone() };
        self.client.put::<PortGroup>(&self.path, &spec)?;
        sleep(IN_FORCE);
        Ok(())
    }
}

pub(super) fn run(args: &Args, client: &Client, format: Format) -> Outcome {
    let path = path::PORTGROUP.of(&args.portgroup);
    let PortGroup { spec, .. } = client.get(&path)?;
    let group = Group { client, path, spec };
    let report = measure(args, &group);
    let restored = group.shape(group.spec.shaping);
    output::print(format, &report?, table);
    restored
}

fn measure(args: &Args, group: &Group<'_>) -> Result<Report, ApiError> {
    group.shape(Shaping::default())?;
    let neighbours = args.neighbours.as_ref().map(|sockets| options(args, sockets));
    let mut pacing =
        Pacing::connect(&options(args, &args.sockets), neighbours.as_ref()).map_err(unmeasured)?;
    let mut report = Report { size: args.size, rates: Vec::new(), neighbours: Vec::new() };
    for &direction in &args.direction {
        let open = asked(args, direction, Shape::MAX_RATE).steadily();
        let capacity = one(&mut pacing, group, direction, &open, f64::MAX)?.throughput;
        for &average in &args.average {
            let limits = (average.0 as f64) < 0.9 * capacity;
            let asked = asked(args, direction, average);
            // A burst that cannot be used up tells nothing.
            let asked = if limits { asked } else { asked.steadily() };
            let interval = f64::from(args.size) * 8.0 / average.0 as f64;
            let affordable = interval * INTERVALS < args.most.as_secs_f64();
            let paced =
                affordable.then(|| one(&mut pacing, group, direction, &asked, capacity)).transpose()?;
            report.rates.push(line(direction, &asked, capacity, limits, paced));
        }
        if args.neighbours.is_some() {
            report.neighbours.push(beside(args, &mut pacing, group, direction)?);
        }
    }
    Ok(report)
}

fn options(args: &Args, sockets: &[PathBuf]) -> LoadOptions {
    LoadOptions {
        sockets: <[PathBuf; 2]>::try_from(sockets.to_vec()).expect("clap takes two"),
        setup: Setup { size: args.size, in_order: false, ..Setup::default() },
        duration: args.duration,
        repeats: 1,
        settle: Duration::from_millis(50),
        cpu: args.cpu,
        ..LoadOptions::default()
    }
}

fn asked(args: &Args, direction: Direction, average: BitRate) -> Asked {
    let peak = average.0.saturating_mul(PEAK).min(Shape::MAX_RATE.0);
    let burst = (average.0 / 8 * BURST_MS / 1000).max(BURST_FRAMES * u64::from(args.size));
    let from = usize::from(direction == Direction::ToGuest);
    // The time at the peak rate is only a part of this; the rest is for slow machines.
    let most = args.most * 3 + args.duration;
    Asked { from, average: average.0, peak, burst, steady: args.duration, most }
}

fn one(
    pacing: &mut Pacing,
    group: &Group<'_>,
    direction: Direction,
    asked: &Asked,
    capacity: f64,
) -> Result<Paced, ApiError> {
    let shape =
        Shape { average: BitRate(asked.average), peak: Some(BitRate(asked.peak)), burst: Bytes(asked.burst) };
    group.shape(in_direction(direction, shape))?;
    // If the path carries less than the peak, the burst lasts longer.
    let reached = asked.peak.min((0.95 * capacity) as u64).max(asked.average);
    let paced = pacing.measure(&Asked { peak: reached, ..*asked }).map_err(unmeasured)?;
    // Without limits, waiting frames are soon gone, and the next shaper begins with its whole
    // burst.
    group.shape(Shaping::default())?;
    pacing.drain(Duration::from_millis(20)).map_err(unmeasured)?;
    Ok(paced)
}

fn in_direction(direction: Direction, shape: Shape) -> Shaping {
    match direction {
        Direction::ToSwitch => Shaping { to_switch: Some(shape), to_guest: None },
        Direction::ToGuest => Shaping { to_switch: None, to_guest: Some(shape) },
    }
}

fn line(direction: Direction, asked: &Asked, capacity: f64, limits: bool, paced: Option<Paced>) -> Line {
    let percent = |found: f64, wanted: u64| 100.0 * (found - wanted as f64) / wanted as f64;
    let burst_error = |paced: Paced| 100.0 * paced.burst_error(asked.burst as f64) / asked.burst as f64;
    Line {
        direction,
        average: asked.average,
        peak: asked.peak,
        burst: asked.burst,
        capacity,
        limits,
        paced,
        rate_error_percent: paced.map(|paced| percent(paced.rate, asked.average)),
        burst_error_percent: paced.filter(|_| limits).map(burst_error),
    }
}

/// Measures the neighbours alone and beside a shaped port that offers twice its rate, in turn.
fn beside(
    args: &Args,
    pacing: &mut Pacing,
    group: &Group<'_>,
    direction: Direction,
) -> Result<Beside, ApiError> {
    let average = BitRate(100_000_000);
    group.shape(in_direction(direction, Shape::steady(average)))?;
    let from = asked(args, direction, average).from;
    let mut turns = Vec::new();
    for _ in 0..TURNS {
        let mut turn = |offered| pacing.neighbours(from, offered, TURN).map_err(unmeasured);
        turns.push([turn(0)?, turn(2 * average.0)?]);
    }
    group.shape(Shaping::default())?;
    pacing.drain(Duration::from_millis(20)).map_err(unmeasured)?;
    let median = |figure: fn(&[f64; 2]) -> f64| {
        let mut figures: Vec<_> = turns.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    Ok(Beside {
        direction,
        average: average.0,
        alone_mpps: median(|[alone, _]| alone / 1e6),
        loaded_mpps: median(|[_, beside]| beside / 1e6),
        // Compared turn by turn, because other load on the machine lasts longer than a turn.
        loss_percent: median(|[alone, beside]| 100.0 * (alone - beside) / alone),
    })
}

fn unmeasured(error: impl std::fmt::Display) -> ApiError {
    ApiError::new(
        ErrorKind::Unavailable,
        format!("the shaping could not be measured: {error:#}"),
        "both ports must be on one segment, and the first port alone in its port group",
    )
}

fn table(report: &Report) -> String {
    let rows: Vec<_> = report.rates.iter().map(row).collect();
    let mut text = output::table(
        ["DIRECTION", "AVERAGE", "PEAK", "BURST", "RATE", "ERROR", "BURST FOUND", "ERROR", ""],
        &rows,
    );
    for Beside { direction, average, alone_mpps, loaded_mpps, loss_percent } in &report.neighbours {
        text += &format!(
            "neighbours of a port shaped {} {}: {alone_mpps:.3} Mpps alone, {loaded_mpps:.3} beside it, {loss_percent:.2} % less\n",
            output::word(direction),
            BitRate(*average),
        );
    }
    text + &format!("\nframes of {} bytes\n", report.size)
}

fn row(line: &Line) -> [String; 9] {
    let percent = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.2} %"));
    let note = match (line.paced, line.limits) {
        (None, _) => "takes too long".to_owned(),
        (_, true) => String::new(),
        (_, false) => format!("does not limit: {:.2} Gbit/s get through", line.capacity / 1e9),
    };
    [
        output::word(&line.direction),
        BitRate(line.average).to_string(),
        BitRate(line.peak).to_string(),
        Bytes(line.burst).to_string(),
        line.paced.map_or_else(String::new, |paced| format!("{:.0}", paced.rate)),
        percent(line.rate_error_percent),
        line.paced.map_or_else(String::new, |paced| format!("{:.0}", paced.burst[1])),
        percent(line.burst_error_percent),
        note,
    ]
}
