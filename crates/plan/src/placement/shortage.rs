//! The message for a VM for which there are not enough pCPUs.

use taut_api::Name;
use taut_api::vm::VmSpec;
use taut_api::word::counted;

use super::problem::{BrokenPromise, Shortage};
use crate::facts::HostSeen;
use crate::facts::reservation::{counted_pcpus, level_name, pcpus};

/// Returns the message, with all numbers, and a hint.
pub fn explain_shortage(
    host: &HostSeen,
    name: &Name,
    spec: &VmSpec,
    shortage: &Shortage,
) -> (String, &'static str) {
    let Shortage { cores, free, elsewhere, taken, host: hosts, promised } = shortage;
    let smt = host.has_smt();
    let unit = if smt { "whole core" } else { "exclusive pCPU" };
    let siblings = if smt { " (an SMT sibling is never shared with others)" } else { "" };
    let needs = format!(
        "latency_sensitivity = \"{}\" of VM `{name}` needs {}{siblings} for its {}",
        level_name(spec.latency_sensitivity),
        counted(*cores, unit),
        counted(spec.vcpus, "vCPU")
    );
    if let Some(BrokenPromise { promised, left }) = promised {
        return (
            format!(
                "{needs}, but the host would be over-committed: other VMs have reserved {}, and {} would \
                 be left",
                counted_pcpus(*promised),
                pcpus(*left)
            ),
            "stop a VM that has a CPU reservation, or give this one fewer vCPUs",
        );
    }
    let owners = taken.iter().map(|(owner, count)| format!(", VM `{owner}` has {count}"));
    let outside = if *elsewhere == 0 {
        String::new()
    } else {
        let allowed = spec.placement.allowed();
        format!(", its [placement], which allows only {allowed}, excludes {elsewhere}")
    };
    let total = free + elsewhere + hosts + taken.values().sum::<usize>();
    (
        format!(
            "{needs}, but it can have {free} of the host's {}: the host and threads bound to \
             pCPUs (--fabric-cpus, --vmci-cpu) keep {hosts}{}{outside}",
            counted(total, if smt { "core" } else { "pCPU" }),
            owners.collect::<String>()
        ),
        "give the VM fewer vCPUs, set another VM to normal, or bind the fabric's workers to the \
         host's first pCPU",
    )
}
