//! The kernel: release, command line, clock, timers.

use taut_api::check::KernelFacts;

use crate::kernel::tree::Tree;

pub(super) fn read(tree: Tree<'_>) -> KernelFacts {
    let clock = "sys/devices/system/clocksource/clocksource0";
    KernelFacts {
        release: tree.text("proc/sys/kernel/osrelease"),
        command_line: tree
            .text("proc/cmdline")
            .map(|line| line.split_whitespace().map(str::to_owned).collect())
            .unwrap_or_default(),
        clock: tree.knob_with_choices(
            &format!("{clock}/current_clocksource"),
            &format!("{clock}/available_clocksource"),
        ),
        tickless: tree.count("sys/devices/system/cpu/nohz_full"),
        isolated: tree.count("sys/devices/system/cpu/isolated"),
        nmi_watchdog: tree.knob("proc/sys/kernel/nmi_watchdog"),
        timer_migration: tree.knob("proc/sys/kernel/timer_migration"),
        irqbalance: runs(tree, "irqbalance"),
    }
}

/// Returns whether a process has this name; `None` in a tree without processes.
fn runs(tree: Tree<'_>, name: &str) -> Option<bool> {
    let mut processes = processes(tree).peekable();
    processes.peek()?;
    Some(processes.any(|pid| tree.text(&format!("proc/{pid}/comm")).as_deref() == Some(name)))
}

/// Returns the numbers of all processes.
pub(super) fn processes(tree: Tree<'_>) -> impl Iterator<Item = u32> {
    tree.names("proc").into_iter().filter_map(|name| name.parse().ok())
}
