//! Frequencies and power saving.

use taut_api::check::{Knob, PowerFacts, Turbo};

use crate::kernel::tree::Tree;

pub(super) fn read(tree: Tree<'_>, cpus: &[u32]) -> PowerFacts {
    let per_cpu = |file: &str, choices: &str| -> Vec<Knob> {
        let folder = |cpu| format!("sys/devices/system/cpu/cpu{cpu}");
        cpus.iter()
            .filter_map(|cpu| {
                let folder = folder(cpu);
                tree.knob_with_choices(&format!("{folder}/{file}"), &format!("{folder}/{choices}"))
            })
            .collect()
    };
    PowerFacts {
        driver: tree.text("sys/devices/system/cpu/cpu0/cpufreq/scaling_driver"),
        governors: per_cpu("cpufreq/scaling_governor", "cpufreq/scaling_available_governors"),
        preferences: per_cpu(
            "cpufreq/energy_performance_preference",
            "cpufreq/energy_performance_available_preferences",
        ),
        biases: per_cpu("power/energy_perf_bias", ""),
        turbo: turbo(tree),
        profile: tree.knob_with_choices(
            "sys/firmware/acpi/platform_profile",
            "sys/firmware/acpi/platform_profile_choices",
        ),
        aspm: tree.knob("sys/module/pcie_aspm/parameters/policy"),
        tuned: tree.text("etc/tuned/active_profile").filter(|profile| !profile.is_empty()),
    }
}

/// Reads the turbo switch: intel_pstate has `no_turbo`, other drivers have `boost`.
fn turbo(tree: Tree<'_>) -> Option<Turbo> {
    let switch = |path: &str, on: &str| Some(Turbo { knob: tree.knob(path)?, on: on.to_owned() });
    switch("sys/devices/system/cpu/intel_pstate/no_turbo", "0")
        .or_else(|| switch("sys/devices/system/cpu/cpufreq/boost", "1"))
}
