//! `taut vm explain`: the decisions for a VM, each with its rule.

use taut_api::latency::Decision;
use taut_api::route::Vm;
use taut_api::vm::Phase;

use super::{pending, sensitivity};
use crate::output;

/// Renders the decisions as text.
pub(super) fn text(vm: &Vm) -> String {
    let mut text = String::new();
    if vm.status.phase == Phase::Failed {
        let reason = vm.status.reason.as_deref().unwrap_or("no reason is known");
        text += &format!("VM {} has failed: {reason}\n", vm.name);
    }
    let mut decisions = Vec::new();
    match &vm.status.latency {
        Some(latency) => {
            text += &format!("latency sensitivity {}\n", sensitivity::text(vm));
            text += &missing(&latency.missing);
            decisions.extend(&latency.decisions);
        }
        None => text += "latency sensitivity normal: the VM shares the host's pCPUs\n",
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

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(status: &serde_json::Value) -> String {
        let vm = serde_json::json!({ "name": "db1", "revision": 1, "spec": {}, "status": status });
        text(&serde_json::from_value(vm).unwrap())
    }

    #[test]
    fn first_hour_a_normal_or_failed_vm_is_explained_without_advice_about_another_setting() {
        let normal = "latency sensitivity normal: the VM shares the host's pCPUs\n";
        assert_eq!(explained(&serde_json::json!({ "phase": "running" })), normal);
        let failed = serde_json::json!({ "phase": "failed", "reason": "its disk is in use" });
        assert_eq!(explained(&failed), format!("VM db1 has failed: its disk is in use\n{normal}"));
    }
}
