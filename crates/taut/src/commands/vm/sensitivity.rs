//! Latency sensitivity of a VM and how much of it is in force, in words.

use taut_api::latency::LatencyState;
use taut_api::placement::Numbers;
use taut_api::route::Vm;

use crate::output;

/// Renders the setting and its state.
pub(super) fn text(vm: &Vm) -> String {
    let setting = output::word(&vm.spec.vm.latency_sensitivity);
    let Some(latency) = &vm.status.latency else { return setting };
    let state = match latency.state {
        LatencyState::Waiting if vm.status.pid.is_none() => "in force once the VM runs",
        LatencyState::Waiting => "not yet in force: its vCPUs are not bound to their pCPUs",
        LatencyState::Granted => "in force",
        LatencyState::Partly => "partly in force",
    };
    let pcpus = match &latency.cpus[..] {
        [] => String::new(),
        cpus => format!(", exclusive pCPUs {}", Numbers(cpus.iter().copied().collect())),
    };
    format!("{setting} ({state}{pcpus})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(pid: Option<u32>, state: &str, cpus: &[u32]) -> String {
        let latency = serde_json::json!({ "state": state, "cpus": cpus });
        let vm = serde_json::json!({
            "name": "db1",
            "revision": 1,
            "spec": { "latency_sensitivity": "high" },
            "status": { "phase": "running", "pid": pid, "latency": latency }
        });
        text(&serde_json::from_value(vm).unwrap())
    }

    #[test]
    fn the_state_is_a_phrase() {
        assert_eq!(line(None, "waiting", &[]), "high (in force once the VM runs)");
        let bound = line(Some(7), "waiting", &[2, 3]);
        let expected = "not yet in force: its vCPUs are not bound to their pCPUs, exclusive pCPUs 2-3";
        assert_eq!(bound, format!("high ({expected})"));
        assert_eq!(line(Some(7), "granted", &[2, 5]), "high (in force, exclusive pCPUs 2,5)");
        assert_eq!(line(Some(7), "partly", &[]), "high (partly in force)");
    }
}
