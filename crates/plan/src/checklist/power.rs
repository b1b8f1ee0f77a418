//! Frequencies and power saving.

use taut_api::check::{HostFacts, Knob, PowerFacts};

use super::knobs::{any, as_slice, one_of};
use super::line::{Item, Line, Profile, TakesEffect, Verdict};

const FIRMWARE: Item = Item {
    id: "power.firmware",
    what: "power profile of the firmware",
    why: "Firmware that saves power lowers frequencies and enters sleep states without the \
           kernel's knowledge.",
    effect: "steady frequencies; costs power",
    takes_effect: TakesEffect::Bios,
};
const DRIVER: Item = Item {
    id: "power.driver",
    what: "frequency driver",
    why: "Without a frequency driver the firmware, or the hypervisor below, sets the speed of the \
           pCPUs.",
    effect: "the kernel sets frequencies, and this checklist can judge them",
    takes_effect: TakesEffect::Bios,
};
const GOVERNOR: Item = Item {
    id: "power.governor",
    what: "frequency governor",
    why: "A pCPU that was slowed down while idle takes tens of microseconds to reach full speed \
           when a packet arrives.",
    effect: "full speed from the first instruction on; costs power",
    takes_effect: TakesEffect::Live,
};
const PREFERENCE: Item = Item {
    id: "power.preference",
    what: "energy-performance preference",
    why: "A CPU that chooses its own frequency uses this hint to weigh power against speed.",
    effect: "the CPU reaches full speed sooner; costs power",
    takes_effect: TakesEffect::Live,
};
const BIAS: Item = Item {
    id: "power.bias",
    what: "energy-performance bias",
    why: "This hint steers the CPU's uncore and turbo, besides its frequency.",
    effect: "memory and links between sockets respond sooner; costs power",
    takes_effect: TakesEffect::Live,
};
const TURBO: Item = Item {
    id: "power.turbo",
    what: "turbo",
    why: "The highest frequencies finish each request sooner. Turn turbo off where equal times \
           matter more than short ones.",
    effect: "shorter times, which vary with temperature and with the number of busy cores",
    takes_effect: TakesEffect::Live,
};
const ASPM: Item = Item {
    id: "power.pcie",
    what: "power saving of PCI Express links (ASPM)",
    why: "A NIC behind a sleeping link cannot report a packet before the link is awake.",
    effect: "shorter waits after a pause; costs a little power",
    takes_effect: TakesEffect::Live,
};
const TUNED: Item = Item {
    id: "power.tuned",
    what: "tuned profile",
    why: "tuned applies many settings of this checklist at each boot; a profile for another \
           purpose undoes them.",
    effect: "the settings survive a boot (`tuned-adm profile NAME`)",
    takes_effect: TakesEffect::Live,
};

pub(super) fn lines(facts: &HostFacts, profile: Profile) -> Vec<Line> {
    let power = &facts.power;
    vec![
        firmware(facts, profile),
        driver(facts),
        governor(power, profile),
        preference(power, profile),
        bias(power, profile),
        turbo(power, profile),
        aspm(power, profile),
        tuned(power, profile),
    ]
}

const NO_CPUFREQ: &str = "no frequency driver";

fn firmware(facts: &HostFacts, profile: Profile) -> Line {
    let wanted: &[&str] = match profile {
        Profile::Latency | Profile::Throughput => &["performance"],
        Profile::Dense => &["balanced", "performance"],
    };
    // A profile that Linux can set needs no boot.
    let item = if facts.power.profile.is_some() {
        Item { takes_effect: TakesEffect::Live, ..FIRMWARE }
    } else {
        FIRMWARE
    };
    let absent = if facts.cpu.in_vm { "this host is a VM" } else { "not visible: see the firmware's setup" };
    one_of(item, as_slice(facts.power.profile.as_ref()), wanted, Verdict::Bad, absent)
}

fn driver(facts: &HostFacts) -> Line {
    let wanted = "any";
    match &facts.power.driver {
        Some(driver) => DRIVER.line(Verdict::Ok, driver, wanted),
        None if facts.cpu.in_vm => DRIVER.unknown("none: this host is a VM", wanted),
        None => DRIVER.line(Verdict::Warn, "none: the firmware decides", wanted),
    }
}

/// With Intel's driver `powersave` changes the frequency with the load and is not slow.
fn governor(power: &PowerFacts, profile: Profile) -> Line {
    let chooses_itself = matches!(power.driver.as_deref(), Some("intel_pstate" | "amd-pstate-epp"));
    let (wanted, miss): (&[&str], _) = match (profile, chooses_itself) {
        (Profile::Latency, _) => (&["performance"], Verdict::Bad),
        (Profile::Throughput, _) => (&["performance", "schedutil"], Verdict::Warn),
        (Profile::Dense, true) => (&["powersave", "performance"], Verdict::Warn),
        (Profile::Dense, false) => (&["schedutil", "ondemand", "performance"], Verdict::Warn),
    };
    one_of(GOVERNOR, &power.governors, wanted, miss, NO_CPUFREQ)
}

fn preference(power: &PowerFacts, profile: Profile) -> Line {
    let wanted: &[&str] = match profile {
        Profile::Latency => &["performance"],
        Profile::Throughput => &["performance", "balance_performance"],
        Profile::Dense => &["balance_performance", "performance", "default"],
    };
    hint(PREFERENCE, power, &power.preferences, wanted)
}

fn bias(power: &PowerFacts, profile: Profile) -> Line {
    let wanted: &[&str] = match profile {
        Profile::Latency => &["0"],
        Profile::Throughput => &["0", "4"],
        Profile::Dense => &["6", "4", "0"],
    };
    hint(BIAS, power, &power.biases, wanted)
}

/// Judges a hint that not every CPU supports. A CPU without it lacks nothing.
fn hint(item: Item, power: &PowerFacts, knobs: &[Knob], wanted: &[&str]) -> Line {
    if knobs.is_empty() && !power.governors.is_empty() {
        return item.line(Verdict::Ok, "the CPU has no such hint", wanted.join(" or "));
    }
    one_of(item, knobs, wanted, Verdict::Warn, NO_CPUFREQ)
}

fn turbo(power: &PowerFacts, profile: Profile) -> Line {
    let Some(turbo) = &power.turbo else { return TURBO.unknown("no setting visible", "on") };
    let miss = if profile == Profile::Throughput { Verdict::Bad } else { Verdict::Warn };
    let line = one_of(TURBO, as_slice(Some(&turbo.knob)), &[&turbo.on], miss, "");
    let found = if turbo.knob.value == turbo.on { "on" } else { "off" };
    Line { found: found.to_owned(), wanted: "on".to_owned(), ..line }
}

fn aspm(power: &PowerFacts, profile: Profile) -> Line {
    if profile == Profile::Latency {
        one_of(
            ASPM,
            as_slice(power.aspm.as_ref()),
            &["performance"],
            Verdict::Warn,
            "the kernel does not manage it",
        )
    } else {
        any(ASPM, power.aspm.as_ref(), "any")
    }
}

fn tuned(power: &PowerFacts, profile: Profile) -> Line {
    let wanted: &[&str] = match profile {
        Profile::Latency => {
            &["realtime-virtual-host", "cpu-partitioning", "network-latency", "latency-performance"]
        }
        Profile::Throughput => &["virtual-host", "throughput-performance", "network-throughput"],
        Profile::Dense => &["virtual-host", "balanced"],
    };
    let words = format!("{}, or none", wanted.join(", "));
    match &power.tuned {
        None => TUNED.line(Verdict::Ok, "none", words),
        Some(active) if wanted.contains(&active.as_str()) => TUNED.line(Verdict::Ok, active, words),
        Some(active) => TUNED.line(Verdict::Warn, active, words),
    }
}
