//! Times of a VM's vCPUs as tables, a chart and a histogram, for VMs of taut and of others.

use maud::{Markup, html};
use taut_api::statistics::{Column, Period, Series, VmStatistics, Wait};

use crate::chart::{self, Bar, Line, Unit};
use crate::frame::wide;
use crate::text;
use crate::view::about;

/// Upper ends of the histogram's classes, in percent of a vCPU's time.
const CLASSES: [f64; 7] = [0.1, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0];

/// Returns what a wait means for the VM, in a few words.
pub(super) fn meaning(wait: Wait) -> &'static str {
    match wait {
        Wait::Ready => "a vCPU is ready to run and waits for a pCPU",
        Wait::Throttled => "its CPU limit keeps it from running",
        Wait::Paged => "its vCPUs wait for memory from disk",
    }
}

/// Shows the waits of a VM that are above their limits; nothing without one.
pub(super) fn waits(times: &VmStatistics) -> Markup {
    let waits = times.waits();
    html! {
        @if !waits.is_empty() {
            ul.missing { @for (wait, percent) in waits {
                li {
                    span.state.bad { "waits" } ": " (meaning(wait)) ", " (text::percent(percent))
                    (if wait == Wait::Ready { " of the time " } else { " of one pCPU's time " }) (about(wait.code(), &wait.guide()))
                }
            } }
        }
    }
}

/// Shows run and ready time of each vCPU, and the other times of the VM.
pub(super) fn of_vcpus(times: &VmStatistics) -> Markup {
    let row = |name: String, run: f64, ready: f64, all: f64| {
        html! {
            tr {
                th scope="row" { (name) }
                td.number { (text::percent(run)) }
                td { meter min="0" max=(all) value=(format!("{run:.2}")) aria-label={ "Run time of " (name) } {} }
                td.number { (text::ready(ready)) }
                td {
                    meter min="0" max=(all) high=(all / 10.0) value=(format!("{ready:.2}"))
                        aria-label={ "Ready time of " (name) } {}
                }
            }
        }
    };
    let all = 100.0 * times.vcpus.len().max(1) as f64;
    let table = html! {
        table {
            thead { tr {
                th scope="col" { "vCPU" }
                th scope="colgroup" colspan="2" { "Run" }
                th scope="colgroup" colspan="2" { "Ready (ms of 20 s)" }
            } }
            tbody {
                (row("All vCPUs".to_owned(), times.run_percent, times.ready_percent, all))
                @for vcpu in &times.vcpus {
                    (row(format!("vCPU {}", vcpu.vcpu), vcpu.run_percent, vcpu.ready_percent, 100.0))
                }
            }
        }
    };
    html! {
        (waits(times))
        (wide("Run and ready time", &table))
        p.quiet {
            "Percent of one pCPU over " (text::duration(times.covered_ms)) " until " (text::time(times.to_ms)) ". "
            "Other threads of the VM: " (text::percent(times.others_percent)) ". "
            @if let Some(percent) = times.throttled_percent {
                "Kept from running by its CPU limit: " (text::percent(percent)) ". "
            }
            @if let Some(percent) = times.paged_percent {
                "Waiting for memory from disk: " (text::percent(percent)) ". "
            }
            "A vCPU that is ready could run and waits for a pCPU."
            @if times.vcpus.is_empty() {
                " QEMU does not name its threads (debug-threads=on), so those of vCPUs are among the others."
            }
        }
    }
}

/// Shows how run and ready time changed over the period, and how often vCPUs waited for how long.
pub(super) fn over_time(name: &str, period: Period, vcpus: usize, series: &Series) -> Markup {
    let run = chart::points(series, Column::RunPercent);
    let ready = chart::points(series, Column::ReadyPercent);
    let bars = histogram(vcpus, &ready);
    let step = text::duration(series.step_ms);
    html! {
        h3 { "Over time" }
        (wide("Chart of run and ready time", &chart::lines(
            &format!("Run and ready time of all vCPUs of {name} over {period}"),
            series.step_ms,
            Unit::Percent,
            &[Line { name: "Run", class: "rx", points: run }, Line { name: "Ready", class: "tx", points: ready }],
        )))
        h3 { "How often vCPUs waited, and how long" }
        (wide("Histogram of ready time", &chart::histogram(
            &format!("Ready time of {name} over {period}: number of samples of {step} by percent of a vCPU's time"),
            &bars,
        )))
        details {
            summary { "The histogram as a table" }
            (wide("Histogram of ready time as a table", &bar_table(&bars)))
        }
    }
}

/// Counts samples by the ready time of a vCPU, on average over all vCPUs of the VM.
fn histogram(vcpus: usize, ready: &[(u64, f64)]) -> Vec<Bar> {
    let class = |end: usize| match (end.checked_sub(1).map(|before| CLASSES[before]), CLASSES.get(end)) {
        (None, Some(to)) => format!("below {to}\u{a0}%"),
        (Some(from), Some(to)) => format!("{from} to {to}\u{a0}%"),
        (from, None) => format!("over {}\u{a0}%", from.unwrap_or_default()),
    };
    let mut bars: Vec<_> = (0..=CLASSES.len()).map(|end| Bar { name: class(end), count: 0 }).collect();
    for (_, all) in ready {
        let of_one = all / vcpus.max(1) as f64;
        bars[CLASSES.partition_point(|end| *end <= of_one)].count += 1;
    }
    bars
}

fn bar_table(bars: &[Bar]) -> Markup {
    html! {
        table {
            thead { tr {
                th scope="col" { "Ready time of a vCPU" }
                th.number scope="col" { "Samples" }
            } }
            tbody { @for bar in bars {
                tr { th scope="row" { (bar.name) } td.number { (text::count(bar.count)) } }
            } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_counted_by_the_time_of_a_vcpu() {
        let ready = [0.0, 0.1, 20.0, 19.9, 250.0].map(|percent| (0, percent));
        let counts: Vec<_> = histogram(2, &ready).into_iter().map(|bar| (bar.name, bar.count)).collect();
        let nonzero: Vec<_> = counts.iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counts.len(), CLASSES.len() + 1);
        assert_eq!(nonzero.iter().map(|(_, count)| count).sum::<u64>(), 5);
        assert_eq!((nonzero[0].0.as_str(), nonzero[0].1), ("below 0.1\u{a0}%", 2));
        assert_eq!((nonzero[1].0.as_str(), nonzero[1].1), ("5 to 10\u{a0}%", 1));
        assert_eq!((nonzero[2].0.as_str(), nonzero[2].1), ("10 to 20\u{a0}%", 1));
        assert_eq!((nonzero[3].0.as_str(), nonzero[3].1), ("over 50\u{a0}%", 1));
        assert!(histogram(0, &[(0, f64::NAN)]).iter().map(|bar| bar.count).sum::<u64>() == 1);
    }
}
