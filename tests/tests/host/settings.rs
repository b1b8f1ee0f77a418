//! Changes of several settings by one `taut vm set` are atomic, even when the daemon dies.

use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use taut_tests::Taut;

/// Number of times that the daemon is killed, unless `TAUT_SET_KILLS` says otherwise.
const KILLS: u32 = 20;

fn kills() -> u32 {
    std::env::var("TAUT_SET_KILLS").map_or(KILLS, |text| text.parse().expect("a number of kills"))
}

/// Five settings, one of each kind, with values that differ between rounds.
fn five(round: u32) -> [(&'static str, String); 5] {
    [
        ("--coalescing", format!("static:{}", 1 + round % 64)),
        ("--memory-reservation", format!("{}MiB", 1 + round % 32)),
        ("--cpu-shares", (1000 + round).to_string()),
        ("--min-spin-us", (1 + round).to_string()),
        ("--vmci-connections", (1000 + round).to_string()),
    ]
}

/// Reads these settings from the VM's document.
fn document(round: u32) -> [Value; 5] {
    let [coalescing, memory, ..] = five(round).map(|(_, value)| value);
    [
        json!(coalescing),
        json!(memory),
        json!((1000 + round).to_string()),
        json!(1 + round),
        json!(1000 + round),
    ]
}

fn settings(taut: &Taut) -> [Value; 5] {
    let spec = taut.json(["vm", "show", "m"])["spec"].take();
    [
        spec["nic"][0]["coalescing"].clone(),
        spec["memory_reservation"].clone(),
        spec["cpu"]["shares"].clone(),
        spec["halt"]["min_spin_us"].clone(),
        spec["vmci"]["connections"].clone(),
    ]
}

/// The arguments of `taut` that set the five settings of a round.
fn arguments(round: u32) -> Vec<String> {
    let options = five(round).into_iter().flat_map(|(option, value)| [option.to_owned(), value]);
    ["vm", "set", "m"].map(str::to_owned).into_iter().chain(options).collect()
}

/// A repeatable sequence of pseudo-random numbers (Numerical Recipes' linear congruence).
fn next(seed: &mut u32) -> u32 {
    *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    *seed >> 16
}

#[test]
fn a_killed_daemon_keeps_all_five_settings_or_none() {
    let mut taut = Taut::start().with_lan();
    taut.file("disk", "never read: the VM stays off");
    let file = taut.file("m.toml", "[[nic]]\nportgroup = \"lan\"\n[disk]\npath = \"disk\"\n[vmci]\n");
    taut.ok(["vm", "create", "-f", file.to_str().unwrap(), "--name", "m"]);
    let begun = Instant::now();
    taut.ok(arguments(0));
    // Kills fall before, into and after the request.
    let longest = begun.elapsed() * 3 / 2;
    let mut expected = document(0);
    assert_eq!(settings(&taut), expected);

    let (mut seed, mut kept) = (20_26, 0);
    let kills = kills();
    for round in 1..=kills {
        let mut set = taut
            .command()
            .args(arguments(round))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("taut can be run");
        sleep(longest.mul_f64(f64::from(next(&mut seed) % 1000) / 1000.0).max(Duration::from_micros(1)));
        taut.kill_daemon();
        let acknowledged = set.wait().expect("our child").success();
        taut.restart_daemon();
        let found = settings(&taut);
        let wanted = document(round);
        if acknowledged {
            assert_eq!(found, wanted, "round {round}: acknowledged, so on disk");
        } else {
            assert!(found == expected || found == wanted, "round {round}: a part: {found:?}");
        }
        kept += u32::from(found == wanted);
        expected = found;
    }
    println!("{kept} of {kills} requests took effect, {} did not, none in part", kills - kept);
}
