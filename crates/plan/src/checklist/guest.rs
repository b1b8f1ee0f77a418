//! A guest from inside: kernel, clocks, vNIC drivers, polling, firewall, huge pages.

use taut_api::check::{Card, GuestFacts};

use super::kernel::{age, clock_source, option, version};
use super::knobs::{any, as_slice, one_of};
use super::line::{Item, Line, Profile, TakesEffect, Verdict};
use super::memory::pools_found;
use super::network::{moderation, polling};

const AGE: Item = Item {
    id: "guest.kernel",
    what: "kernel",
    why: "Kernels before 2.6.32 tick all the time and read slow clocks. Each release since has \
           cheaper timers and drivers.",
    effect: "fewer exits for the same work",
    takes_effect: TakesEffect::GuestBoot,
};
const TICK: Item = Item {
    id: "guest.tick",
    what: "tick mode",
    why: "A tickless guest sets a timer each time it leaves idle, which is an exit in the path of \
           each packet. A periodic tick is set once.",
    effect: "`nohz=off` saves that exit; the idle guest wakes up 100 to 1000 times a second",
    takes_effect: TakesEffect::GuestBoot,
};
const TICKLESS: Item = TICK.because(
    "A periodic tick wakes each idle vCPU 100 to 1000 times a second, and the pCPU with it.",
    "idle guests leave their pCPUs to others (boot without `nohz=off`); leaving idle costs an exit",
);
const CLOCK: Item = Item {
    id: "guest.clock",
    what: "clock source",
    why: "The time-stamp counter and KVM's clock are read without an exit. HPET, ACPI timer and \
           PIT cause an exit each time a program asks for the time.",
    effect: "reading the time takes nanoseconds instead of microseconds",
    takes_effect: TakesEffect::Live,
};
const HALT: Item = Item {
    id: "guest.idle",
    what: "idle driver",
    why: "With `haltpoll` the guest polls for a moment before it halts. A packet in that time \
           costs no exit.",
    effect: "fewer exits (`cpuidle_haltpoll.force=1` where KVM does not offer it); the pCPU is \
           busy while the guest polls",
    takes_effect: TakesEffect::GuestBoot,
};
const NO_POLL_BEFORE_HALT: Item = HALT.because(
    "A guest that polls before it halts keeps its pCPU from other VMs.",
    "idle guests leave their pCPUs to others at once; a packet in that time costs an exit",
);
const DRIVER: Item = Item {
    id: "guest.nic-driver",
    what: "vNIC drivers",
    why: "Only a paravirtual driver shares its rings with the switch. Other drivers write \
           registers, and each write is an exit.",
    effect: "more packets for less CPU time",
    takes_effect: TakesEffect::GuestBoot,
};
const LRO: Item = Item {
    id: "guest.lro",
    what: "LRO, as the guest sees it",
    why: "Merged segments reach programs late, and TCP acknowledges them late.",
    effect: "segments are delivered as they arrive (`ethtool -K NIC lro off`, or off on the host)",
    takes_effect: TakesEffect::Live,
};
const MODERATION: Item = Item {
    id: "guest.moderation",
    what: "interrupt moderation, as the guest sees it",
    why: "The vNIC holds a packet back to raise one interrupt for several packets.",
    effect: "each packet is delivered at once (`ethtool -C NIC rx-usecs 0`, or off on the host)",
    takes_effect: TakesEffect::Live,
};
const MODERATION_ON: Item = MODERATION.because(
    "Without moderation the vNIC raises an interrupt for each packet.",
    "fewer interrupts, and less CPU time per packet (`ethtool -C NIC adaptive-rx on`, or on the host)",
);
const BUSY_READ: Item = Item {
    id: "guest.busy-read",
    what: "busy polling of blocking reads (busy_read)",
    why: "A program that waits for a packet polls the ring itself, without an interrupt or a halt.",
    effect: "saves a wake-up per request; its vCPU is busy while it waits",
    takes_effect: TakesEffect::Live,
};
const BUSY_POLL: Item = Item {
    id: "guest.busy-poll",
    what: "busy polling of poll and select (busy_poll)",
    why: "A program that waits for many sockets polls the rings itself, without an interrupt or a \
           halt.",
    effect: "saves a wake-up per request; its vCPU is busy while it waits",
    takes_effect: TakesEffect::Live,
};
const NO_BUSY_READ: Item = BUSY_READ.because(NO_POLLING.0, NO_POLLING.1);
const NO_BUSY_POLL: Item = BUSY_POLL.because(NO_POLLING.0, NO_POLLING.1);
/// Reasons not to poll in one of many VMs.
const NO_POLLING: (&str, &str) = (
    "A program that waits for a packet keeps its pCPU from other VMs while it polls.",
    "the pCPU serves other VMs meanwhile; a program that waits costs a wake-up per packet",
);
const FIREWALL: Item = Item {
    id: "guest.firewall",
    what: "packet filter",
    why: "Each packet passes all rules, in both directions.",
    effect: "less time per packet; only where the vSwitch's isolation is enough",
    takes_effect: TakesEffect::Live,
};
const SELINUX: Item = Item {
    id: "guest.selinux",
    what: "SELinux",
    why: "SELinux checks each system call, including those that send and receive.",
    effect: "saves a little time in each system call; only where the security policy allows it \
           (`SELINUX=disabled`)",
    takes_effect: TakesEffect::GuestBoot,
};
const JAVA: Item = Item {
    id: "guest.java",
    what: "Java on large pages",
    why: "A heap on small pages has many TLB misses. Each costs twice as much in a VM, which has \
           two levels of page tables.",
    effect: "`-XX:+UseLargePages` with a pool of huge pages in the guest; the gain grows with the \
           heap",
    takes_effect: TakesEffect::Live,
};
const PAGES: Item = Item {
    id: "guest.huge-pages",
    what: "huge pages in the guest",
    why: "Java and databases take their memory from this pool when they are configured to.",
    effect: "fewer TLB misses; other programs cannot use this memory",
    takes_effect: TakesEffect::Live,
};
const THP: Item = Item {
    id: "guest.thp",
    what: "transparent huge pages",
    why: "If every process gets huge pages, the kernel merges and splits them at any time while \
           the process waits.",
    effect: "only programs that ask for huge pages get them",
    takes_effect: TakesEffect::Live,
};

pub(super) fn lines(facts: &GuestFacts, profile: Profile) -> Vec<Line> {
    vec![
        age(AGE, &facts.kernel, (2, 6, 32), (6, 1, 0)),
        tick(facts, profile),
        clock(facts),
        halt(facts, profile),
        driver(facts),
        lro(&facts.network.cards, profile),
        moderation([MODERATION, MODERATION_ON], &facts.network.cards, profile),
        polling([BUSY_READ, NO_BUSY_READ], facts.network.busy_read.as_ref(), profile),
        polling([BUSY_POLL, NO_BUSY_POLL], facts.network.busy_poll.as_ref(), profile),
        firewall(facts, profile),
        selinux(facts, profile),
        java(facts),
        pages(facts),
        thp(facts, profile),
    ]
}

fn tick(facts: &GuestFacts, profile: Profile) -> Line {
    let kernel = &facts.kernel;
    let tickless = kernel.tickless.unwrap_or(0);
    let release = kernel.release.as_deref().and_then(version);
    let (found, periodic) = match option(kernel, "nohz=") {
        // Before 2.6.24 x86-64 has only a periodic tick.
        _ if release.is_some_and(|release| release < (2, 6, 24)) => {
            ("periodic: the kernel has no other mode".to_owned(), true)
        }
        Some("off") => ("periodic (nohz=off)".to_owned(), true),
        _ if tickless > 0 => (format!("none on {tickless} busy CPUs (nohz_full)"), false),
        _ => ("tickless when idle".to_owned(), false),
    };
    match profile {
        Profile::Latency if periodic || tickless > 0 => {
            TICK.line(Verdict::Ok, found, "periodic, or nohz_full")
        }
        Profile::Latency => TICK.line(Verdict::Warn, found, "periodic, or nohz_full"),
        // On a dense host the ticks of idle guests add up.
        Profile::Throughput | Profile::Dense if periodic => {
            TICKLESS.line(Verdict::Warn, found, "tickless when idle")
        }
        Profile::Throughput | Profile::Dense => TICKLESS.line(Verdict::Ok, found, "tickless when idle"),
    }
}

fn clock(facts: &GuestFacts) -> Line {
    let wanted = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page"];
    clock_source(CLOCK, facts.kernel.clock.as_ref(), &wanted)
}

fn halt(facts: &GuestFacts, profile: Profile) -> Line {
    let driver = facts.idle.driver.as_deref().unwrap_or("none");
    let polls = driver == "haltpoll" || option(&facts.kernel, "idle=") == Some("poll");
    match profile {
        Profile::Latency if !polls => HALT.line(Verdict::Warn, driver, "haltpoll"),
        Profile::Latency => HALT.line(Verdict::Ok, driver, "haltpoll"),
        Profile::Throughput => HALT.line(Verdict::Ok, driver, "any"),
        Profile::Dense if polls => NO_POLL_BEFORE_HALT.line(Verdict::Warn, driver, "none"),
        Profile::Dense => NO_POLL_BEFORE_HALT.line(Verdict::Ok, driver, "none"),
    }
}

fn driver(facts: &GuestFacts) -> Line {
    let cards = &facts.network.cards;
    let name = |card: &Card| format!("{}: {}", card.name, card.driver.as_deref().unwrap_or("no driver"));
    let found = cards.iter().map(name).collect::<Vec<_>>().join(", ");
    let paravirtual = |card: &Card| {
        card.driver
            .as_deref()
            .is_some_and(|driver| ["virtio_net", "vmxnet3", "hv_netvsc", "ena"].contains(&driver))
    };
    // Neither paravirtual nor emulated: a NIC that was passed through, or an unknown driver.
    let emulated = |card: &Card| {
        card.driver
            .as_deref()
            .is_some_and(|driver| ["e1000", "e1000e", "pcnet32", "8139cp", "8139too"].contains(&driver))
    };
    let verdict = if cards.is_empty() {
        Verdict::Unknown
    } else if cards.iter().any(emulated) {
        Verdict::Bad
    } else if cards.iter().all(paravirtual) {
        Verdict::Ok
    } else {
        Verdict::Warn
    };
    let found = if found.is_empty() { "no NICs".to_owned() } else { found };
    DRIVER.line(verdict, found, "virtio_net, or a NIC passed through")
}

fn lro(cards: &[Card], profile: Profile) -> Line {
    let wanted = if profile == Profile::Latency { "off" } else { "any" };
    let seen: Vec<_> = cards.iter().filter_map(|card| Some((card, card.lro?))).collect();
    if seen.is_empty() {
        return LRO.unknown("see `ethtool -k NIC`", wanted);
    }
    let name = |(card, on): &(&Card, bool)| format!("{}: {}", card.name, if *on { "on" } else { "off" });
    let found = seen.iter().map(name).collect::<Vec<_>>().join(", ");
    let verdict = if profile == Profile::Latency && seen.iter().any(|(_, on)| *on) {
        Verdict::Warn
    } else {
        Verdict::Ok
    };
    LRO.line(verdict, found, wanted)
}

fn firewall(facts: &GuestFacts, profile: Profile) -> Line {
    let wanted = if profile == Profile::Latency { "none, if the policy allows it" } else { "any" };
    match facts.firewall.as_deref() {
        None => FIREWALL.unknown("cannot be read", wanted),
        Some([]) => FIREWALL.line(Verdict::Ok, "none", wanted),
        Some(tables) if profile == Profile::Latency => {
            FIREWALL.line(Verdict::Warn, tables.join(", "), wanted)
        }
        Some(tables) => FIREWALL.line(Verdict::Ok, tables.join(", "), wanted),
    }
}

fn selinux(facts: &GuestFacts, profile: Profile) -> Line {
    let wanted = if profile == Profile::Latency { "off, if the policy allows it" } else { "any" };
    match facts.selinux.as_deref() {
        None => SELINUX.line(Verdict::Ok, "off", wanted),
        Some(mode) if profile == Profile::Latency => SELINUX.line(Verdict::Warn, mode, wanted),
        Some(mode) => SELINUX.line(Verdict::Ok, mode, wanted),
    }
}

fn java(facts: &GuestFacts) -> Line {
    let without: Vec<_> =
        facts.java.iter().filter(|java| !java.large_pages).map(|java| java.pid.to_string()).collect();
    match (facts.java.len(), without.len()) {
        (0, _) => JAVA.line(Verdict::Ok, "no Java process", "on"),
        (_, 0) => JAVA.line(Verdict::Ok, "on", "on"),
        (all, _) => JAVA.line(
            Verdict::Warn,
            format!("{} of {all} without: {}", without.len(), without.join(", ")),
            "on",
        ),
    }
}

fn pages(facts: &GuestFacts) -> Line {
    let wanted = "enough for Java's heap, if there is one";
    match pools_found(&facts.memory) {
        Some(found) => PAGES.line(Verdict::Ok, found, wanted),
        None if facts.java.is_empty() => PAGES.line(Verdict::Ok, "none", wanted),
        None => PAGES.line(Verdict::Warn, "none", wanted),
    }
}

fn thp(facts: &GuestFacts, profile: Profile) -> Line {
    let knob = facts.memory.thp.as_ref();
    if profile == Profile::Latency && knob.is_some() {
        return one_of(THP, as_slice(knob), &["madvise", "never"], Verdict::Warn, "");
    }
    any(THP, knob, "any")
}
