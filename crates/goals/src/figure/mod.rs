//! Figures, bounds, and the verdict that follows from them.

mod bound;
mod statistics;
mod value;

pub use bound::{Bound, Verdict, judge, list};
pub use statistics::{Interval, Spread, median, percentile, ratio, slope};
pub use value::{Value, shown};
