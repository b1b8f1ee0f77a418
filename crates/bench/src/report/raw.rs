//! Limits of the machine without any switch.

use serde::Serialize;

use super::Host;
use super::table::aligned;
use crate::measure::raw::Raw;

/// Everything that one `taut bench raw` found out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RawResults {
    /// Figures of the machine.
    #[serde(flatten)]
    pub raw: Raw,
    /// The machine.
    pub host: Host,
}

impl RawResults {
    /// Returns the results as aligned text.
    pub fn table(&self) -> String {
        let Self { raw, host } = self;
        let [first, second] = raw.cpus;
        let round_trip = match raw.ping_pong_ns {
            None => "cache line: there is only one CPU to use\n".to_owned(),
            Some(spread) => {
                let figures = [spread.min, spread.median, spread.p99].map(|ns| format!("{ns:.1}"));
                let [min, median, p99] = figures;
                let row = [format!("CPU {first} ↔ CPU {second}"), min, median, p99];
                table(["CACHE LINE ROUND TRIP", "MIN NS", "MEDIAN NS", "P99 NS"], vec![row])
            }
        };
        let copied = raw.memcpy.iter().map(|copying| {
            let (bytes, bits) = (copying.gbyte_s, copying.gbyte_s * 8.0);
            [format!("{} B", copying.size), format!("{bytes:.1}"), format!("{bits:.0}")]
        });
        let copies = table(["COPIED AT A TIME", "GB/S", "GBIT/S"], copied.collect());
        format!("{round_trip}\n{copies}\non  {host}\n")
    }
}

fn table<const N: usize>(header: [&str; N], rows: Vec<[String; N]>) -> String {
    let rows = std::iter::once(header.map(str::to_owned)).chain(rows);
    aligned(&rows.map(Vec::from).collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::raw::{Copying, Spread};
    use crate::report::example_host;

    #[test]
    fn raw_figures_as_table() {
        let raw = Raw {
            cpus: [0, 1],
            ping_pong_ns: Some(Spread { min: 112.26, median: 140.0, p99: 260.5 }),
            memcpy: vec![Copying { size: 1518, gbyte_s: 61.44 }, Copying { size: 1 << 20, gbyte_s: 9.96 }],
        };
        insta::assert_snapshot!(RawResults { raw, host: example_host() }.table(), @"
        CACHE LINE ROUND TRIP  MIN NS  MEDIAN NS  P99 NS
        CPU 0 ↔ CPU 1           112.3      140.0   260.5

        COPIED AT A TIME  GB/S  GBIT/S
        1518 B            61.4     492
        1048576 B         10.0      80

        on  lab1: 2 × Example CPU, Debian, Linux 6.18.0, tcg, taut 0.1.0
        ");
    }
}
