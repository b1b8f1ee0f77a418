//! Wake-ups, measured like cyclictest (spec row LS-10): one thread for each CPU sleeps until a time
//! and then checks how late it is.

use std::io;
use std::num::NonZeroU64;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};

use super::failed;
use crate::agent::Run;
use crate::agent::protocol::{AgentError, WakeUps, Woken};
use crate::measure::latencies::Latencies;

/// Measures on every CPU that this process may use.
pub(super) fn run(wanted: &WakeUps, run: &Run<'_>) -> Result<Vec<Woken>, AgentError> {
    if wanted.interval_us == 0 {
        return Err(AgentError::new("the interval is 0 µs", "use 1 µs or more"));
    }
    let (interval, duration) =
        (Duration::from_micros(wanted.interval_us), Duration::from_millis(wanted.duration_ms));
    let measured = sched_getaffinity(None).map_err(io::Error::from).and_then(|may| {
        run.started();
        thread::scope(|scope| {
            let cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| may.is_set(cpu));
            let threads: Vec<_> = cpus
                .map(|cpu| {
                    let body = move || on_cpu(cpu, interval, duration, run);
                    Ok((cpu, thread::Builder::new().name(format!("wake{cpu}")).spawn_scoped(scope, body)?))
                })
                .collect::<io::Result<_>>()?;
            threads
                .into_iter()
                .map(|(cpu, thread)| {
                    let late_ns = thread.join().unwrap_or_else(|_| Err(io::Error::other("it panicked")))?;
                    Ok(Woken { cpu: cpu as u32, late_ns })
                })
                .collect()
        })
    });
    measured.map_err(|error: io::Error| failed("wake-ups could not be measured", &error))
}

fn on_cpu(cpu: usize, interval: Duration, duration: Duration, run: &Run<'_>) -> io::Result<Latencies> {
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only)?;
    // With its default slack the kernel may wake an ordinary thread 50 µs late.
    set_current_timer_slack(NonZeroU64::new(1))?;
    let mut late = Latencies::new();
    let mut due = Instant::now();
    let end = due + duration;
    while due < end && !run.is_stopped() {
        due += interval;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let now = Instant::now();
        late.record(to_a_hundredth(now.saturating_duration_since(due)));
        // Skip the wake-ups that were slept through, so that each sample is a wake-up.
        if now > due + interval {
            due = now;
        }
    }
    Ok(late)
}

/// Rounds to about 1 %, which bounds the length of the answer for many CPUs.
fn to_a_hundredth(late: Duration) -> Duration {
    const BITS: u32 = 7;
    let ns = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
    let dropped = (u64::BITS - BITS).saturating_sub(ns.leading_zeros());
    Duration::from_nanos(ns >> dropped << dropped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Stop;

    #[test]
    fn each_cpu_reports_how_late_its_thread_was() {
        let (stop, nothing) = (Stop::default(), || {});
        let wanted = WakeUps { interval_us: 1000, duration_ms: 50 };
        let woken = super::run(&wanted, &Run::new(&stop, &nothing)).unwrap();
        assert_eq!(woken.len(), thread::available_parallelism().unwrap().get());
        for Woken { late_ns, .. } in woken {
            assert!((1..=50).contains(&late_ns.count()), "{}", late_ns.count());
        }
    }

    #[test]
    fn times_are_rounded_to_one_percent() {
        for ns in (0..60).map(|bit| (1_u64 << bit) + bit * bit).chain([0, 127, 128, 129]) {
            let kept = to_a_hundredth(Duration::from_nanos(ns)).as_nanos() as u64;
            assert!(kept <= ns && ns - kept <= ns / 64, "{ns} {kept}");
            assert!(ns > 127 || kept == ns, "{ns} {kept}");
        }
    }

    #[test]
    fn a_stopped_measurement_ends() {
        let (stop, nothing) = (Stop::default(), || {});
        stop.raise();
        let wanted = WakeUps { interval_us: 1, duration_ms: 3_600_000 };
        assert!(super::run(&wanted, &Run::new(&stop, &nothing)).is_ok());
        let none = WakeUps { interval_us: 0, ..wanted };
        assert!(super::run(&none, &Run::new(&stop, &nothing)).is_err());
    }
}
