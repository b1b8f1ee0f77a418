//! `monitor.*`, `monitor_control.*`: what an idle vCPU does on ESX, and what does that here (SPEC BP).
//!
//! The VM's part of it is taken over. How long KVM polls before it gives a halted vCPU's pCPU away is one setting for the host, so of
//! several running VMs the longest counts; under emulation none of the keys has an effect.

use taut_api::ApiError;
use taut_api::machine::{MIN_SPIN_US, MOST_SPIN_US};
use taut_api::vm::VmSpec;

use super::file::VmxFile;

/// Takes the keys about idle vCPUs.
pub(super) fn read(file: &mut VmxFile, spec: &mut VmSpec) -> Result<(), ApiError> {
    const NEVER_YIELD: &str = "monitor_control.halt_desched";
    const SPIN: [&str; 2] = ["monitor.idleloopspinbeforehalt", "monitor.idleloopspinbeforehaltup"];
    const SPIN_US: &str = "monitor.idleloopminspinus";
    const PROVIDED: &str = "under KVM only, which `taut vm explain` says";
    if let Some(value) = file.get(NEVER_YIELD) {
        let yields = !is_off(value);
        spec.halt.desched = Some(yields);
        let note = if yields {
            format!(
                "true: an idle vCPU gives its pCPU away, also one that is exclusively its own; {PROVIDED}"
            )
        } else {
            format!(
                "false: an idle vCPU halts by itself (-overcommit cpu-pm=on) once its pCPU is its own, which takes \
                 latency_sensitivity = \"high\"; {PROVIDED}"
            )
        };
        file.mapped(NEVER_YIELD, "halt.desched", note);
    }
    // Of both, the one for as many vCPUs as it has.
    let (own, other) = if spec.vcpus == 1 { (SPIN[1], SPIN[0]) } else { (SPIN[0], SPIN[1]) };
    if let Some(value) = file.get(own) {
        spec.halt.spin = Some(!is_off(value));
        let note = if is_off(value) {
            "false: it does not ask KVM to poll; what the host polls by itself (halt_poll_ns) stays"
                .to_owned()
        } else {
            format!(
                "true: KVM's halt polling on the host (halt_poll_ns), and with exclusive pCPUs haltpoll in the guest \
                 (kvm-hint-dedicated, kvm-poll-control); {PROVIDED}"
            )
        };
        file.mapped(own, "halt.spin", note);
    }
    if file.get(other).is_some() {
        let which =
            if spec.vcpus == 1 { "several vCPUs, and it has one" } else { "one vCPU, and it has several" };
        file.reported(other, format!("for VMs with {which}"));
    }
    if let Some(us) = file.parsed::<u32>(SPIN_US, "a number of microseconds")? {
        let taken = us.clamp(1, MOST_SPIN_US);
        spec.halt.min_spin_us = Some(taken);
        if spec.halt.spin == Some(true) {
            let ns = u64::from(taken) * 1000;
            file.mapped(
                SPIN_US,
                "halt.min_spin_us",
                format!("{taken}: halt_poll_ns of at least {ns} while the VM runs"),
            );
        } else {
            let note =
                format!("{taken}: without effect unless it spins before it halts (ESX: {MIN_SPIN_US} us)");
            file.mapped(SPIN_US, "halt.min_spin_us", note);
        }
    }
    Ok(())
}

fn is_off(value: &str) -> bool {
    ["false", "no", "0", "n"].contains(&value.trim().to_ascii_lowercase().as_str())
}
