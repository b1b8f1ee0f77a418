//! The kernel: version, clock, ticks, and options of its command line.

use taut_api::check::{HostFacts, KernelFacts, Knob};

use super::knobs::{any, as_slice, at_most, one_of};
use super::line::{Item, Line, Profile, TakesEffect, Verdict};

const AGE: Item = Item {
    id: "kernel.version",
    what: "kernel",
    why: "taut needs isolated partitions of cgroup v2 (Linux 6.11) for exclusive pCPUs that change \
           while the host runs; with cgroup v1 it uses cpusets. Halt polling and posted \
           interrupts got better in each release.",
    effect: "all of taut's settings work",
    takes_effect: TakesEffect::HostBoot,
};
const CLOCK: Item = Item {
    id: "kernel.clock",
    what: "clock source",
    why: "The time-stamp counter is read in nanoseconds, HPET and ACPI timers in microseconds. \
           The clocks of guests derive from it.",
    effect: "reading the time is cheap, on the host and in guests",
    takes_effect: TakesEffect::Live,
};
const TICKLESS: Item = Item {
    id: "kernel.nohz-full",
    what: "pCPUs without a tick (nohz_full=)",
    why: "The tick interrupts a busy vCPU 100 to 1000 times a second.",
    effect: "exclusive pCPUs have no tick; entering the kernel costs a little more there",
    takes_effect: TakesEffect::HostBoot,
};
const RCU: Item = Item {
    id: "kernel.rcu-nocbs",
    what: "pCPUs without RCU callbacks (rcu_nocbs=)",
    why: "The kernel runs deferred clean-up on the pCPU that caused it, in the guest's time.",
    effect: "this work moves to the host's own pCPUs",
    takes_effect: TakesEffect::HostBoot,
};
const ISOLATED: Item = Item {
    id: "kernel.isolcpus",
    what: "pCPUs without load balancing (isolcpus=)",
    why: "The kernel's own threads stay away from these pCPUs from boot on. taut's partitions do \
           the same for processes while the host runs.",
    effect: "fewer kernel threads on exclusive pCPUs; no other process can use these pCPUs",
    takes_effect: TakesEffect::HostBoot,
};
const TICK: Item = TICKLESS.because(
    "A pCPU without a tick enters and leaves the kernel more slowly.",
    "system calls and exits take less time; a busy pCPU has 100 to 1000 ticks a second (boot without \
     the option)",
);
const OWN_RCU: Item = RCU.because(
    "The clean-up of these pCPUs is left to the others, which a loaded host keeps busy.",
    "each pCPU cleans up after itself (boot without the option)",
);
const SHARED: Item = ISOLATED.because(
    "The kernel moves no VM and no process to an isolated pCPU, however idle it is.",
    "all pCPUs serve all VMs (boot without the option)",
);
const BOOT_IDLE: Item = Item {
    id: "kernel.max-cstate",
    what: "C-states allowed at boot (intel_idle.max_cstate=, processor.max_cstate=)",
    why: "A C-state that is disabled at boot cannot be enabled by a program later.",
    effect: "the same as idle.c-states, permanently; costs power",
    takes_effect: TakesEffect::HostBoot,
};
const WATCHDOG: Item = Item {
    id: "kernel.nmi-watchdog",
    what: "NMI watchdog",
    why: "The watchdog interrupts every pCPU regularly and occupies a performance counter.",
    effect: "one interruption less; a pCPU that hangs with interrupts disabled is not noticed",
    takes_effect: TakesEffect::Live,
};
const TIMERS: Item = Item {
    id: "kernel.timer-migration",
    what: "migration of timers to busy pCPUs (timer_migration)",
    why: "An idle pCPU hands its timers to a busy one, which may be a pCPU that a guest keeps \
           busy.",
    effect: "timers stay on their pCPUs; idle pCPUs wake up more often",
    takes_effect: TakesEffect::Live,
};

pub(super) fn lines(facts: &HostFacts, profile: Profile) -> Vec<Line> {
    let kernel = &facts.kernel;
    vec![
        age(AGE, kernel, (5, 4, 0), (6, 11, 0)),
        clock(facts),
        on_some([TICKLESS, TICK], profile, kernel.tickless),
        on_some([RCU, OWN_RCU], profile, cpus_of(kernel, "rcu_nocbs=").or(kernel.tickless)),
        on_some([ISOLATED, SHARED], profile, kernel.isolated),
        boot_idle(facts, profile),
        quiet(WATCHDOG, profile, kernel.nmi_watchdog.as_ref()),
        quiet(TIMERS, profile, kernel.timer_migration.as_ref()),
    ]
}

/// Judges the version: older than `old` is bad, older than `recent` is a warning.
pub(super) fn age(item: Item, kernel: &KernelFacts, old: Version, recent: Version) -> Line {
    let wanted = format!("{}.{} or newer", recent.0, recent.1);
    let Some(release) = &kernel.release else { return item.unknown("cannot be read", wanted) };
    let verdict = match version(release) {
        None => Verdict::Unknown,
        Some(version) if version < old => Verdict::Bad,
        Some(version) if version < recent => Verdict::Warn,
        Some(_) => Verdict::Ok,
    };
    item.line(verdict, release, wanted)
}

/// The first three numbers of a kernel release.
pub(super) type Version = (u32, u32, u32);

/// Parses a release: `6.1.0-28-amd64` is 6.1.0. A missing third number is 0.
pub(super) fn version(release: &str) -> Option<Version> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next().and_then(Result::ok).unwrap_or(0)))
}

/// The value of an option of the kernel's command line.
pub(super) fn option<'a>(kernel: &'a KernelFacts, key: &str) -> Option<&'a str> {
    kernel.command_line.iter().rev().find_map(|word| word.strip_prefix(key))
}

/// A lower bound of the number of CPUs that an option names: 1 for any list.
fn cpus_of(kernel: &KernelFacts, key: &str) -> Option<u32> {
    option(kernel, key).map(|list| u32::from(!list.is_empty()))
}

fn clock(facts: &HostFacts) -> Line {
    // In a VM the hypervisor's clock is right where the time-stamp counter is not offered.
    let wanted: &[&str] =
        if facts.cpu.in_vm { &["tsc", "kvm-clock", "hyperv_clocksource_tsc_page"] } else { &["tsc"] };
    clock_source(CLOCK, facts.kernel.clock.as_ref(), wanted)
}

/// Judges a clock source, of the host or a guest. In the first seconds after boot Linux calls the
/// time-stamp counter `tsc-early`: it is read as fast, and becomes `tsc` once it is calibrated.
pub(super) fn clock_source(item: Item, clock: Option<&Knob>, wanted: &[&str]) -> Line {
    match clock {
        Some(clock) if clock.value == "tsc-early" => {
            item.line(Verdict::Ok, &clock.value, wanted.join(" or "))
        }
        _ => one_of(item, as_slice(clock), wanted, Verdict::Bad, "cannot be read"),
    }
}

/// Judges an option of some pCPUs. `wanted` are the reasons to set it, `unwanted` those not to.
fn on_some([wanted, unwanted]: [Item; 2], profile: Profile, count: Option<u32>) -> Line {
    let item = if profile == Profile::Latency { wanted } else { unwanted };
    let found = match count {
        Some(0) | None => "none".to_owned(),
        Some(1) => "set".to_owned(),
        Some(count) => format!("{count} pCPUs"),
    };
    match (profile, count) {
        (Profile::Latency, Some(0) | None) => item.line(Verdict::Warn, found, "those for `high` VMs"),
        (Profile::Latency, _) => item.line(Verdict::Ok, found, "those for `high` VMs"),
        // A host for many VMs cannot use isolated pCPUs for most of them.
        (Profile::Throughput | Profile::Dense, Some(1..)) => item.line(Verdict::Warn, found, "none"),
        (Profile::Throughput | Profile::Dense, _) => item.line(Verdict::Ok, found, "none"),
    }
}

fn boot_idle(facts: &HostFacts, profile: Profile) -> Line {
    let kernel = &facts.kernel;
    let words = ["intel_idle.max_cstate=", "processor.max_cstate=", "idle="];
    let found: Vec<_> =
        words.iter().filter_map(|key| option(kernel, key).map(|value| format!("{key}{value}"))).collect();
    let shallow = facts.idle.states.iter().all(|state| state.exit_us <= 2);
    let wanted =
        if profile == Profile::Latency { "max_cstate 0 or 1, or a bound set at run time" } else { "any" };
    let found = if found.is_empty() { "all".to_owned() } else { found.join(" ") };
    let verdict = if profile == Profile::Latency && !shallow { Verdict::Warn } else { Verdict::Ok };
    BOOT_IDLE.line(verdict, found, wanted)
}

fn quiet(item: Item, profile: Profile, knob: Option<&Knob>) -> Line {
    if profile == Profile::Latency {
        at_most(item, knob, 0, Verdict::Warn, "the kernel has none")
    } else {
        any(item, knob, "any")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_parsed_up_to_its_suffix() {
        assert_eq!(version("6.1.0-28-amd64"), Some((6, 1, 0)));
        assert_eq!(version("5.14-rc1"), Some((5, 14, 0)));
        assert_eq!(version("weird"), None);
    }

    #[test]
    fn first_hour_the_counter_that_is_not_yet_calibrated_is_no_slow_clock() {
        let clock = |value: &str| Knob { path: String::new(), value: value.to_owned(), choices: Vec::new() };
        let verdict = |value: &str| clock_source(CLOCK, Some(&clock(value)), &["tsc", "kvm-clock"]).verdict;
        assert_eq!(["tsc", "tsc-early", "kvm-clock"].map(verdict), [Verdict::Ok; 3]);
        assert_eq!(["hpet", "acpi_pm", "tsc-late"].map(verdict), [Verdict::Bad; 3]);
        assert_eq!(clock_source(CLOCK, None, &["tsc"]).verdict, Verdict::Unknown);
    }
}
