//! Counters over time, in a file.
//!
//! A *subject* is something that has counters: a port, for example. About every second, the owner
//! of a [`History`] records a reading of each subject. The history makes totals of the readings
//! that never go back, keeps them as samples of three densities, and answers how much was counted
//! within any period.
//!
//! ```text
//!  reading ── totals ──► sample ── thinning ──► chunk ──► file (SQLite)
//!             never go             second, 20 s,              pruned
//!             back                 5 minutes                  by age
//! ```
//!
//! A chunk grows in memory. What has been added to it is appended to the file with each write; the
//! chunk itself is written once, when it is full, and is never changed.
//!
//! Samples hold totals, not rates: an average over a period needs two samples, whatever is between
//! them, and a sample that is lost makes no other one wrong.
//!
//! The modules are layers. Each imports only from those above it in this list:
//!
//! * [`values`]: totals of counters at one point in time, or their growth.
//! * [`reading`]: counters that could be read.
//! * [`timeline`]: time that no change of the clock disturbs.
//! * [`thinning`]: which samples are kept for how long.
//! * [`totals`]: readings that go back become totals that do not.
//! * [`chunk`]: samples, and several of them as bytes.
//! * [`file`]: the file.
//! * [`series`]: growth step by step, for charts.
//! * [`growing`]: the newest samples of one density of a subject.
//! * [`subject`]: a subject, and when its samples are due.
//! * [`history`]: all of it together.

mod chunk;
mod file;
mod growing;
mod history;
mod reading;
mod series;
mod subject;
pub mod thinning;
mod timeline;
mod totals;
mod values;

pub use file::FileError;
pub use history::{Counted, History};
pub use reading::Reading;
pub use series::{Point, Series};
pub use timeline::{Clocks, Timeline};
pub use values::Values;
