//! How exactly a port is shaped (spec row VN-4): one port sends as much as it can, and the other
//! records when frames arrive.
//!
//! The arrivals alone, by this process's clock, give two results:
//!
//! * The *burst*: bytes beyond the average rate. From the first frame on it tells what there was to
//!   use; in any interval it tells what must not be exceeded.
//! * The *rate*: the change of that excess once the burst is used up. If the rate is right, it does
//!   not change.
//!
//! On a shared machine either side may be descheduled for milliseconds. A frame arrived between two
//! reads of the ring, so a burst is given as the bounds that hold for any time in between. The rate
//! is taken from the most punctual frames of the first and the last quarter of its phase, because a
//! late frame only looks like a lack.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::frames::{Frames, Touch};
use super::port::Port;
use super::{LoadOptions, learn};
use crate::measure::raw;

/// Least number of frames in the steady phase.
const FRAMES: usize = 4;

/// Two ports with frames ready to send.
pub struct Pacing {
    ports: [Port; 2],
    size: u32,
    burst: usize,
    neighbours: Option<Neighbours>,
}

struct Neighbours {
    ports: [Port; 2],
    touch: Touch,
}

/// The shaping in force between the two ports, and the length of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Index of the sending port.
    pub from: usize,
    /// Average rate in bit/s.
    pub average: u64,
    /// Rate in bit/s at which the burst is used up: the peak rate, or less if the path carries
    /// less.
    pub peak: u64,
    /// Burst in bytes.
    pub burst: u64,
    /// Length of the phase after the burst.
    pub steady: Duration,
    /// Longest time that a measurement may take.
    pub most: Duration,
}

impl Asked {
    /// Returns the same shaping without a burst.
    #[must_use]
    pub fn steadily(self) -> Self {
        Self { peak: self.average, ..self }
    }
}

/// Results of one measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Paced {
    /// Frames that arrived.
    pub frames: u64,
    /// Seconds from the first frame to the last.
    pub seconds: f64,
    /// Bits per second after the burst, over all frames.
    pub throughput: f64,
    /// Bits per second after the burst, by the most punctual frames.
    pub rate: f64,
    /// Bounds of the most bytes beyond the average since the first frame.
    pub burst: [f64; 2],
    /// Lower bound of the most bytes beyond the average in any interval.
    pub burst_anywhere: f64,
}

impl Paced {
    /// Returns how far the burst is from the wanted one in bytes: negative if it is too small, zero
    /// if the bounds contain it.
    pub fn burst_error(&self, wanted: f64) -> f64 {
        let [least, most] = self.burst;
        let missing = (most - wanted).min(0.0);
        let too_much = (least.max(self.burst_anywhere) - wanted).max(0.0);
        if too_much > -missing { too_much } else { missing }
    }
}

/// Frames that were found together.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    /// Seconds at the read of the ring before, and at the one that found them.
    after: f64,
    by: f64,
    frames: u64,
}

impl Pacing {
    /// Connects both ports, and the neighbours' ports if there are any. None may be shaped yet.
    pub fn connect(options: &LoadOptions, neighbours: Option<&LoadOptions>) -> Result<Self> {
        options.setup.check()?;
        if let Some(cpu) = options.cpu {
            raw::pin(cpu).with_context(|| format!("cannot run on CPU {cpu}"))?;
        }
        let frames = [0, 1].map(|port| Frames::new(port, options.setup.size, 1, 1));
        let mut ports = Port::connect_both(options, &frames)?;
        learn(&mut ports, &frames, options, 0..1)?;
        let neighbours = neighbours.map(|options| {
            options.setup.check()?;
            let frames = [0, 1].map(|port| Frames::new(port, options.setup.size, 1, 1));
            let mut ports = Port::connect_both(options, &frames)?;
            learn(&mut ports, &frames, options, 1..2)?;
            anyhow::Ok(Neighbours { ports, touch: frames[0].only(1) })
        });
        Ok(Self {
            ports,
            size: options.setup.size,
            burst: options.setup.burst,
            neighbours: neighbours.transpose()?,
        })
    }

    /// Receives frames under way until none has come for `quiet`.
    pub fn drain(&mut self, quiet: Duration) -> Result<()> {
        let mut last = Instant::now();
        while last.elapsed() < quiet {
            for port in &mut self.ports {
                // The port may have to reclaim buffers, and the switch may sleep.
                port.kick();
                if port.receive(false, &mut |_, _| ())? > 0 {
                    last = Instant::now();
                }
            }
        }
        Ok(())
    }

    /// Sends as much as there is room for and records what arrives. The shaper must have been idle
    /// before.
    pub fn measure(&mut self, asked: &Asked) -> Result<Paced> {
        let size = u64::from(self.size);
        // At the end of this time the burst is used up, with what arrived meanwhile at the average
        // rate.
        let share = asked.peak as f64 / (asked.peak - asked.average).max(1) as f64;
        let used_up = if asked.peak > asked.average { asked.burst as f64 * share } else { 0.0 };
        let used_up = used_up as u64 / size + 2;
        let mut arrivals = Vec::with_capacity(1 << 16);
        let (mut frames, mut steady) = (0, None);
        let begun = Instant::now();
        let mut looked = begun;
        loop {
            self.ports[asked.from].send(self.burst, &mut |_| ())?;
            self.ports[asked.from].kick();
            let got = self.ports[1 - asked.from].receive(false, &mut |_, _| ())?;
            let now = Instant::now();
            if got > 0 {
                self.ports[1 - asked.from].kick();
                frames += got as u64;
                let [after, by] = [looked, now].map(|time| (time - begun).as_secs_f64());
                arrivals.push(Arrival { after, by, frames: got as u64 });
                if steady.is_none() && frames >= used_up {
                    steady = Some((arrivals.len() - 1, now));
                }
                if let Some((first, since)) = steady
                    && now - since >= asked.steady
                    && arrivals.len() - first > FRAMES
                {
                    return Ok(figures(&arrivals, first, size, asked.average));
                }
            }
            looked = now;
            if now - begun > asked.most {
                bail!("{frames} frames of {size} bytes arrived in {:?}: too few", asked.most);
            }
        }
    }

    /// Returns frames per second between the neighbours, who send as much as there is room for,
    /// while port `from` offers `offered` bits per second. With 0 nothing else happens.
    pub fn neighbours(&mut self, from: usize, offered: u64, duration: Duration) -> Result<f64> {
        let Some(Neighbours { ports, touch }) = &mut self.neighbours else {
            bail!("there are no neighbours")
        };
        let per_frame = u64::from(self.size) * 8;
        let (mut received, mut sent) = (0, 0);
        let begun = Instant::now();
        let mut now = begun;
        while now - begun < duration {
            for _ in 0..16 {
                ports[0].send(self.burst, &mut |frame| touch.apply(frame))?;
                received += ports[1].receive(false, &mut |_, _| ())?;
            }
            now = Instant::now();
            let due = u128::from(offered) * (now - begun).as_nanos() / 1_000_000_000 / u128::from(per_frame);
            let due = (due as usize).saturating_sub(sent).min(self.burst);
            // Send in bursts, as guests do: a kick for each frame would take more time here than in
            // the switch.
            if due >= self.burst / 2 {
                let taken = self.ports[from].send(due, &mut |_| ())?;
                // Frames without room are not sent later.
                sent += if taken < due { due } else { taken };
            }
            // Receive in either case, so that both cost the same.
            self.ports[1 - from].receive(false, &mut |_, _| ())?;
            for port in self.ports.iter().chain(ports.iter()) {
                port.kick();
            }
        }
        Ok(received as f64 / (now - begun).as_secs_f64())
    }
}

fn figures(arrivals: &[Arrival], steady: usize, size: u64, average: u64) -> Paced {
    let bytes = |frames: u64| (frames * size) as f64;
    let average = average as f64 / 8.0;
    let (first, last) = (arrivals[0], arrivals[arrivals.len() - 1]);
    let mut paced = Paced {
        frames: 0,
        seconds: last.by - first.by,
        throughput: 0.0,
        rate: 0.0,
        burst: [0.0; 2],
        burst_anywhere: 0.0,
    };
    let since = arrivals[steady].by;
    let quarter = (last.by - since) / 4.0;
    // (time, excess) of the most punctual frame in each quarter.
    let (mut early, mut late) = ((0.0, f64::MIN), (0.0, f64::MIN));
    let (mut least, mut at_start) = (f64::MAX, 0);
    for (index, arrival) in arrivals.iter().enumerate() {
        // An interval begins just before a frame, and ends just behind one.
        least = least.min(bytes(paced.frames) - average * arrival.after);
        paced.frames += arrival.frames;
        let excess = bytes(paced.frames) - average * arrival.by;
        let [least_burst, most_burst] = &mut paced.burst;
        *least_burst = least_burst.max(excess + average * first.after);
        *most_burst = most_burst.max(bytes(paced.frames) - average * (arrival.after - first.by));
        paced.burst_anywhere = paced.burst_anywhere.max(excess - least);
        if index == steady {
            at_start = paced.frames;
        }
        if index >= steady && arrival.by <= since + quarter && excess > early.1 {
            early = (arrival.by, excess);
        }
        if index > steady && arrival.by >= last.by - quarter && excess > late.1 {
            late = (arrival.by, excess);
        }
    }
    paced.throughput = 8.0 * bytes(paced.frames - at_start) / (last.by - since);
    paced.rate = 8.0 * (average + (late.1 - early.1) / (late.0 - early.0));
    paced
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arrivals through a token bucket without any error.
    fn ideal(average: f64, burst: f64, size: f64) -> Vec<Arrival> {
        let at_once = (burst / size) as u64;
        let arrival = |seconds: f64, frames| Arrival { after: seconds - 1e-7, by: seconds, frames };
        let rest = (at_once + 1..at_once + 200)
            .map(|number| arrival((number as f64 * size - burst) * 8.0 / average, 1));
        std::iter::once(arrival(0.0, at_once)).chain(rest).collect()
    }

    #[test]
    fn an_ideal_token_bucket_has_no_error() {
        let paced = figures(&ideal(1e6, 10_000.0, 500.0), 10, 500, 1_000_000);
        assert!((paced.rate - 1e6).abs() < 1.0 && (paced.throughput - 1e6).abs() < 1.0, "{paced:?}");
        assert!(paced.burst_error(10_000.0).abs() < 1.0, "{paced:?}");
        assert!((paced.burst_error(12_000.0) + 2000.0).abs() < 1.0, "{paced:?}");
    }

    #[test]
    fn late_reads_of_the_ring_do_not_change_the_result() {
        let mut arrivals = ideal(1e6, 10_000.0, 500.0);
        for index in [0, 50, 208 - 10] {
            arrivals[index].by += 0.003;
        }
        let paced = figures(&arrivals, 10, 500, 1_000_000);
        assert!((paced.rate - 1e6).abs() < 1.0, "{paced:?}");
        assert!(paced.burst_error(10_000.0).abs() < 1.0, "{paced:?}");
    }

    #[test]
    fn a_wrong_rate_and_a_second_burst_are_seen() {
        let mut arrivals = ideal(1e6, 10_000.0, 500.0);
        let paced = figures(&ideal(0.9e6, 10_000.0, 500.0), 10, 500, 1_000_000);
        assert!((paced.rate - 0.9e6).abs() < 1.0, "{paced:?}");
        for arrival in &mut arrivals[100..] {
            arrival.after += 1.0;
            arrival.by += 1.0;
        }
        arrivals[100].frames += 300;
        let paced = figures(&arrivals, 10, 500, 1_000_000);
        assert!(paced.burst_error(10_000.0) > 140_000.0, "{paced:?}");
    }
}
