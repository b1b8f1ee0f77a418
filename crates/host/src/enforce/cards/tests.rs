use taut_api::pnic::PnicParameter;

use super::*;
use crate::kernel::cards::fixture::{FakeCard, FakeCards};

const RING: &str = r#"{ "rings": { "rx": 512 } }"#;

struct Host {
    root: tempfile::TempDir,
    kernel: FakeCards,
    cards: Cards,
    report: HostReport,
    now: Instant,
}

impl Host {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let kernel = FakeCards::plug(&["eth1"]);
        let cards = start(root.path(), &kernel);
        Self { root, kernel, cards, report: HostReport::default(), now: Instant::now() }
    }

    /// Settles a plan with these settings of eth1, and returns what is not in force.
    fn settle(&mut self, settings: Option<&str>) -> Vec<String> {
        let name: Name = "eth1".parse().unwrap();
        let cards = settings.map(|json| (name.clone(), serde_json::from_str(json).unwrap()));
        let plan = HostPlan { cards: cards.into_iter().collect(), ..HostPlan::default() };
        self.cards.settle(&plan, self.now, &mut self.report).unwrap();
        self.report.cards.get(&name).cloned().unwrap_or_default()
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
    }

    fn ring(&self) -> u32 {
        self.kernel.value("eth1", PnicParameter::RxRing)
    }

    fn changes(&self) -> u32 {
        self.kernel.kernel().changes
    }
}

fn start(root: &Path, kernel: &FakeCards) -> Cards {
    let ledger = Ledger::new(root, &root.join("var/lib/taut"));
    Cards::with_kernel(Box::new(kernel.clone()), ledger).unwrap()
}

#[test]
fn a_plan_is_put_in_force_at_once_and_kept() {
    let mut host = Host::new();
    assert!(host.settle(None).is_empty() && host.cards.is_idle());
    assert!(!host.root.path().join("var").exists(), "without settings nothing is written");
    assert!(host.settle(Some(RING)).is_empty());
    assert_eq!((host.ring(), host.changes(), host.cards.is_idle()), (512, 1, false));
    // A change by another program is seen within a minute, and corrected.
    let change = |host: &Host, value| {
        let mut kernel = host.kernel.kernel();
        let ring = kernel.cards.get_mut("eth1").unwrap().parameters.get_mut(&PnicParameter::RxRing);
        ring.unwrap().value = value;
    };
    change(&host, 64);
    host.settle(Some(RING));
    assert_eq!(host.ring(), 64);
    host.wait(READ);
    assert!(host.settle(Some(RING)).is_empty());
    assert_eq!((host.ring(), host.changes()), (512, 2));
    // A change of the interface is a reason to look at once, but not to correct within the minute.
    change(&host, 64);
    host.kernel.kernel().cards.get_mut("eth1").unwrap().has_carrier = false;
    host.wait(LOOK);
    let told = host.settle(Some(RING));
    assert!(told[0].starts_with("rx-ring: another program keeps setting it to 64"), "{told:?}");
    assert_eq!(host.changes(), 2);
    host.wait(READ);
    assert!(host.settle(Some(RING)).is_empty());
    assert_eq!((host.ring(), host.changes()), (512, 3));
    // Settings without a claim are left to others.
    host.kernel.kernel().cards.get_mut("eth1").unwrap().parameters.remove(&PnicParameter::TxRing);
    host.wait(READ);
    host.settle(Some(RING));
    assert_eq!(host.changes(), 3);
    host.settle(None);
    assert_eq!((host.ring(), host.cards.is_idle()), (256, true));
}

#[test]
fn a_card_that_comes_back_gets_its_settings_again() {
    let mut host = Host::new();
    host.settle(Some(RING));
    host.kernel.kernel().cards.clear();
    host.wait(LOOK);
    assert_eq!(host.settle(Some(RING)), ["the host has no such interface now"]);
    host.kernel.kernel().cards.insert("eth1".to_owned(), FakeCard::new(8));
    host.wait(LOOK);
    assert!(host.settle(Some(RING)).is_empty());
    assert_eq!(host.ring(), 512);
    host.settle(None);
    assert_eq!(host.kernel.card("eth1"), FakeCard::new(8));
}

#[test]
fn a_refusal_is_not_repeated_each_second() {
    let mut host = Host::new();
    host.kernel.kernel().refuses = true;
    assert_eq!(host.settle(Some(RING)), ["rx-ring: cannot be set to 512: the firmware is busy"]);
    let reads = host.kernel.kernel().reads;
    for _ in 1..READ.as_secs() {
        host.wait(LOOK);
        assert_eq!(host.settle(Some(RING)).len(), 1);
    }
    assert_eq!((host.changes(), host.kernel.kernel().reads), (1, reads), "nor are settings read");
    // The pause doubles, and a change of the interface does not end it.
    for (minute, expected) in [(1, 2), (2, 2), (3, 3), (4, 3), (5, 3), (6, 3)] {
        let is_odd = minute % 2 == 1;
        host.kernel.kernel().cards.get_mut("eth1").unwrap().has_carrier = is_odd;
        host.wait(if minute == 1 { LOOK } else { READ });
        let told = host.settle(Some(RING));
        assert_eq!(told, ["rx-ring: cannot be set to 512: the firmware is busy"]);
        assert_eq!(host.changes(), expected, "minute {minute}");
    }
    host.kernel.kernel().refuses = false;
    host.wait(READ);
    assert!(host.settle(Some(RING)).is_empty());
    assert_eq!((host.ring(), host.changes()), (512, 4));
    // A value that the card has rounded stays so, and is told.
    let odd = r#"{ "rings": { "rx": 500 } }"#;
    assert_eq!(host.settle(Some(odd)), ["rx-ring: the card makes 504 of 500"]);
    let changes = host.changes();
    host.wait(2 * READ);
    assert_eq!(host.settle(Some(odd)), ["rx-ring: the card makes 504 of 500"]);
    assert_eq!(host.changes(), changes);
}

#[test]
fn the_next_daemon_keeps_what_is_wanted_and_gives_back_what_is_not() {
    let mut host = Host::new();
    host.settle(Some(RING));
    host.cards = start(host.root.path(), &host.kernel);
    assert!(!host.cards.is_idle());
    host.settle(Some(RING));
    assert_eq!((host.ring(), host.changes()), (512, 1));
    host.cards = start(host.root.path(), &host.kernel);
    host.settle(None);
    assert_eq!((host.ring(), host.cards.is_idle()), (256, true));
}

#[test]
fn a_card_that_cannot_be_read_is_read_again() {
    let mut host = Host::new();
    host.kernel.kernel().is_unreadable = true;
    assert_eq!(host.settle(Some(RING)), ["rx-ring: cannot be read: the driver is being reset"]);
    assert_eq!(host.changes(), 0, "nothing is changed whose former value is unknown");
    host.kernel.kernel().is_unreadable = false;
    host.wait(READ);
    assert!(host.settle(Some(RING)).is_empty());
    assert_eq!(host.ring(), 512);
}

#[test]
fn a_forced_speed_needs_a_link_and_is_judged_only_with_one() {
    let mut host = Host::new();
    let forced = r#"{ "autoneg": false, "speed_mbit": 100 }"#;
    let link = |host: &Host, has_carrier: bool, autoneg: bool, speed: Option<u32>| {
        let mut kernel = host.kernel.kernel();
        let card = kernel.cards.get_mut("eth1").unwrap();
        card.has_carrier = has_carrier;
        let link = card.link.as_mut().unwrap();
        (link.autoneg, link.speed_mbit) = (autoneg, speed);
    };
    link(&host, false, false, None);
    assert_eq!(host.settle(Some(forced)), ["link: no link: the former speed is unknown"]);
    link(&host, true, false, Some(1000));
    host.wait(LOOK);
    assert!(host.settle(Some(forced)).is_empty());
    assert_eq!(host.changes(), 1);
    // Without a carrier the driver states another speed.
    link(&host, false, false, Some(10));
    host.wait(LOOK);
    assert!(host.settle(Some(forced)).is_empty());
    assert_eq!(host.changes(), 1);
    link(&host, true, false, Some(10));
    host.wait(LOOK);
    assert!(host.settle(Some(forced)).is_empty());
    assert_eq!(host.changes(), 2);
    host.settle(None);
    let link = host.kernel.card("eth1").link.unwrap();
    assert_eq!((link.autoneg, link.speed_mbit), (false, Some(1000)));
}

#[test]
fn a_ledger_that_cannot_be_written_is_a_problem_of_each_card() {
    let root = tempfile::tempdir().unwrap();
    let kernel = FakeCards::plug(&["eth1"]);
    let mut cards = start(root.path(), &kernel);
    std::fs::write(root.path().join("var"), "no folder").unwrap();
    let plan = HostPlan {
        cards: [("eth1".parse().unwrap(), serde_json::from_str(RING).unwrap())].into(),
        ..HostPlan::default()
    };
    let mut report = HostReport::default();
    let error = cards.settle(&plan, Instant::now(), &mut report).unwrap_err();
    report.unrecorded.push(taut_api::enforcement::Unrecorded { what: WHAT, causes: vec![error.to_string()] });
    note_unrecorded(&plan, &mut report);
    let problems = report.cards.values().next().unwrap();
    assert!(problems[0].starts_with("its former settings cannot be recorded: "), "{problems:?}");
    assert_eq!(kernel.kernel().changes, 0);
}

#[test]
fn drivers_are_not_asked_again_while_the_ledger_cannot_be_written() {
    let root = tempfile::tempdir().unwrap();
    let kernel = FakeCards::plug(&["eth1"]);
    let mut cards = start(root.path(), &kernel);
    let obstacle = root.path().join("var/lib/taut/host-changes.next");
    std::fs::create_dir_all(&obstacle).unwrap();
    let plan = HostPlan {
        cards: [("eth1".parse().unwrap(), serde_json::from_str(RING).unwrap())].into(),
        ..HostPlan::default()
    };
    let mut now = Instant::now();
    let mut settle = |cards: &mut Cards| {
        now += LOOK;
        cards.settle(&plan, now, &mut HostReport::default())
    };
    settle(&mut cards).unwrap_err();
    let reads = kernel.kernel().reads;
    assert!(reads > 0);
    for _ in 0..10 {
        settle(&mut cards).unwrap_err();
    }
    let (reads_now, changes) = {
        let kernel = kernel.kernel();
        (kernel.reads, kernel.changes)
    };
    assert_eq!((reads_now, changes), (reads, 0));
    std::fs::remove_dir(&obstacle).unwrap();
    settle(&mut cards).unwrap();
    assert_eq!(kernel.value("eth1", PnicParameter::RxRing), 512);
    assert!(!obstacle.exists());
}
