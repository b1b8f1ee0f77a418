//! Load generators, microguests, percentiles, reports.

pub mod latencies;
