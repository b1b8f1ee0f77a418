//! Frequencies and power saving (S3 "BIOS settings"; S0 "disable all power management").

use taut_api::check::{HostFacts, Knob, PowerFacts};

use super::knobs::{any, as_slice, one_of};
use super::line::{Item, Line, Profile, TakesEffect, Verdict};

const FIRMWARE: Item = Item {
    id: "power.firmware",
    what: "power profile of the firmware",
    why: "A firmware that saves power lowers frequencies and sleeps behind the kernel's back.",
    effect: "steady frequencies; more power",
    takes_effect: TakesEffect::Bios,
};
const DRIVER: Item = Item {
    id: "power.driver",
    what: "frequency driver",
    why: "Without one the firmware or the hypervisor below decides how fast the pCPUs run.",
    effect: "the kernel, and this list, decide about frequencies",
    takes_effect: TakesEffect::Bios,
};
const GOVERNOR: Item = Item {
    id: "power.governor",
    what: "frequency governor",
    why: "A pCPU that was slowed down while idle needs tens of microseconds to be fast again when a packet comes.",
    effect: "full speed from the first instruction; more power",
    takes_effect: TakesEffect::Live,
};
const PREFERENCE: Item = Item {
    id: "power.preference",
    what: "energy-performance preference",
    why: "CPUs that choose their own frequency weigh power against speed by this hint.",
    effect: "the CPU goes to full speed sooner; more power",
    takes_effect: TakesEffect::Live,
};
const BIAS: Item = Item {
    id: "power.bias",
    what: "energy-performance bias",
    why: "It steers what the CPU decides about its uncore and turbo, besides the frequency.",
    effect: "memory and links between sockets answer sooner; more power",
    takes_effect: TakesEffect::Live,
};
const TURBO: Item = Item {
    id: "power.turbo",
    what: "turbo",
    why: "The highest frequencies finish each request sooner; where equal times count more than short ones, turn it off.",
    effect: "shorter times; they vary with temperature and with how many cores are busy",
    takes_effect: TakesEffect::Live,
};
const ASPM: Item = Item {
    id: "power.pcie",
    what: "sleep of PCI Express links (chipset power management)",
    why: "A network card behind a sleeping link waits for the link to wake up before it can say that a packet has come.",
    effect: "less to wait for after a pause; a little more power",
    takes_effect: TakesEffect::Live,
};
const TUNED: Item = Item {
    id: "power.tuned",
    what: "tuned profile",
    why: "tuned sets much of what is on this list again at each boot; a profile for another purpose undoes it.",
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
    // Where Linux can set the profile no boot is needed.
    let item = if facts.power.profile.is_some() {
        Item { takes_effect: TakesEffect::Live, ..FIRMWARE }
    } else {
        FIRMWARE
    };
    let absent =
        if facts.cpu.in_vm { "this host is a VM" } else { "not visible: look into the firmware's set-up" };
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

/// Intel's driver has a `powersave` that is not slow, only dynamic.
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

/// Hints that not every CPU takes: nothing is missing where it does not.
fn hint(item: Item, power: &PowerFacts, knobs: &[Knob], wanted: &[&str]) -> Line {
    if knobs.is_empty() && !power.governors.is_empty() {
        return item.line(Verdict::Ok, "the CPU takes none", wanted.join(" or "));
    }
    one_of(item, knobs, wanted, Verdict::Warn, NO_CPUFREQ)
}

fn turbo(power: &PowerFacts, profile: Profile) -> Line {
    let Some(turbo) = &power.turbo else { return TURBO.unknown("no switch", "on") };
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
