//! Settings of network cards. TAP devices stand for cards whose speed and moderation can be set,
//! and veth pairs for cards with channels. The program `ethtool` is the witness.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use serde_json::Value;
use taut_tests::{Cable, Prerequisite, Taut, eventually, ip, require_found};

/// Returns all that ethtool(8) says of a card.
fn ethtool(card: &str) -> String {
    let say = |option: &[&str]| {
        let output = Command::new("ethtool").args(option).arg(card).output().expect("ethtool is installed");
        // A card that does not have something is told on standard error.
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    [say(&[]), say(&["-k"]), say(&["-c"]), say(&["-l"]), say(&["-g"])].concat()
}

/// Returns the value of a name in what ethtool says.
fn value<'a>(text: &'a str, name: &str) -> &'a str {
    let lines = text.lines().filter_map(|line| line.trim().split_once(':'));
    let mut values = lines.filter(|(found, _)| *found == name).map(|(_, value)| value.trim());
    values.next().unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// A card with four channels and its other end, which disappear with it.
struct Pair {
    card: String,
}

impl Pair {
    fn plug() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let pair = Self { card: format!("tv{:x}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed)) };
        pair.plug_again();
        pair
    }

    /// Makes another card of the same name.
    fn plug_again(&self) {
        let (card, queues) = (&self.card, "numtxqueues 4 numrxqueues 4");
        ip(&format!("link add {card} {queues} type veth peer name {card}p {queues}"));
    }

    fn unplug(&self) {
        ip(&format!("link del {}", self.card));
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // A test may have removed it.
        let _ = Command::new("ip").args(["link", "del", &self.card]).status();
    }
}

/// Returns whether the host has the program `ethtool`, and its kernel the netlink family.
fn can_be_asked(taut: &Taut) -> bool {
    let program = Command::new("ethtool").arg("--version").output();
    let found = match program {
        Err(error) => Err(format!("the program ethtool: {error}")),
        Ok(_) if status(taut, "lo")["card"]["offloads"].get("gro").is_none() => {
            Err("the kernel tells no offloads of lo".to_owned())
        }
        Ok(_) => Ok(()),
    };
    require_found(Prerequisite::EthtoolNetlink, found).is_some()
}

/// Sets a card, and waits until it is in force, however busy the host is.
fn set(taut: &Taut, card: &str, options: &str) -> String {
    let arguments: Vec<&str> = ["pnic", "set", card].into_iter().chain(options.split(' ')).collect();
    let set = taut.run(&arguments);
    if set.success {
        return set.stdout;
    }
    assert!(set.stderr.contains("not in force yet"), "{}", set.stderr);
    eventually("the card is set", || (status(taut, card)["in_force"] == true).then_some(()));
    taut.ok(&arguments)
}

fn refused(taut: &Taut, card: &str, options: &str) -> String {
    taut.refused(["pnic", "set", card].into_iter().chain(options.split(' ')))
}

fn status(taut: &Taut, card: &str) -> Value {
    taut.json(["pnic", "show", card])["status"].clone()
}

fn has_ledger(taut: &Taut) -> bool {
    taut.dir().join("state/host-changes.json").exists()
}

#[test]
fn a_card_is_set_and_reset_whatever_becomes_of_the_daemon() {
    let mut taut = Taut::start();
    if !can_be_asked(&taut) {
        return;
    }
    let cable = Cable::plug();
    let card = cable.card.as_str();
    ip(&format!("link set {card} up"));
    let before = ethtool(card);
    let said = set(
        &taut,
        card,
        "--speed 100 --duplex half --autoneg off --rx-frames 16 --offload gro=off --offload txvlan=off",
    );
    assert!(
        said.contains("speed 100, duplex half, autoneg off, rx-frames 16, gro off, txvlan off"),
        "{said}"
    );
    assert!(said.contains("; link up, 100 Mbit/s, half duplex, not negotiated"), "{said}");
    let now = ethtool(card);
    for (name, expected) in [
        ("Speed", "100Mb/s"),
        ("Duplex", "Half"),
        ("rx-frames", "16"),
        ("generic-receive-offload", "off"),
        ("tx-vlan-offload", "off"),
    ] {
        assert_eq!(value(&now, name), expected);
    }
    assert!(has_ledger(&taut));

    taut.kill_daemon();
    assert_eq!(ethtool(card), now);
    taut.restart_daemon();
    assert_eq!(ethtool(card), now);
    // A change by another program is undone within a minute, and sooner if the link changes.
    let changed = Command::new("ethtool").args(["-s", card, "speed", "10", "duplex", "full"]).status();
    assert!(changed.unwrap().success());
    ip(&format!("link set {card} down"));
    std::thread::sleep(Duration::from_millis(1500));
    ip(&format!("link set {card} up"));
    eventually("the speed is as wanted again", || (ethtool(card) == now).then_some(()));

    // One after the other.
    let said = set(&taut, card, "--speed default --duplex default --rx-frames default --offload gro=default");
    assert!(said.contains("settings of taut: autoneg off, txvlan off; link up"), "{said}");
    let now = ethtool(card);
    assert_eq!(value(&now, "Speed"), value(&before, "Speed"));
    assert_eq!(value(&now, "tx-vlan-offload"), "off");
    let said = taut.ok(["pnic", "reset", card]);
    assert!(said.contains("every setting is as it was before"), "{said}");
    assert_eq!(ethtool(card), before);
    assert!(!has_ledger(&taut), "nothing is left to be undone");
    assert!(taut.refused(["pnic", "reset", card]).contains("there is no pNIC document"));

    // The daemon is killed while the card is set; the next one gives it back.
    set(&taut, card, "--rx-frames 7");
    taut.kill_daemon();
    taut.restart_daemon();
    taut.ok(["-q", "pnic", "reset", card]);
    assert_eq!(ethtool(card), before);
}

#[test]
fn the_end_of_the_daemon_leaves_a_card_set_and_the_end_of_everything_gives_it_back() {
    let mut taut = Taut::start();
    if !can_be_asked(&taut) {
        return;
    }
    let cable = Cable::plug();
    let card = cable.card.as_str();
    let before = ethtool(card);
    assert_eq!(taut.ok(["-q", "pnic", "set", card, "--speed", "25000", "--rx-frames", "9"]), "");
    let now = ethtool(card);
    assert_ne!(now, before);
    taut.ok(["shutdown"]);
    eventually("the daemon ends", || (!taut.run(["daemon", "show"]).success).then_some(()));
    assert_eq!(ethtool(card), now, "as uplinks, which stay attached");
    taut.restart_daemon();
    taut.shut_down();
    assert_eq!(ethtool(card), before);
    taut.restart_daemon();
    eventually("the settings are in the store", || (ethtool(card) == now).then_some(()));
}

#[test]
fn a_card_that_was_gone_gets_its_settings_again() {
    let taut = Taut::start();
    if !can_be_asked(&taut) {
        return;
    }
    let pair = Pair::plug();
    let card = pair.card.as_str();
    let before = ethtool(card);
    set(&taut, card, "--rx-channels 2 --tx-channels 3 --offload tso=off --offload tx-checksum=off");
    let now = ethtool(card);
    for (name, expected) in [("tcp-segmentation-offload", "off"), ("tx-checksumming", "off")] {
        assert_eq!(value(&now, name), expected);
    }
    let count = |what: &str| status(&taut, card)["card"]["parameters"][what]["value"].clone();
    assert_eq!((count("rx-channels"), count("tx-channels")), (2.into(), 3.into()));

    pair.unplug();
    eventually("it is missed", || {
        let status = status(&taut, card);
        (status["problems"][0] == "the host has no such interface now" && status["in_force"] == false)
            .then_some(())
    });
    let listed = taut.ok(["pnic", "list"]);
    assert!(listed.contains("absent") && listed.contains("rx-channels 2"), "{listed}");
    pair.plug_again();
    eventually("it is set again", || (ethtool(card) == now).then_some(()));
    let events = taut.ok(["events"]);
    assert!(events.contains("pnic.problem") && events.contains("pnic.in-force"), "{events}");
    taut.ok(["pnic", "reset", card]);
    assert_eq!(ethtool(card), before);

    // A renamed card is the same one, and the settings are those of the old name.
    set(&taut, card, "--rx-channels 1");
    let renamed = format!("{card}r");
    ip(&format!("link set {card} name {renamed}"));
    eventually("it is given back under its new name", || {
        (ethtool(&renamed) == before.replace(card, &renamed)).then_some(())
    });
    ip(&format!("link set {renamed} name {card}"));
    eventually("it is set under its old name", || (count("rx-channels") == 1).then_some(()));
}

#[test]
fn a_card_is_shown_with_its_link_its_use_and_its_statistics() {
    let taut = Taut::start().with_lan();
    if !can_be_asked(&taut) {
        return;
    }
    let cable = Cable::plug();
    let card = cable.card.as_str();
    taut.ok(["uplink", "add", "sw", card]);
    set(&taut, card, "--speed 1000");
    let shown = taut.ok(["pnic", "show", card]);
    for part in ["link       up, 1000 Mbit/s", "uplink of  sw", "rx-frames", "rx_bytes", "tx_dropped", "lro"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let document = taut.json(["pnic", "show", card]);
    let facts = &document["status"]["card"];
    assert_eq!((&facts["driver"], &facts["duplex"]), (&"tun".into(), &"full".into()), "{document}");
    assert_eq!(document["spec"], serde_json::json!({ "speed_mbit": 1000 }));
    let listed = taut.json(["pnic", "list"]);
    let listed = listed.as_array().unwrap().iter().find(|listed| listed["name"] == card).unwrap();
    assert_eq!((&listed["spec"], &listed["status"]["vswitch"]), (&document["spec"], &"sw".into()));
    eventually("the uplink knows its speed", || {
        (taut.json(["uplink", "show", card])["status"]["speed_mbit"] == 1000).then_some(())
    });
    // An interface without settings has no document.
    taut.ok(["pnic", "reset", card]);
    let document = taut.json(["pnic", "show", card]);
    assert_eq!((&document["revision"], &document["spec"]), (&0.into(), &serde_json::json!({})));
    assert_eq!(document["status"]["in_force"], true);
    // One whose last setting is given back has a document that sets nothing.
    set(&taut, card, "--rx-frames 9");
    assert!(set(&taut, card, "--rx-frames default").contains("settings of taut: none"));
    assert!(!has_ledger(&taut));
}

#[test]
fn what_a_card_does_not_have_is_refused() {
    let taut = Taut::start();
    if !can_be_asked(&taut) {
        return;
    }
    let (cable, pair) = (Cable::plug(), Pair::plug());
    let (tap, veth) = (cable.card.as_str(), pair.card.as_str());
    let before = [ethtool(tap), ethtool(veth)];
    for (card, options, reason) in [
        ("absent0", "--speed 1000", "no network interface `absent0`"),
        ("lo", "--offload gro=off", "no Ethernet interface"),
        (tap, "--speed 0", "cannot be 0 Mbit/s"),
        (tap, "--speed fast", "or write default"),
        (tap, "--rx-ring 512", "has no rx-ring: its driver tun does not offer it"),
        (tap, "--offload lro=on", "its driver tun keeps it off"),
        (tap, "--offload ufo=on", "is not an offload"),
        (veth, "--rx-channels 9", "cannot be 9: the card has 0 to 4"),
        (veth, "--rx-usecs 0", "has no rx-usecs"),
    ] {
        let told = refused(&taut, card, options);
        assert!(told.contains(reason), "{card} {options}: {told}");
    }
    assert!(taut.refused(["pnic", "set", tap]).contains("required"), "nothing to set");
    assert!(taut.refused(["pnic", "show", "absent0"]).contains("no network interface `absent0`"));
    assert!(!has_ledger(&taut));

    // Refusals of the driver are told afterwards, with their reason.
    let told = refused(&taut, tap, "--rx-frames 100");
    assert!(told.contains("rx-frames: the card makes 64 of 100"), "{told}");
    let told = refused(&taut, veth, "--speed 1000");
    assert!(told.contains("link: cannot be set to autoneg off, speed 1000"), "{told}");
    let told = refused(&taut, tap, "--rx-frames default --offload tso=on");
    assert!(told.contains("tso: stays off"), "{told}");
    for card in [tap, veth] {
        assert!(taut.ok(["pnic", "list"]).contains(card));
        taut.ok(["pnic", "reset", card]);
    }
    assert_eq!([ethtool(tap), ethtool(veth)], before);
    assert!(!has_ledger(&taut));
}
