//! A card's own shaping, changed while its VM runs.

use taut_tests::{Netns, Taut};

/// Returns the longest round trip of five large echo requests in milliseconds.
fn slowest(probe: &Netns, to: &str) -> f64 {
    // With a deadline `ping` waits for all answers.
    let output = probe.run("ping", ["-n", "-c", "5", "-i", "0.1", "-s", "1000", "-w", "60", to]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let longest = text.split_once("min/avg/max/mdev = ").and_then(|(_, times)| times.split('/').nth(2));
    longest.and_then(|ms| ms.parse().ok()).unwrap_or_else(|| panic!("ping said: {text}"))
}

#[test]
fn a_card_is_shaped_by_its_own_shape_until_that_is_taken_back() {
    let taut = Taut::start().with_lan();
    taut.boot(
        "m",
        "kind = \"micro\"\nmemory = \"64MiB\"\n[[nic]]\nportgroup = \"lan\"\nip = \"10.71.0.1/24\"\n",
    );
    let probe = Netns::attach(&taut, "probe", "lan", "10.71.0.9");
    probe.reaches("10.71.0.1", 1);
    taut.ok(["portgroup", "set", "lan", "--to-switch", "50Mbit"]);
    let shown = |args: &[&str], line: &str| {
        let text = taut.ok(args);
        assert!(text.contains(line), "`{line}` is not in:\n{text}");
    };
    let port = ["port", "show", "vm/m/nic0"];
    shown(&port, "to switch      50Mbit (port group)\nto guest       none\n");

    // 1000 bytes a second: the fifth request waits for seconds.
    let set = ["vm", "set", "m", "--nic", "0", "--to-guest", "average=8kbit,burst=1"];
    assert_eq!(taut.ok(set), "VM m: card 0 to guest 8kbit\n");
    shown(&port, "to switch      50Mbit (port group)\nto guest       8kbit (own)\n");
    shown(&["vm", "show", "m"], "  50Mbit (port group)  8kbit (own)");
    shown(&["portgroup", "show", "lan"], "own shaping       vm/m/nic0\n");
    let slow = slowest(&probe, "10.71.0.1");
    assert!(slow > 1000.0, "{slow} ms");

    assert_eq!(
        taut.ok(["vm", "set", "m", "--to-guest", "default", "--to-switch", "off"]),
        "VM m: card 0 to guest default, card 0 to switch off\n"
    );
    shown(&port, "to switch      none (own)\nto guest       none\n");
    let fast = slowest(&probe, "10.71.0.1");
    assert!(fast < slow / 2.0, "{fast} ms, and {slow} ms before");
    taut.ok(["vm", "set", "m", "--to-switch", "default"]);
    assert!(!taut.ok(["portgroup", "show", "lan"]).contains("own shaping"));
}
