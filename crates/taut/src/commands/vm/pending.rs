//! Settings of a running VM that wait for its next start.

use taut_api::latency::Decision;
use taut_api::route::Vm;

/// Returns each decision for the VM that takes effect when it is started again.
pub(super) fn decisions(vm: &Vm) -> Vec<&str> {
    let status = &vm.status;
    let latency = status.latency.iter().flat_map(|latency| &latency.decisions);
    let others = [&status.resources, &status.machine].into_iter().flatten();
    let all = latency.chain(others.flat_map(|resources| &resources.decisions));
    all.filter(|decision| decision.restart).map(text).collect()
}

fn text(decision: &Decision) -> &str {
    &decision.decision
}

/// Returns the commands that start the VM again.
pub(super) fn restart(vm: &Vm) -> String {
    format!("taut vm stop {0}; taut vm start {0}", vm.name)
}
