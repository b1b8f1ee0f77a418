//! Conditions of a `taut bench neighbours` or `puts` result. Repeats of all conditions alternate,
//! so figures are compared repeat by repeat.

use crate::figure::{Value, median};
use crate::machine::Doc;
use crate::reason::Measured;
use crate::rounds::paired;

/// Figure of each repeat under a condition.
pub(super) fn figures(report: &Doc, condition: &str, figure: &str) -> Measured<Vec<f64>> {
    find(report, condition)?.numbers("configuration.repeats", figure)
}

/// Median of a figure under a condition.
pub(super) fn middle(report: &Doc, condition: &str, figure: &str) -> Measured<f64> {
    median(&figures(report, condition, figure)?)
}

/// Count beside the latencies of each repeat, such as the neighbours' work.
pub(super) fn beside(report: &Doc, condition: &str, count: &str) -> Measured<Vec<f64>> {
    find(report, condition)?.numbers("beside", count)
}

/// Ratio of a figure under two conditions.
pub(super) fn ratio(report: &Doc, figure: &str, over: &str, under: &str) -> Measured<Value> {
    paired(&figures(report, over, figure)?, &figures(report, under, figure)?)
}

/// The neighbours' work under `high`, in percent of that under `normal`.
pub(super) fn kept(report: &Doc) -> Measured<Value> {
    let [high, normal] = ["high", "normal"].map(|condition| beside(report, condition, "work_per_s"));
    let high: Vec<f64> = high?.iter().map(|work| 100.0 * work).collect();
    paired(&high, &normal?)
}

fn find(report: &Doc, condition: &str) -> Measured<Doc> {
    report.find("conditions", &[("name", condition)])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn figures_are_compared_repeat_by_repeat() {
        let condition = |name: &str, p99: [f64; 3], work: [f64; 3]| {
            json!({"name": name,
                   "configuration": {"repeats": p99.map(|p99| json!({"p99_us": p99}))},
                   "beside": work.map(|work| json!({"work_per_s": work}))})
        };
        let normal = condition("normal", [100.0, 2000.0, 30.0], [10.0, 20.0, 30.0]);
        let high = condition("high", [10.0, 100.0, 2.0], [6.0, 12.0, 15.0]);
        let report = Doc::from(json!({"conditions": [normal, high]}));
        assert_eq!(ratio(&report, "p99_us", "normal", "high").map(|ratio| ratio.value), Ok(15.0));
        assert_eq!(kept(&report).map(|kept| kept.value), Ok(60.0));
        assert!(ratio(&report, "p99_us", "normal", "native").is_err());
        assert!(ratio(&report, "p50_us", "normal", "high").is_err());
    }
}
