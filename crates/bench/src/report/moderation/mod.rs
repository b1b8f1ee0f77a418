//! Moderation schemes side by side: interrupts, CPU and latency of each at each load.

mod picture;

use serde::{Deserialize, Serialize};

use super::figures::median;
use super::{Host, PictureError};
use crate::paced::Paced;

/// Results of one `taut bench moderation`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModerationResults {
    /// The host.
    pub host: Host,
    /// Entries of each ring.
    pub entries: u16,
    /// Packed rings were asked for.
    pub packed: bool,
    /// One entry for each scheme and load, in the order of measurement.
    pub cells: Vec<Cell>,
}

/// One scheme at one load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The scheme as it is written on the command line.
    pub scheme: String,
    /// Counts of the load generator.
    #[serde(flatten)]
    pub paced: Paced,
    /// Percent of one CPU that the fabric used; none if it could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric_percent: Option<f64>,
}

impl ModerationResults {
    /// Returns the schemes in order of their first measurement.
    pub fn schemes(&self) -> Vec<&str> {
        let mut schemes: Vec<&str> = Vec::new();
        for cell in &self.cells {
            if !schemes.contains(&cell.scheme.as_str()) {
                schemes.push(&cell.scheme);
            }
        }
        schemes
    }

    /// Returns the loads in frames per second, ascending.
    pub fn rates(&self) -> Vec<u32> {
        let mut rates: Vec<u32> = self.cells.iter().map(|cell| cell.paced.rate).collect();
        rates.sort_unstable();
        rates.dedup();
        rates
    }

    /// Returns the median of one figure for a scheme at a load.
    pub fn median(&self, scheme: &str, rate: u32, of: impl Fn(&Cell) -> Option<f64>) -> Option<f64> {
        let cells = self.cells.iter().filter(|cell| cell.scheme == scheme && cell.paced.rate == rate);
        median(cells.filter_map(of).collect())
    }

    /// Returns the results as an SVG picture.
    ///
    /// # Errors
    /// Only if the drawing library fails.
    pub fn svg(&self) -> Result<String, PictureError> {
        picture::render(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example_host;

    fn cell(scheme: &str, rate: u32, interrupts_per_s: f64) -> Cell {
        let paced = Paced {
            rate,
            sent_per_s: f64::from(rate),
            lost: 0,
            interrupts_per_s,
            kicks_per_s: 0.0,
            p50_us: 5.0,
            p99_us: 9.0,
            p99_9_us: 30.0,
        };
        Cell { scheme: scheme.to_owned(), paced, fabric_percent: Some(40.0) }
    }

    fn results() -> ModerationResults {
        let cells = vec![
            cell("rbc:4000", 10_000, 4010.0),
            cell("disabled", 10_000, 10_000.0),
            cell("rbc:4000", 100, 100.0),
            cell("rbc:4000", 10_000, 3990.0),
            cell("rbc:4000", 10_000, 9000.0),
        ];
        ModerationResults { host: example_host(), entries: 256, packed: false, cells }
    }

    #[test]
    fn repeats_are_summed_up_by_their_median() {
        let results = results();
        assert_eq!(results.schemes(), ["rbc:4000", "disabled"]);
        assert_eq!(results.rates(), [100, 10_000]);
        let interrupts =
            |scheme, rate| results.median(scheme, rate, |cell| Some(cell.paced.interrupts_per_s));
        assert_eq!(interrupts("rbc:4000", 10_000), Some(4010.0));
        assert_eq!(interrupts("disabled", 10_000), Some(10_000.0));
        assert_eq!(interrupts("disabled", 100), None);
    }

    #[test]
    fn the_picture_names_every_scheme_and_load() {
        let svg = results().svg().unwrap();
        for word in ["disabled", "rbc:4000", "10 k", "interrupts", "lab1"] {
            assert!(svg.contains(word), "{word} is not in the picture");
        }
    }

    #[test]
    fn json_is_read_as_it_was_written() {
        let text = serde_json::to_string(&results()).unwrap();
        assert_eq!(serde_json::from_str::<ModerationResults>(&text).unwrap(), results());
    }
}
