//! Load generators, microguests, percentiles, reports.
