//! The page of a VM that another program has started: times of its vCPUs, memory and disks.

use maud::{Markup, html};
use taut_api::printable::{MOST_NAME, printable};
use taut_api::statistics::{Period, Series, VmStatistics};

use crate::frame::{Frame, Page, Section};
use crate::text;
use crate::view::{periods, times};

/// Facts of the page.
#[derive(Debug)]
pub struct Foreign {
    /// Process of the VM.
    pub pid: u32,
    /// Its times within the period.
    pub statistics: VmStatistics,
    /// The same over time; absent without samples.
    pub series: Option<Series>,
    /// The period.
    pub period: Period,
}

/// Renders the page.
pub fn page(frame: &Frame, view: &Foreign) -> String {
    let Foreign { pid, statistics, series, period } = view;
    let name = printable(&statistics.name, MOST_NAME);
    let body = html! {
        p #summary role="status" {
            "Process " (pid) ". Another program has started this VM. taut reads its times and changes nothing."
        }
        section aria-labelledby="times-title" {
            h2 #times-title { "Run and ready time" }
            (periods(&text::process_address(*pid), &period.to_string()))
            div #times { (times::of_vcpus(statistics)) }
            @if let Some(series) = series {
                div #evidence { (times::over_time(&name, *period, statistics.vcpus.len(), series)) }
            }
        }
        section #use { h2 { "Memory and disks" } (memory(statistics)) }
    };
    frame.render(&Page {
        title: format!("VM {name} of another program"),
        section: Some(Section::Vms),
        live: true,
        refresh: false,
        body,
    })
}

fn memory(statistics: &VmStatistics) -> Markup {
    let bytes = |value: Option<f64>| value.map_or("not known".to_owned(), |value| text::bytes(value as u64));
    let rate =
        |value: Option<f64>| value.map_or("not known".to_owned(), |value| text::bytes(value as u64) + "/s");
    html! {
        dl {
            dt { "Memory of the process" } dd { (bytes(statistics.memory_bytes)) }
            dt { "Swapped out" } dd { (bytes(statistics.swapped_bytes)) }
            dt { "Read from disks" } dd { (rate(statistics.disk_read_bytes_per_s)) }
            dt { "Written to disks" } dd { (rate(statistics.disk_written_bytes_per_s)) }
        }
    }
}
