//! `taut vm explain`: the decisions for a VM, each with its rule.

use taut_api::latency::Decision;
use taut_api::route::Vm;

use super::{pending, sensitivity};
use crate::output;

/// Renders the decisions as text.
pub(super) fn text(vm: &Vm) -> String {
    let name = &vm.name;
    let mut text = String::new();
    let mut decisions = Vec::new();
    match &vm.status.latency {
        Some(latency) => {
            text += &format!("latency sensitivity {}\n", sensitivity::text(vm));
            text += &missing(&latency.missing);
            decisions.extend(&latency.decisions);
        }
        None => {
            text += &format!(
                "{name} is not latency-sensitive: it shares the host like any process.\n\
                 taut vm set {name} --latency-sensitivity high --cpu-reservation full --memory-reservation full\n"
            );
        }
    }
    for resources in [&vm.status.resources, &vm.status.machine].into_iter().flatten() {
        text += &missing(&resources.missing);
        decisions.extend(&resources.decisions);
    }
    if decisions.is_empty() {
        return text;
    }
    let row = |decision: &&Decision| {
        let when = if decision.restart { "next start" } else { "now" };
        [decision.decision.clone(), when.to_owned(), decision.rule.clone()]
    };
    let rows: Vec<_> = decisions.iter().map(row).collect();
    text += "\n";
    text += &output::table(["DECISION", "TAKES EFFECT", "RULE"], &rows);
    let pending = pending::decisions(vm).len();
    if pending > 0 {
        let settings =
            if pending == 1 { "1 decision waits".to_owned() } else { format!("{pending} decisions wait") };
        text += &format!("\n{settings} for a restart: {}\n", pending::restart(vm));
    }
    text
}

fn missing(reasons: &[String]) -> String {
    reasons.iter().flat_map(|reason| ["missing: ", reason, "\n"]).collect()
}
