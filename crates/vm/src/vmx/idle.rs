//! `monitor.*`, `monitor_control.*`: what an idle vCPU does on ESX, and what does that here (SPEC BP).
//!
//! QEMU has no such setting per VM: KVM's is one for the host, and halting without the host comes with exclusive pCPUs. So
//! nothing is taken over, and the report says with the file's own values what would be the same.

use super::file::VmxFile;

/// ESX's own, µs.
const MIN_SPIN_US: u64 = 100;

/// Reports the keys about idle vCPUs.
pub(super) fn read(file: &mut VmxFile) {
    const NEVER_YIELD: &str = "monitor_control.halt_desched";
    const SPIN_US: &str = "monitor.idleloopminspinus";
    if let Some(value) = file.get(NEVER_YIELD) {
        let note = if is_off(value) {
            "never yields its pCPU when idle: here latency_sensitivity = \"high\" with exclusive pCPUs lets the guest halt by \
             itself (-overcommit cpu-pm=on); by this key alone nothing is set"
        } else {
            "yields its pCPU when idle, as every VM does here"
        };
        file.reported(NEVER_YIELD, note);
    }
    let us = file.get(SPIN_US).and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(MIN_SPIN_US);
    let same = format!(
        "KVM's halt polling does that for all VMs of the host: halt_poll_ns of at least {} in /sys/module/kvm/parameters \
         (`taut check host`); inside a Linux guest the idle driver haltpoll",
        us.saturating_mul(1000)
    );
    for key in ["monitor.idleloopspinbeforehalt", "monitor.idleloopspinbeforehaltup"] {
        if let Some(value) = file.get(key) {
            let note = if is_off(value) {
                "does not spin before it halts; KVM's halt polling (halt_poll_ns) is the host's, and not changed".to_owned()
            } else {
                format!("spins {us} us before it halts: {same}")
            };
            file.reported(key, note);
        }
    }
    if file.get(SPIN_US).is_some() {
        file.reported(SPIN_US, format!("spins so long before it halts: {same}"));
    }
}

fn is_off(value: &str) -> bool {
    ["false", "no", "0", "n"].contains(&value.trim().to_ascii_lowercase().as_str())
}
