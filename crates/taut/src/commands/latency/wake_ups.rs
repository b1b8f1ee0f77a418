//! Wake-up latency as the guest sees it: percentiles per vCPU, and a histogram.

use std::time::Duration;

use serde::Serialize;
use taut_api::ApiError;
use taut_bench::agent::Client as Agent;
use taut_bench::agent::protocol::{Answer, Request, WakeUps as Wanted, Woken};
use taut_bench::measure::latencies::Latencies;

use crate::agent::{self, PATIENCE};
use crate::output;

/// Time from one wake-up to the next, in microseconds.
const INTERVAL_US: u64 = 1000;

/// Length of the longest bar in characters.
const BAR: usize = 50;

/// Wake-up latencies on one vCPU.
#[derive(Debug, Serialize)]
pub(super) struct WakeUps {
    vcpu: u32,
    count: u64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p99_9_us: f64,
    p99_99_us: f64,
    longest_us: f64,
    /// Pairs `[nanoseconds, wake-ups]`, ascending.
    late_ns: Latencies,
}

impl From<Woken> for WakeUps {
    fn from(Woken { cpu, late_ns }: Woken) -> Self {
        Self {
            vcpu: cpu,
            count: late_ns.count(),
            p50_us: late_ns.quantile_us(0.5),
            p90_us: late_ns.quantile_us(0.9),
            p99_us: late_ns.quantile_us(0.99),
            p99_9_us: late_ns.quantile_us(0.999),
            p99_99_us: late_ns.quantile_us(0.9999),
            longest_us: late_ns.quantile_us(1.0),
            late_ns,
        }
    }
}

/// Has the guest's agent measure.
pub(super) fn ask(guest: &mut Agent, duration: Duration) -> Result<Vec<WakeUps>, ApiError> {
    let duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let wanted = Request::WakeUps(Wanted { interval_us: INTERVAL_US, duration_ms });
    match guest.call(wanted, duration + PATIENCE) {
        Ok(Answer::WakeUps(woken)) => Ok(woken.into_iter().map(WakeUps::from).collect()),
        Ok(_) => Err(agent::failed(&guest.confused())),
        Err(error) => Err(agent::failed(&error)),
    }
}

/// Renders table and histogram.
pub(super) fn text(wake_ups: &[WakeUps]) -> String {
    let rows: Vec<_> = wake_ups
        .iter()
        .map(|of| {
            let us = |value: f64| format!("{value:.1}");
            [
                of.vcpu.to_string(),
                of.count.to_string(),
                us(of.p50_us),
                us(of.p90_us),
                us(of.p99_us),
                us(of.p99_9_us),
                us(of.p99_99_us),
                us(of.longest_us),
            ]
        })
        .collect();
    let head = ["VCPU", "WAKE-UPS", "P50", "P90", "P99", "P99.9", "P99.99", "LONGEST"];
    let mut all = Latencies::new();
    for of in wake_ups {
        all.add(&of.late_ns);
    }
    format!(
        "\nhow late threads wake up in the guest, µs\n{}\n{}",
        output::table(head, &rows),
        histogram(&all)
    )
}

/// Renders one line per doubling of the latency, from the first to the last that has wake-ups.
fn histogram(all: &Latencies) -> String {
    let mut lines: Vec<(u64, u64)> = Vec::new();
    for (ns, count) in Vec::from(all.clone()) {
        let below_us = ns.div_ceil(1000).max(1).next_power_of_two();
        match lines.last_mut() {
            Some((line, counted)) if *line == below_us => *counted += count,
            _ => {
                if let Some(&(mut line, _)) = lines.last() {
                    while line * 2 < below_us {
                        line *= 2;
                        lines.push((line, 0));
                    }
                }
                lines.push((below_us, count));
            }
        }
    }
    let most = lines.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
    let rows: Vec<_> = lines
        .iter()
        .map(|(below_us, count)| {
            let bar = (count * BAR as u64).div_ceil(most) as usize;
            [below_us.to_string(), count.to_string(), "#".repeat(bar)]
        })
        .collect();
    output::table(["UP TO µs", "WAKE-UPS", ""], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_each_and_a_histogram_of_all() {
        let woken = |cpu, late: &[(u64, u64)]| WakeUps::from(Woken { cpu, late_ns: late.to_vec().into() });
        let text = text(&[
            woken(0, &[(900, 10), (1_900, 80), (60_000, 10)]),
            woken(1, &[(1_000, 20), (2_000, 79), (9_000_000, 1)]),
        ]);
        insta::assert_snapshot!(text, @r"

        how late threads wake up in the guest, µs
        VCPU  WAKE-UPS  P50  P90   P99   P99.9  P99.99  LONGEST
           0       100  1.9  1.9  60.0    60.0    60.0     60.0
           1       100  2.0  2.0   2.0  9003.0  9003.0   9003.0

        UP TO µs  WAKE-UPS
               1        30  ##########
               2       159  ##################################################
               4         0
               8         0
              16         0
              32         0
              64        10  ####
             128         0
             256         0
             512         0
            1024         0
            2048         0
            4096         0
            8192         0
           16384         1  #
        ");
    }

    #[test]
    fn nothing_measured_is_an_empty_table() {
        assert_eq!(histogram(&Latencies::new()).lines().count(), 1);
    }
}
