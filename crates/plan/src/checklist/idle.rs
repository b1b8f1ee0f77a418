//! What idle pCPUs and halted vCPUs do (S3 "C-states including C1E", "reduce idle-wakeup latencies").

use taut_api::check::{Change, HostFacts, IdleFacts, IdleState, Knob};

use super::knobs::{any, at_least, at_most};
use super::line::{Item, Line, Profile, TakesEffect, Verdict};

const DRIVER: Item = Item {
    id: "idle.driver",
    what: "idle driver",
    why: "It decides which C-states there are; without one a pCPU only halts, or the hypervisor below decides.",
    effect: "C-states can be bounded by the kernel",
    takes_effect: TakesEffect::HostBoot,
};
const DEEP: Item = Item {
    id: "idle.c-states",
    what: "deepest C-state that pCPUs may enter",
    why: "An interrupt waits until its pCPU is awake: a microsecond from C1, a hundred and more from C6, with cold caches.",
    effect: "wake-ups in 2 us; more power, and less turbo for the others. taut bounds single pCPUs for `high` VMs by itself",
    takes_effect: TakesEffect::Live,
};
const C1E: Item = Item {
    id: "idle.c1e",
    what: "C1E",
    why: "C1E also lowers voltage and frequency, and takes several times as long as C1 to leave.",
    effect: "wake-ups from short pauses are equally fast; more power",
    takes_effect: TakesEffect::Live,
};
const HELD: Item = Item {
    id: "idle.dma-latency",
    what: "bound held in /dev/cpu_dma_latency",
    why: "A program such as tuned can hold C-states down for all pCPUs while it runs.",
    effect: "no deep C-state on any pCPU while the holder runs",
    takes_effect: TakesEffect::Live,
};
const HALT_POLL: Item = Item {
    id: "idle.halt-poll",
    what: "KVM's halt polling (ESX: monitor.idleLoopSpinBeforeHalt, idleLoopMinSpinUS)",
    why: "A vCPU that halts and is needed again at once costs two context switches unless KVM polls a little before it gives the pCPU away.",
    effect: "tens of microseconds less per wake-up; the polling takes CPU time that neighbours could use",
    takes_effect: TakesEffect::Live,
};

/// What a pCPU of a latency-sensitive host may take to wake up, µs: C1 is left in 1 or 2 everywhere.
const MOST_US: u32 = 2;

pub(super) fn lines(facts: &HostFacts, profile: Profile) -> Vec<Line> {
    let idle = &facts.idle;
    vec![
        driver(facts),
        deep(facts, profile),
        c1e(idle, profile),
        held(idle, profile),
        halt_poll(idle, profile),
    ]
}

fn driver(facts: &HostFacts) -> Line {
    match facts.idle.driver.as_deref() {
        None | Some("none") if facts.cpu.in_vm => {
            DRIVER.unknown("none: this host is a VM, and halts into its hypervisor", "any")
        }
        None | Some("none") => DRIVER.line(Verdict::Ok, "none: pCPUs only halt", "any"),
        Some(driver) => DRIVER.line(Verdict::Ok, driver, "any"),
    }
}

/// The longest exit latency that a limit file allows: `0` any, `n/a` none.
fn bound(limit: &Knob) -> Option<u32> {
    match limit.value.as_str() {
        "0" => None,
        "n/a" => Some(0),
        text => text.parse().ok(),
    }
}

/// The bound for all pCPUs that a process holds, if it is one.
fn held_bound(idle: &IdleFacts) -> Option<u32> {
    // Whoever opens the device without wishes gets this default.
    const NO_WISH: u32 = 2_000_000_000;
    idle.dma_latency_us.and_then(|us| u32::try_from(us).ok()).filter(|us| *us < NO_WISH)
}

/// Can any pCPU enter the state?
fn allowed(idle: &IdleFacts, state: &IdleState) -> bool {
    let enabled = state.disabled.is_empty() || state.disabled.iter().any(|knob| knob.value == "0");
    let fits = |bound: Option<u32>| bound.is_none_or(|most| state.exit_us <= most);
    enabled && fits(held_bound(idle)) && (idle.limits.is_empty() || idle.limits.iter().map(bound).any(fits))
}

fn deep(facts: &HostFacts, profile: Profile) -> Line {
    let idle = &facts.idle;
    let wanted = match profile {
        Profile::Latency => format!("exit latency at most {MOST_US} us"),
        Profile::Throughput | Profile::Dense => "any".to_owned(),
    };
    let Some(deepest) =
        idle.states.iter().filter(|state| allowed(idle, state)).max_by_key(|state| state.exit_us)
    else {
        return DEEP.unknown("no C-states to be seen", wanted);
    };
    let found = format!("{}, {} us to leave", deepest.name, deepest.exit_us);
    if profile != Profile::Latency || deepest.exit_us <= MOST_US {
        return DEEP.line(Verdict::Ok, found, wanted);
    }
    let loose = idle.limits.iter().filter(|limit| bound(limit).is_none_or(|most| most > MOST_US));
    let change = |limit: &Knob| Change { path: limit.path.clone(), value: MOST_US.to_string() };
    Line { changes: loose.map(change).collect(), ..DEEP.line(Verdict::Bad, found, wanted) }
}

fn c1e(idle: &IdleFacts, profile: Profile) -> Line {
    let wanted = if profile == Profile::Latency { "not entered" } else { "any" };
    let Some(state) = idle.states.iter().find(|state| state.name.starts_with("C1E")) else {
        let found = if idle.states.is_empty() { "no C-states to be seen" } else { "the driver has none" };
        let verdict = if idle.states.is_empty() { Verdict::Unknown } else { Verdict::Ok };
        return C1E.line(verdict, found, wanted);
    };
    if !allowed(idle, state) {
        return C1E.line(Verdict::Ok, "not entered", wanted);
    }
    let found = format!("entered, {} us to leave", state.exit_us);
    // Newer CPUs have it instead of C1: without it only polling would be left.
    let instead_of_c1 = !idle.states.iter().any(|state| state.name == "C1");
    if profile != Profile::Latency || (instead_of_c1 && state.exit_us <= MOST_US) {
        return C1E.line(Verdict::Ok, found, wanted);
    }
    let enabled = state.disabled.iter().filter(|knob| knob.value == "0");
    let change = |knob: &Knob| Change { path: knob.path.clone(), value: "1".to_owned() };
    Line { changes: enabled.map(change).collect(), ..C1E.line(Verdict::Bad, found, wanted) }
}

/// Nothing is held by a list of settings: the bound lasts as long as its process.
fn held(idle: &IdleFacts, profile: Profile) -> Line {
    let wanted = if profile == Profile::Latency { "a bound, or one per pCPU" } else { "no bound" };
    let bounded_one_by_one =
        !idle.limits.is_empty() && idle.limits.iter().all(|limit| bound(limit).is_some());
    match (idle.dma_latency_us, held_bound(idle)) {
        (None, _) => HELD.unknown("cannot be read", wanted),
        (_, Some(us)) => {
            let verdict = if profile == Profile::Latency { Verdict::Ok } else { Verdict::Warn };
            HELD.line(verdict, format!("{us} us"), wanted)
        }
        (_, None) => {
            let harmless = profile != Profile::Latency
                || bounded_one_by_one
                || idle.states.iter().all(|state| !allowed(idle, state) || state.exit_us <= MOST_US);
            HELD.line(if harmless { Verdict::Ok } else { Verdict::Warn }, "none", wanted)
        }
    }
}

fn halt_poll(idle: &IdleFacts, profile: Profile) -> Line {
    let knob = idle.halt_poll_ns.as_ref();
    let absent = "no KVM module to be seen";
    match profile {
        Profile::Latency => at_least(HALT_POLL, knob, 100_000, Verdict::Warn, absent),
        Profile::Throughput => any(HALT_POLL, knob, "any"),
        Profile::Dense => at_most(HALT_POLL, knob, 50_000, Verdict::Warn, absent),
    }
}
