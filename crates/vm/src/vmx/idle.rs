//! `monitor.*`, `monitor_control.*`: behaviour of idle vCPUs on ESX, and its counterparts on Linux
//! (BP).
//!
//! The keys become settings of the VM. The time for which KVM polls before it gives away the pCPU
//! of a halted vCPU is one setting of the host, so the longest time of all running VMs counts.
//! Under emulation none of the keys has an effect.

use taut_api::ApiError;
use taut_api::machine::{MIN_SPIN_US, MOST_SPIN_US};
use taut_api::vm::VmSpec;

use super::file::VmxFile;

/// Reads the keys about idle vCPUs.
pub(super) fn read(file: &mut VmxFile, spec: &mut VmSpec) -> Result<(), ApiError> {
    const NEVER_YIELD: &str = "monitor_control.halt_desched";
    const SPIN: [&str; 2] = ["monitor.idleloopspinbeforehalt", "monitor.idleloopspinbeforehaltup"];
    const SPIN_US: &str = "monitor.idleloopminspinus";
    const PROVIDED: &str = "under KVM only; see `taut vm explain`";
    if let Some(value) = file.get(NEVER_YIELD) {
        let yields = !is_off(value);
        spec.halt.desched = Some(yields);
        let note = if yields {
            format!("true: an idle vCPU gives its pCPU away, even an exclusive one; {PROVIDED}")
        } else {
            format!(
                "false: an idle vCPU halts inside the guest (-overcommit cpu-pm=on) once it has an exclusive pCPU, \
                 which requires latency_sensitivity = \"high\"; {PROVIDED}"
            )
        };
        file.mapped(NEVER_YIELD, "halt.desched", note);
    }
    // One of the two keys is for VMs with one vCPU, the other for VMs with several.
    let (own, other) = if spec.vcpus == 1 { (SPIN[1], SPIN[0]) } else { (SPIN[0], SPIN[1]) };
    if let Some(value) = file.get(own) {
        spec.halt.spin = Some(!is_off(value));
        let note = if is_off(value) {
            "false: the VM does not ask KVM to poll; the host's own setting (halt_poll_ns) still applies"
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
            if spec.vcpus == 1 { "several vCPUs; this VM has one" } else { "one vCPU; this VM has several" };
        file.reported(other, format!("only for VMs with {which}"));
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
            let note = format!(
                "{taken}: without effect unless halt.spin is true (the default of ESX is {MIN_SPIN_US} µs)"
            );
            file.mapped(SPIN_US, "halt.min_spin_us", note);
        }
    }
    Ok(())
}

fn is_off(value: &str) -> bool {
    ["false", "no", "0", "n"].contains(&value.trim().to_ascii_lowercase().as_str())
}
