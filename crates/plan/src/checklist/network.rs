//! Physical NICs: moderation, sharing, pass-through, busy polling.

use taut_api::check::{Card, Change, HostFacts, Knob, Moderation};
use taut_api::pnic::{CoalescingSettings, PnicSettings};

use super::knobs::{any, at_least, at_most};
use super::line::{Item, Line, Profile, TakesEffect, Verdict};

const MODERATION: Item = Item {
    id: "nic.moderation",
    what: "interrupt moderation of physical cards",
    why: "The NIC holds a packet back for tens of microseconds to raise one interrupt for several \
           packets.",
    effect: "each packet is delivered at once; more interrupts, and hardware LRO merges less \
           (`ethtool -C NIC rx-usecs 0 adaptive-rx off`)",
    takes_effect: TakesEffect::Live,
};
const MODERATION_ON: Item = MODERATION.because(
    "Without moderation the NIC raises an interrupt for each packet.",
    "fewer interrupts, and less CPU time per packet; a packet can wait for tens of microseconds \
     (`ethtool -C NIC adaptive-rx on`, or `rx-usecs 50`)",
);
const GRO: Item = Item {
    id: "nic.gro-flush",
    what: "time that GRO waits for segments (gro_flush_timeout)",
    why: "The kernel holds a received segment back in case the next one can be merged with it.",
    effect: "segments are delivered at the end of each poll; more CPU time per byte",
    takes_effect: TakesEffect::Live,
};
const DEFER: Item = Item {
    id: "nic.deferred-irqs",
    what: "deferred interrupts (napi_defer_hard_irqs)",
    why: "With a flush timeout the NIC raises no interrupt until a timer polls it.",
    effect: "the NIC raises an interrupt as soon as a packet arrives",
    takes_effect: TakesEffect::Live,
};
const SHARED: Item = Item {
    id: "nic.separate",
    what: "NICs with a link",
    why: "On a shared NIC, latency-sensitive packets queue behind the bulk traffic of other VMs. \
           A NIC of their own keeps them apart.",
    effect: "no queueing behind the traffic of other VMs",
    takes_effect: TakesEffect::Live,
};
const PASS_THROUGH: Item = Item {
    id: "nic.pass-through",
    what: "NICs that can be passed through (SR-IOV, IOMMU)",
    why: "A virtual function in the guest bypasses the vSwitch, and with it shaping and live \
           migration.",
    effect: "saves the last few microseconds; needs `intel_iommu=on` or an AMD IOMMU, and virtual \
           functions",
    takes_effect: TakesEffect::Bios,
};
const BUSY_READ: Item = Item {
    id: "nic.busy-read",
    what: "busy polling of blocking reads (busy_read)",
    why: "A program that waits for a packet polls the NIC's queue itself instead of sleeping \
           until the interrupt.",
    effect: "saves a wake-up per packet; the pCPU is busy while it waits",
    takes_effect: TakesEffect::Live,
};
const BUSY_POLL: Item = Item {
    id: "nic.busy-poll",
    what: "busy polling of poll and select (busy_poll)",
    why: "A program that waits for many sockets polls the NICs' queues itself instead of sleeping \
           until the interrupt.",
    effect: "saves a wake-up per packet; the pCPU is busy while it waits",
    takes_effect: TakesEffect::Live,
};

const NO_BUSY_READ: Item = BUSY_READ.because(NO_POLLING.0, NO_POLLING.1);
const NO_BUSY_POLL: Item = BUSY_POLL.because(NO_POLLING.0, NO_POLLING.1);
/// Reasons not to poll on a host for many VMs.
const NO_POLLING: (&str, &str) = (
    "A program that waits for a packet keeps its pCPU from other VMs while it polls.",
    "the pCPU serves other VMs meanwhile; a program that waits costs a wake-up per packet",
);

/// Time in µs that an interrupt may wait, for cards that do not adapt their moderation. It is as in
/// the texts above.
const MODERATION_US: u32 = 50;
/// Time of busy polling in µs that the kernel's documentation recommends for latency.
const POLL_US: i64 = 50;

pub(super) fn lines(facts: &HostFacts, profile: Profile) -> Vec<Line> {
    let network = &facts.network;
    vec![
        moderation([MODERATION, MODERATION_ON], &network.cards, profile),
        zero(GRO, &network.cards, profile, |card| card.gro_flush.as_ref()),
        zero(DEFER, &network.cards, profile, |card| card.deferred_irqs.as_ref()),
        shared(&network.cards, profile),
        pass_through(facts, profile),
        polling([BUSY_READ, NO_BUSY_READ], network.busy_read.as_ref(), profile),
        polling([BUSY_POLL, NO_BUSY_POLL], network.busy_poll.as_ref(), profile),
    ]
}

/// Interrupt moderation of one card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moderates {
    On,
    Off,
    /// The card of a VM, which its host moderates.
    Outside,
    Unknown,
}

/// Judges the moderation of all NICs, by the kernel's report or else by the driver's parameter. The
/// items have the reasons to turn it off, and those to turn it on.
pub(super) fn moderation([off, on]: [Item; 2], cards: &[Card], profile: Profile) -> Line {
    let (item, wanted, unwanted, miss) = match profile {
        Profile::Latency => (off, "off", Moderates::On, Verdict::Bad),
        Profile::Throughput | Profile::Dense => (on, "on", Moderates::Off, Verdict::Warn),
    };
    if cards.is_empty() {
        return item.line(Verdict::Ok, "no NICs", wanted);
    }
    let (found, states): (Vec<_>, Vec<_>) = cards.iter().map(moderation_of).unzip();
    let verdict = if states.contains(&unwanted) {
        miss
    } else if states.contains(&Moderates::Unknown) {
        Verdict::Unknown
    } else {
        Verdict::Ok
    };
    let outside = if states.contains(&Moderates::Outside) { ", or left to the host" } else { "" };
    let of_interest = cards.iter().zip(states).filter(|(_, state)| *state == unwanted);
    let changes = of_interest.filter_map(|(card, _)| moderation_change(card, wanted == "on")).collect();
    Line { changes, ..item.line(verdict, found.join(", "), format!("{wanted}{outside}")) }
}

/// Returns the change that turns a card's moderation on or off; none if the kernel does not report
/// its settings. Then only the driver's module has one.
fn moderation_change(card: &Card, on: bool) -> Option<Change> {
    let seen = card.moderation?;
    let adaptive_rx = seen.adaptive_rx.map(|_| on);
    let rx_us = match (on, adaptive_rx) {
        // The driver chooses the time itself.
        (true, Some(true)) => None,
        (true, _) => seen.rx_us.map(|_| MODERATION_US),
        (false, _) => seen.rx_us.map(|_| 0),
    };
    let coalescing = CoalescingSettings { rx_us, adaptive_rx, ..CoalescingSettings::default() };
    let settings = PnicSettings { coalescing, ..PnicSettings::default() };
    Some(Change::Card { name: card.name.clone(), settings })
}

fn moderation_of(card: &Card) -> (String, Moderates) {
    let driver = card.driver.as_deref().unwrap_or("no driver");
    let (state, moderates) = match (&card.moderation, card.throttle.as_deref()) {
        (Some(Moderation { adaptive_rx: Some(true), .. }), _) => ("adaptive".to_owned(), Moderates::On),
        (Some(Moderation { rx_us: Some(us @ 1..), .. }), _) => (format!("{us} µs"), Moderates::On),
        // virtio_net reports 0 where it has no moderation of its own.
        _ if driver.starts_with("virtio") => ("left to the host".to_owned(), Moderates::Outside),
        (Some(_), _) => ("off".to_owned(), Moderates::Off),
        (None, Some(rate)) => {
            let on = rate.split(',').any(|rate| rate != "0");
            (format!("InterruptThrottleRate={rate}"), if on { Moderates::On } else { Moderates::Off })
        }
        (None, None) => (format!("see `ethtool -c {}`", card.name), Moderates::Unknown),
    };
    (format!("{} ({driver}): {state}", card.name), moderates)
}

fn zero(item: Item, cards: &[Card], profile: Profile, knob: fn(&Card) -> Option<&Knob>) -> Line {
    let knobs: Vec<_> = cards.iter().filter_map(|card| Some((card, knob(card)?))).collect();
    let set: Vec<_> = knobs.iter().filter(|(_, knob)| knob.value != "0").collect();
    let wanted = if profile == Profile::Latency { "0" } else { "any" };
    let found = match set.as_slice() {
        [] if knobs.is_empty() => "no NICs".to_owned(),
        [] => "0".to_owned(),
        set => set
            .iter()
            .map(|(card, knob)| format!("{}: {}", card.name, knob.value))
            .collect::<Vec<_>>()
            .join(", "),
    };
    if set.is_empty() || profile != Profile::Latency {
        return item.line(Verdict::Ok, found, wanted);
    }
    let lines = set.iter().map(|(_, knob)| at_most(item, Some(knob), 0, Verdict::Bad, ""));
    Line { changes: lines.flat_map(|line| line.changes).collect(), ..item.line(Verdict::Bad, found, wanted) }
}

fn shared(cards: &[Card], profile: Profile) -> Line {
    let names: Vec<_> =
        cards.iter().filter(|card| card.link == Some(true)).map(|card| card.name.as_str()).collect();
    let found = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let verdict = if profile == Profile::Latency && names.len() == 1 { Verdict::Warn } else { Verdict::Ok };
    let wanted = if profile == Profile::Latency { "one NIC for latency-sensitive VMs alone" } else { "any" };
    SHARED.line(verdict, found, wanted)
}

fn pass_through(facts: &HostFacts, profile: Profile) -> Line {
    let able = facts.network.cards.iter().filter(|card| card.virtual_functions > 0);
    let able: Vec<_> =
        able.map(|card| format!("{} ({} virtual functions)", card.name, card.virtual_functions)).collect();
    let wanted =
        if profile == Profile::Latency { "an IOMMU and a NIC with virtual functions" } else { "any" };
    let groups = facts.network.iommu_groups;
    let cards = if able.is_empty() { "no NIC with virtual functions".to_owned() } else { able.join(", ") };
    let iommu = if groups == 0 { "no IOMMU".to_owned() } else { format!("{groups} IOMMU groups") };
    let ready = groups > 0 && !able.is_empty();
    let verdict = if ready || profile != Profile::Latency { Verdict::Ok } else { Verdict::Warn };
    PASS_THROUGH.line(verdict, format!("{cards}, {iommu}"), wanted)
}

/// Judges busy polling. The items have the reasons to poll, and those not to.
pub(super) fn polling([item, not]: [Item; 2], knob: Option<&Knob>, profile: Profile) -> Line {
    match profile {
        Profile::Latency => at_least(item, knob, POLL_US, Verdict::Warn, "the kernel has none"),
        Profile::Throughput => any(item, knob, "any"),
        Profile::Dense => match knob {
            Some(_) => at_most(not, knob, 0, Verdict::Warn, ""),
            None => any(item, knob, "0"),
        },
    }
}

#[cfg(test)]
mod first_hour {
    use super::*;

    fn card(driver: &str, moderation: Option<Moderation>, throttle: Option<&str>) -> Card {
        let (driver, throttle) = (Some(driver.to_owned()), throttle.map(str::to_owned));
        Card { name: "eth0".to_owned(), driver, moderation, throttle, ..Card::default() }
    }

    #[test]
    fn moderation_that_is_off_is_not_ok_where_it_is_wanted_on() {
        let off = Some(Moderation { rx_us: Some(0), adaptive_rx: Some(false) });
        let on = Some(Moderation { rx_us: Some(3), adaptive_rx: Some(false) });
        let judge = |card: Card, profile| {
            let line = moderation([MODERATION, MODERATION_ON], &[card], profile);
            (line.verdict, line.found, line.wanted, line.effect)
        };
        for profile in [Profile::Throughput, Profile::Dense] {
            let (verdict, found, wanted, effect) = judge(card("igb", off, None), profile);
            assert_eq!((verdict, &*found, &*wanted), (Verdict::Warn, "eth0 (igb): off", "on"));
            assert!(effect.contains("adaptive-rx on"), "{effect}");
            assert_eq!(judge(card("e1000", None, Some("0,0")), profile).0, Verdict::Warn);
            assert_eq!(judge(card("igb", on, None), profile).0, Verdict::Ok);
            let (verdict, found, wanted, _) = judge(card("virtio_net", off, None), profile);
            assert_eq!(verdict, Verdict::Ok);
            assert_eq!(
                (&*found, &*wanted),
                ("eth0 (virtio_net): left to the host", "on, or left to the host")
            );
        }
        assert_eq!(judge(card("igb", off, None), Profile::Latency).0, Verdict::Ok);
        assert_eq!(judge(card("igb", on, None), Profile::Latency).0, Verdict::Bad);
    }

    #[test]
    fn apply_turns_moderation_off_or_on_by_what_the_card_has() {
        let changes = |rx_us, adaptive_rx, profile| {
            let card = card("igb", Some(Moderation { rx_us, adaptive_rx }), None);
            let line = moderation([MODERATION, MODERATION_ON], &[card], profile);
            line.changes.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(changes(Some(3), Some(true), Profile::Latency), ["eth0: rx-usecs 0, adaptive-rx off"]);
        assert_eq!(changes(Some(3), None, Profile::Latency), ["eth0: rx-usecs 0"]);
        assert_eq!(changes(None, Some(true), Profile::Latency), ["eth0: adaptive-rx off"]);
        assert_eq!(changes(Some(0), Some(false), Profile::Latency), [""; 0]);
        assert_eq!(changes(Some(0), Some(false), Profile::Throughput), ["eth0: adaptive-rx on"]);
        assert_eq!(changes(Some(0), None, Profile::Dense), ["eth0: rx-usecs 50"]);
        assert_eq!(changes(Some(20), None, Profile::Dense), [""; 0]);
        // A virtio card is moderated by its host, and one that reports nothing by its module alone.
        let of = |card: Card| moderation([MODERATION, MODERATION_ON], &[card], Profile::Latency).changes;
        let off = Some(Moderation { rx_us: Some(0), adaptive_rx: None });
        assert_eq!(of(card("virtio_net", off, None)), []);
        assert_eq!(of(card("e1000e", None, Some("3"))), []);
    }
}
