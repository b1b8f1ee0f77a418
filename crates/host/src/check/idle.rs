//! C-states, their limits, and polling before a halt.

use taut_api::check::{IdleFacts, IdleState};

use crate::kernel::tree::Tree;

pub(super) fn read(tree: Tree<'_>, cpus: &[u32]) -> IdleFacts {
    IdleFacts {
        driver: tree.text("sys/devices/system/cpu/cpuidle/current_driver"),
        states: states(tree, cpus),
        limits: cpus
            .iter()
            .filter_map(|cpu| {
                tree.knob(&format!("sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us"))
            })
            .collect(),
        dma_latency_us: dma_latency(tree),
        halt_poll_ns: tree.knob("sys/module/kvm/parameters/halt_poll_ns"),
    }
}

/// Reads the states of the first CPU. Other kinds of cores have states of the same depth.
fn states(tree: Tree<'_>, cpus: &[u32]) -> Vec<IdleState> {
    let folder = |cpu, index| format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state{index}");
    let first = cpus.first().copied().unwrap_or(0);
    let state = |index: u32| {
        Some(IdleState {
            name: tree.text(&format!("{}/name", folder(first, index)))?,
            exit_us: tree.number(&format!("{}/latency", folder(first, index)))?,
            disabled: cpus
                .iter()
                .filter_map(|&cpu| tree.knob(&format!("{}/disable", folder(cpu, index))))
                .collect(),
        })
    };
    (0..).map_while(state).collect()
}

/// Reads the latency limit, which the device returns in the machine's byte order.
fn dma_latency(tree: Tree<'_>) -> Option<i32> {
    Some(i32::from_ne_bytes(tree.bytes("dev/cpu_dma_latency")?.try_into().ok()?))
}
