//! The message for a VM for which there are not enough pCPUs.

use taut_api::Name;
use taut_api::vm::VmSpec;

use super::problem::{BrokenPromise, Shortage};
use crate::facts::HostSeen;
use crate::facts::reservation::{level_name, pcpus};

/// Returns the message, with all numbers, and a hint.
pub fn explain_shortage(
    host: &HostSeen,
    name: &Name,
    spec: &VmSpec,
    shortage: &Shortage,
) -> (String, &'static str) {
    let Shortage { cores, free, elsewhere, taken, host: hosts, promised } = shortage;
    let smt = host.has_smt();
    let unit =
        if smt { "whole cores (an SMT sibling is never shared with others)" } else { "exclusive pCPUs" };
    let needs = format!(
        "latency_sensitivity = \"{}\" of VM `{name}` needs {cores} {unit} for its {} vCPUs",
        level_name(spec.latency_sensitivity),
        spec.vcpus
    );
    if let Some(BrokenPromise { promised, left }) = promised {
        return (
            format!(
                "{needs}, but the host would be over-committed: {} pCPUs are reserved for other VMs, \
                 and {} would be left",
                pcpus(*promised),
                pcpus(*left)
            ),
            "stop a VM that has a CPU reservation, or give this one fewer vCPUs",
        );
    }
    let owners = taken.iter().map(|(owner, count)| format!(", {count} belong to VM `{owner}`"));
    let outside = if *elsewhere == 0 {
        String::new()
    } else {
        let placement = &spec.placement;
        format!(
            ", {elsewhere} are free but not in its [placement] (pCPUs {}, nodes {})",
            placement.cpus, placement.nodes
        )
    };
    let total = free + elsewhere + hosts + taken.values().sum::<usize>();
    (
        format!(
            "{needs}, but {free} are free: of the host's {total} {}, {hosts} stay for the host and for \
             threads bound to them (--fabric-cpus, --vmci-cpu){}{outside}",
            if smt { "cores" } else { "pCPUs" },
            owners.collect::<String>()
        ),
        "give the VM fewer vCPUs, set another VM to normal, or bind the fabric's workers to the \
         host's first pCPU",
    )
}
