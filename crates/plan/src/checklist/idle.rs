//! Idle pCPUs and halted vCPUs: C-states, C1E, halt polling.

use taut_api::check::{Change, HostFacts, IdleFacts, IdleState, Knob};

use super::knobs::{any, at_least, at_most};
use super::line::{Item, Line, Profile, TakesEffect, Verdict};

const DRIVER: Item = Item {
    id: "idle.driver",
    what: "idle driver",
    why: "The idle driver provides the C-states. Without one a pCPU only halts, or the hypervisor \
           below decides.",
    effect: "the kernel can bound C-states",
    takes_effect: TakesEffect::HostBoot,
};
const DEEP: Item = Item {
    id: "idle.c-states",
    what: "deepest C-state that pCPUs may enter",
    why: "An interrupt waits until its pCPU is awake. Leaving C1 takes a microsecond; leaving C6 \
           takes a hundred or more, with cold caches.",
    effect: "wake-ups take at most 2 µs; costs power and leaves less turbo to other pCPUs. taut \
           bounds the pCPUs of `high` VMs by itself",
    takes_effect: TakesEffect::Live,
};
const C1E: Item = Item {
    id: "idle.c1e",
    what: "C1E",
    why: "C1E also lowers voltage and frequency, and takes several times as long to leave as C1.",
    effect: "wake-ups from short pauses take equal times; costs power",
    takes_effect: TakesEffect::Live,
};
const HELD: Item = Item {
    id: "idle.dma-latency",
    what: "wake-up latency bound that a program holds (/dev/cpu_dma_latency)",
    why: "A program such as tuned can keep all pCPUs out of deep C-states while it runs.",
    effect: "no pCPU enters a deep C-state while that program runs",
    takes_effect: TakesEffect::Live,
};
const HALT_POLL: Item = Item {
    id: "idle.halt-poll",
    what: "KVM's halt polling (ESX: monitor.idleLoopSpinBeforeHalt, idleLoopMinSpinUS)",
    why: "A vCPU that halts and is woken at once costs two context switches, unless KVM polls for \
           a moment before it deschedules the vCPU.",
    effect: "saves tens of microseconds per wake-up; the polling takes CPU time from neighbours",
    takes_effect: TakesEffect::Live,
};

const HELD_OFF: Item = HELD.because(
    "A bound keeps idle pCPUs awake, which costs power and takes turbo from the busy ones.",
    "idle pCPUs save power; a wake-up from a deep C-state takes a hundred microseconds more (end the \
     program, or its profile in tuned)",
);
const HALT_POLL_SHORT: Item = HALT_POLL.because(
    "KVM polls with the pCPU of a halted vCPU, which other VMs wait for on a full host.",
    "halted vCPUs leave their pCPU to other VMs sooner; a wake-up can take tens of microseconds more",
);

/// Maximum time in µs that a pCPU of a latency-sensitive host takes to wake up. All CPUs leave
/// C1 within 2 µs.
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
            DRIVER.unknown("none: this host is a VM and halts in its hypervisor", "any")
        }
        None | Some("none") => DRIVER.line(Verdict::Ok, "none: pCPUs only halt", "any"),
        Some(driver) => DRIVER.line(Verdict::Ok, driver, "any"),
    }
}

/// The longest exit latency in µs that a limit file allows: `0` allows any, `n/a` none.
fn bound(limit: &Knob) -> Option<u32> {
    match limit.value.as_str() {
        "0" => None,
        "n/a" => Some(0),
        text => text.parse().ok(),
    }
}

/// The bound in µs that a process holds for all pCPUs, if any.
fn held_bound(idle: &IdleFacts) -> Option<u32> {
    // The kernel reports this value when no process holds a bound.
    const NO_BOUND: u32 = 2_000_000_000;
    idle.dma_latency_us.and_then(|us| u32::try_from(us).ok()).filter(|us| *us < NO_BOUND)
}

/// Returns whether any pCPU may enter the state.
fn allowed(idle: &IdleFacts, state: &IdleState) -> bool {
    let enabled = state.disabled.is_empty() || state.disabled.iter().any(|knob| knob.value == "0");
    let fits = |bound: Option<u32>| bound.is_none_or(|most| state.exit_us <= most);
    enabled && fits(held_bound(idle)) && (idle.limits.is_empty() || idle.limits.iter().map(bound).any(fits))
}

fn deep(facts: &HostFacts, profile: Profile) -> Line {
    let idle = &facts.idle;
    let wanted = match profile {
        Profile::Latency => format!("exit latency at most {MOST_US} µs"),
        Profile::Throughput | Profile::Dense => "any".to_owned(),
    };
    let Some(deepest) =
        idle.states.iter().filter(|state| allowed(idle, state)).max_by_key(|state| state.exit_us)
    else {
        return DEEP.unknown("no C-states visible", wanted);
    };
    let found = format!("{}, {} µs to leave", deepest.name, deepest.exit_us);
    if profile != Profile::Latency || deepest.exit_us <= MOST_US {
        return DEEP.line(Verdict::Ok, found, wanted);
    }
    let loose = idle.limits.iter().filter(|limit| bound(limit).is_none_or(|most| most > MOST_US));
    let change = |limit: &Knob| Change::File { path: limit.path.clone(), value: MOST_US.to_string() };
    Line { changes: loose.map(change).collect(), ..DEEP.line(Verdict::Bad, found, wanted) }
}

fn c1e(idle: &IdleFacts, profile: Profile) -> Line {
    let wanted = if profile == Profile::Latency { "not entered" } else { "any" };
    let Some(state) = idle.states.iter().find(|state| state.name.starts_with("C1E")) else {
        let found = if idle.states.is_empty() { "no C-states visible" } else { "the driver has no C1E" };
        let verdict = if idle.states.is_empty() { Verdict::Unknown } else { Verdict::Ok };
        return C1E.line(verdict, found, wanted);
    };
    if !allowed(idle, state) {
        return C1E.line(Verdict::Ok, "not entered", wanted);
    }
    let found = format!("entered, {} µs to leave", state.exit_us);
    // Newer CPUs have C1E instead of C1. Without it a pCPU could only poll.
    let instead_of_c1 = !idle.states.iter().any(|state| state.name == "C1");
    if profile != Profile::Latency || (instead_of_c1 && state.exit_us <= MOST_US) {
        return C1E.line(Verdict::Ok, found, wanted);
    }
    let enabled = state.disabled.iter().filter(|knob| knob.value == "0");
    let change = |knob: &Knob| Change::File { path: knob.path.clone(), value: "1".to_owned() };
    Line { changes: enabled.map(change).collect(), ..C1E.line(Verdict::Bad, found, wanted) }
}

/// Judges the held bound. `--apply` cannot hold one, because a bound ends with its process.
fn held(idle: &IdleFacts, profile: Profile) -> Line {
    let wanted = if profile == Profile::Latency { "a bound, or one per pCPU" } else { "no bound" };
    let bounded_one_by_one =
        !idle.limits.is_empty() && idle.limits.iter().all(|limit| bound(limit).is_some());
    match (idle.dma_latency_us, held_bound(idle)) {
        (None, _) => HELD.unknown("cannot be read", wanted),
        (_, Some(us)) => {
            let (item, verdict) =
                if profile == Profile::Latency { (HELD, Verdict::Ok) } else { (HELD_OFF, Verdict::Warn) };
            item.line(verdict, format!("{us} µs"), wanted)
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
    let absent = "no KVM module visible";
    match profile {
        Profile::Latency => at_least(HALT_POLL, knob, 100_000, Verdict::Warn, absent),
        Profile::Throughput => any(HALT_POLL, knob, "any"),
        Profile::Dense => at_most(HALT_POLL_SHORT, knob, 50_000, Verdict::Warn, absent),
    }
}
