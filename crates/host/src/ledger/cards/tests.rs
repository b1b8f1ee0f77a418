use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use super::*;
use crate::kernel::cards::fixture::{FakeCard, FakeCards};

struct Host {
    root: tempfile::TempDir,
    cards: FakeCards,
}

impl Host {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let host = Self { root, cards: FakeCards::plug(&["eth1", "eth2"]) };
        host.boot("5f1c\n");
        host
    }

    fn boot(&self, id: &str) {
        let file = self.root.path().join("proc/sys/kernel/random/boot_id");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, id).unwrap();
    }

    fn ledger(&self) -> Ledger {
        Ledger::new(self.root.path(), &self.folder())
    }

    fn folder(&self) -> std::path::PathBuf {
        self.root.path().join("var/lib/taut")
    }

    /// Makes these the settings that the daemon wants.
    fn settle(&self, wanted: &[(&str, &str)]) -> SettledCards {
        self.ledger().settle_cards(Holder::Daemon, &settings(wanted), &mut self.cards.clone()).unwrap()
    }

    /// Adds these to what `taut check host --apply` wants.
    fn add(&self, wanted: &[(&str, &str)]) -> SettledCards {
        self.ledger().add_cards(Holder::Check, &settings(wanted), &mut self.cards.clone()).unwrap()
    }

    fn undo(&self) -> SettledCards {
        let none = BTreeMap::new();
        self.ledger().settle_cards(Holder::Check, &none, &mut self.cards.clone()).unwrap()
    }

    fn has_ledger(&self) -> bool {
        Path::exists(&self.folder().join("host-changes.json"))
    }
}

fn settings(wanted: &[(&str, &str)]) -> BTreeMap<String, PnicSettings> {
    wanted.iter().map(|(name, json)| ((*name).to_owned(), serde_json::from_str(json).unwrap())).collect()
}

/// Everything of a card.
const ALL: &str = r#"{ "speed_mbit": 100, "duplex": "half", "autoneg": false, "rings": { "rx": 512 },
    "coalescing": { "rx_us": 0, "adaptive_rx": false }, "offloads": { "tso": false, "gro": false } }"#;

fn texts<T>(map: &BTreeMap<CardKey, T>, text: impl Fn(&T) -> String) -> Vec<String> {
    map.iter().map(|(key, value)| format!("{key}: {}", text(value))).collect()
}

fn steps(map: &BTreeMap<CardKey, Step>) -> Vec<String> {
    texts(map, |step| format!("{} → {}", step.from, step.to))
}

fn problems(card: &SettledCard) -> Vec<String> {
    texts(&card.problems, Clone::clone)
}

#[test]
fn all_settings_are_made_so_and_given_back() {
    let host = Host::new();
    let card = host.settle(&[("eth1", ALL)]).remove("eth1").unwrap();
    assert_eq!(problems(&card), [""; 0]);
    assert_eq!(
        steps(&card.in_force),
        [
            "link: autoneg on, offering 100 full/1000 full → autoneg off, speed 100, duplex half",
            "rx-ring: 256 → 512",
            "rx-usecs: 3 → 0",
            "adaptive-rx: on → off",
            "tso: on → off",
            "gro: on → off",
        ]
    );
    assert!(host.has_ledger());
    let changes = host.cards.kernel().changes;
    let again = host.settle(&[("eth1", ALL)]).remove("eth1").unwrap();
    assert_eq!(host.cards.kernel().changes, changes, "what is so is not set again");
    assert_eq!(again.state.read_again(7, &mut host.cards.clone()).unwrap(), again.state);

    // One setting after the other.
    let some = r#"{ "autoneg": false, "rings": { "rx": 512 } }"#;
    let card = host.settle(&[("eth1", some)]).remove("eth1").unwrap();
    assert_eq!(
        steps(&card.given_back),
        ["rx-usecs: 0 → 3", "adaptive-rx: off → on", "tso: off → on", "gro: off → on"]
    );
    let link = host.cards.card("eth1").link.unwrap();
    assert_eq!((link.speed_mbit, link.autoneg), (Some(1000), false), "the speed of before, forced");
    let card = host.settle(&[]).remove("eth1").unwrap();
    assert_eq!(card.given_back.len(), 2);
    assert_eq!(host.cards.card("eth1"), FakeCard::new(7), "each offered mode, and what was asked for");
    assert!(!host.has_ledger(), "nothing is left to be undone");
}

#[test]
fn a_speed_is_the_only_one_that_is_offered_while_it_is_negotiated() {
    let host = Host::new();
    let card = host.settle(&[("eth1", r#"{ "speed_mbit": 100 }"#)]).remove("eth1").unwrap();
    assert_eq!(problems(&card), [""; 0]);
    assert_eq!(
        steps(&card.in_force),
        ["link: autoneg on, offering 100 full/1000 full → autoneg on, offering 100 half/100 full"]
    );
    // The negotiated speed changes by itself.
    let state = card.state;
    host.cards.kernel().cards.get_mut("eth1").unwrap().link.as_mut().unwrap().speed_mbit = None;
    assert_eq!(state.read_again(7, &mut host.cards.clone()).unwrap(), state);
    host.settle(&[]);
    assert_eq!(host.cards.card("eth1"), FakeCard::new(7));
}

#[test]
fn the_next_process_continues_wherever_one_was_killed() {
    for wanted in [ALL, r#"{ "rings": { "rx": 512, "tx": 8 }, "offloads": { "tso": false } }"#] {
        for dies_at in 0.. {
            let host = Host::new();
            host.cards.kernel().dies_at = Some(dies_at);
            let put = catch_unwind(AssertUnwindSafe(|| host.settle(&[("eth1", wanted)])));
            let given_back = put.and_then(|_| catch_unwind(AssertUnwindSafe(|| host.settle(&[]))));
            host.cards.kernel().dies_at = None;
            assert_eq!(given_back.is_err(), host.has_ledger(), "{dies_at}");
            host.settle(&[]);
            assert_eq!(host.cards.card("eth1"), FakeCard::new(7), "killed at change {dies_at}");
            assert!(!host.has_ledger());
            if given_back.is_ok() {
                assert!(dies_at > 3);
                break;
            }
        }
    }
}

#[test]
fn what_the_card_lacks_refuses_or_rounds_is_told() {
    let host = Host::new();
    let wanted = r#"{ "rings": { "rx": 500, "tx": 8 }, "channels": { "combined": 2 },
        "offloads": { "lro": true, "txvlan": false, "tso": true, "tx-checksum": false } }"#;
    let card = host.settle(&[("eth1", wanted)]).remove("eth1").unwrap();
    assert_eq!(
        problems(&card),
        [
            "channels: the card has no such setting",
            "rx-ring: the card makes 504 of 500",
            "tso: stays off, probably because it needs another offload, such as tx-checksum",
            "lro: it is fixed off",
            "txvlan: the card has no such setting",
        ]
    );
    assert_eq!(steps(&card.in_force), ["tx-ring: 256 → 8", "tx-checksum: on → off"]);
    assert!(!card.has_errors);
    let beyond = host.settle(&[("eth1", r#"{ "rings": { "rx": 5000 } }"#)]).remove("eth1").unwrap();
    assert!(problems(&beyond)[0].starts_with("rx-ring: cannot be set to 5000: "), "{beyond:?}");
    assert!(beyond.has_errors);
    // A fixed offload that is as wanted is no problem.
    let off = host.settle(&[("eth1", r#"{ "offloads": { "lro": false } }"#)]).remove("eth1").unwrap();
    assert_eq!(problems(&off), [""; 0]);
    host.settle(&[]);
    assert_eq!(host.cards.card("eth1"), FakeCard::new(7));
}

#[test]
fn what_cannot_be_given_back_now_is_given_back_later() {
    let host = Host::new();
    host.settle(&[("eth1", ALL)]);
    host.cards.kernel().refuses = true;
    let card = host.settle(&[]).remove("eth1").unwrap();
    assert_eq!(problems(&card).len(), 6, "{:?}", card.problems);
    assert!(problems(&card)[1].contains("cannot be set to 256: the firmware is busy"));
    assert!(host.has_ledger() && host.ledger().has_cards(Holder::Daemon).unwrap());
    host.cards.kernel().refuses = false;
    host.settle(&[]);
    assert_eq!(host.cards.card("eth1"), FakeCard::new(7));
    assert!(!host.has_ledger());
}

#[test]
fn two_holders_of_a_card_get_along() {
    let host = Host::new();
    let moderation = r#"{ "coalescing": { "rx_us": 0, "adaptive_rx": false } }"#;
    let card = host.add(&[("eth1", moderation)]).remove("eth1").unwrap();
    assert_eq!(steps(&card.in_force), ["rx-usecs: 3 → 0", "adaptive-rx: on → off"]);
    let daemon = r#"{ "coalescing": { "rx_us": 50 }, "rings": { "tx": 64 } }"#;
    host.settle(&[("eth1", daemon)]);
    assert_eq!(host.cards.value("eth1", PnicParameter::RxUsecs), 50, "the daemon prevails");
    assert_eq!(host.cards.value("eth1", PnicParameter::AdaptiveRx), 0);
    let card = host.add(&[("eth1", moderation)]).remove("eth1").unwrap();
    assert_eq!(card.held, [CardKey::Parameter(PnicParameter::RxUsecs)].into());
    // A second claim adds to the first one.
    host.add(&[("eth1", r#"{ "offloads": { "gro": false } }"#)]);
    assert_eq!(host.ledger().claimed_cards(Holder::Check).unwrap()["eth1"].parameters().len(), 2);
    host.settle(&[]);
    assert_eq!(host.cards.value("eth1", PnicParameter::RxUsecs), 0, "the other claim is in force again");
    assert_eq!(host.cards.value("eth1", PnicParameter::TxRing), 256);
    let card = host.undo().remove("eth1").unwrap();
    assert_eq!(steps(&card.given_back), ["rx-usecs: 0 → 3", "adaptive-rx: off → on", "gro: off → on"]);
    assert_eq!(host.cards.card("eth1"), FakeCard::new(7));
    assert!(!host.has_ledger());
}

#[test]
fn a_claim_of_the_command_line_that_is_refused_is_given_up() {
    let host = Host::new();
    let wanted = r#"{ "rings": { "rx": 500 }, "channels": { "rx": 1 }, "offloads": { "gro": false } }"#;
    let card = host.add(&[("eth1", wanted)]).remove("eth1").unwrap();
    assert_eq!(problems(&card).len(), 2);
    assert_eq!(host.cards.value("eth1", PnicParameter::RxRing), 256, "rounded, so it was put back");
    let kept = host.ledger().claimed_cards(Holder::Check).unwrap();
    assert_eq!(kept["eth1"].to_string(), "gro off");
    host.undo();
    assert_eq!(host.cards.card("eth1"), FakeCard::new(7));
}

#[test]
fn an_interface_that_is_renamed_replaced_or_of_an_earlier_boot_gets_only_what_is_its_own() {
    let host = Host::new();
    let ring = r#"{ "rings": { "rx": 512 } }"#;
    host.settle(&[("eth1", ring), ("eth2", ring)]);
    {
        // eth1 has another name now, and eth2 is another card.
        let cards = &mut host.cards.kernel().cards;
        let renamed = cards.remove("eth1").unwrap();
        cards.insert("wan0".to_owned(), renamed);
        cards.insert("eth2".to_owned(), FakeCard::new(9));
    }
    let settled = host.settle(&[("eth1", ring)]);
    assert_eq!(settled["eth1"].index, None, "nothing has this name");
    assert_eq!(host.cards.card("wan0"), FakeCard::new(7), "it is given back under its new name");
    assert_eq!(host.cards.card("eth2"), FakeCard::new(9), "the new card is not touched");
    assert!(!host.has_ledger());
    // The card comes back as another one.
    host.cards.kernel().cards.insert("eth1".to_owned(), FakeCard::new(10));
    host.settle(&[("eth1", ring)]);
    assert_eq!(host.cards.value("eth1", PnicParameter::RxRing), 512);
    host.boot("77aa\n");
    host.cards.kernel().cards.insert("eth1".to_owned(), FakeCard::new(10));
    assert!(!host.ledger().has_cards(Holder::Daemon).unwrap(), "a boot undoes everything");
    host.settle(&[]);
    assert_eq!(host.cards.card("eth1"), FakeCard::new(10));
}

#[test]
fn a_ledger_without_cards_is_read() {
    let old: Book = serde_json::from_str(r#"{ "boot": "5f1c", "files": [] }"#).unwrap();
    assert!(old.cards.is_empty());
    let host = Host::new();
    host.settle(&[("eth1", ALL)]);
    let text = fs::read_to_string(host.folder().join("host-changes.json")).unwrap();
    let book: Book = serde_json::from_str(&text).unwrap();
    let card = &book.cards[0];
    assert_eq!((card.name.as_str(), card.index, card.parameters.len()), ("eth1", 7, 3));
    assert!(text.contains(r#""rx-ring": 256"#) && text.contains(r#""rx-gro": true"#), "{text}");
}
