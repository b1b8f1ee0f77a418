//! `taut host tune`: dense mode.

use std::time::{Duration, SystemTime};

use taut_api::Name;
use taut_api::tune::{HostTune, TuneMode};
use taut_api::word::counted;

use crate::output;

/// Price of dense mode. `docs/adr/0013-dense-mode-uses-common-ticks.md` has the measurements.
const PRICE: &str = "while it is on, a request and its answer wait for up to 4 ticks of 4 ms: 16 ms";

/// Renders state, settings, the three readings of the last test, and the governed ports.
pub(super) fn show(tune: &HostTune) -> String {
    let count = |owners: &[String]| match owners {
        [] => "none".to_owned(),
        owners => format!("{}: {}", owners.len(), owners.join(", ")),
    };
    let state = match (tune.state.on, tune.mode) {
        (true, _) => "on",
        (false, TuneMode::Dense) => "off",
        (false, TuneMode::Default) => "off; set Net.NetTuneHostMode=dense to test the load",
    };
    let mut text = output::fields(&[
        ("dense mode", state.to_owned()),
        ("mode", output::word(&tune.mode)),
        ("interval", format!("{} s", tune.interval_s)),
        ("threshold", format!("{} on {}", tune.threshold, counted(tune.pcpus, "pCPU"))),
        ("price", PRICE.to_owned()),
        ("last test", tune.state.test.as_ref().map_or("none".to_owned(), |test| ago(test.at_ms))),
        ("next test", next_test(tune)),
        ("last change", tune.state.changed_ms.map_or("none".to_owned(), ago)),
        ("governs", count(&tune.governs)),
        ("never touches", count(&tune.leaves_alone)),
        ("not in the utilisation", excluded(tune)),
    ]);
    text += "\n";
    let limits = tune.state.test.as_ref().map_or(&tune.limits, |test| &test.limits);
    let reading = tune.state.test.as_ref().map(|test| &test.reading);
    let number = |number: Option<u32>| number.map_or("-".to_owned(), |number| number.to_string());
    let reached = |index: usize| {
        let word = tune.held.map(|held| if held[index] { "yes" } else { "no" });
        word.unwrap_or("-").to_owned()
    };
    let row = |what: &str, reading: Option<u32>, limit: u32, index| {
        [what.to_owned(), number(reading), limit.to_string(), reached(index)]
    };
    text += &output::table(
        ["LOAD", "READING", "THRESHOLD", "REACHED"],
        &[
            row("VMs", reading.map(|reading| reading.vms), limits.vms, 0),
            row("vCPUs", reading.map(|reading| reading.vcpus), limits.vcpus, 1),
            row("utilisation %", reading.and_then(|reading| reading.utilisation), limits.utilisation, 2),
        ],
    );
    text
}

fn excluded(tune: &HostTune) -> String {
    let excluded = tune.state.test.iter().flat_map(|test| &test.reading.excluded);
    let names: Vec<_> = excluded.map(Name::as_str).collect();
    let note = if names.is_empty() { "" } else { " (cpu-pm: always looks busy)" };
    format!("{}{note}", names.join(", "))
}

fn ago(at_ms: u64) -> String {
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(at_ms);
    // A clock that was set back puts the last test into the future.
    let age = SystemTime::now().duration_since(at).unwrap_or_default();
    format!("{} s ago", age.as_secs())
}

/// Says when dense mode is tested next, which is the only time when it goes on, or off by the load.
fn next_test(tune: &HostTune) -> String {
    if tune.mode == TuneMode::Default {
        return "never: Net.NetTuneHostMode is default".to_owned();
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let left = |at_ms| Duration::from_millis(at_ms).saturating_sub(now).as_secs();
    let when = tune.next_test_ms.map_or("soon".to_owned(), |at_ms| format!("in {} s", left(at_ms)));
    format!(
        "{when}; it turns dense mode {}",
        if tune.state.on { "off, or leaves it on" } else { "on, or leaves it off" }
    )
}

#[cfg(test)]
mod tests {
    use taut_api::tune::{TuneReading, TuneState, TuneTest, TuneThreshold};

    use super::*;

    #[test]
    fn readings_stand_beside_their_thresholds() {
        let limits = TuneThreshold::default().resolve(2);
        let reading = TuneReading {
            pcpus: 2,
            vms: 8,
            vcpus: 3,
            utilisation: Some(71),
            excluded: vec!["db1".parse().unwrap()],
        };
        // A time in the future: its age is 0.
        let test = TuneTest { at_ms: 1 << 45, reading, limits };
        let mut tune = HostTune {
            mode: TuneMode::Dense,
            interval_s: 60,
            threshold: "1n 2n 50".into(),
            pcpus: 2,
            limits,
            // A time in the past: the test is due.
            next_test_ms: Some(0),
            held: Some(test.held()),
            state: TuneState { on: false, test: Some(test), changed_ms: None },
            governs: vec!["vm/a/nic0".into(), "vm/b/nic0".into()],
            leaves_alone: Vec::new(),
        };
        insta::assert_snapshot!(show(&tune), @r"
        dense mode              off
        mode                    dense
        interval                60 s
        threshold               1n 2n 50 on 2 pCPUs
        price                   while it is on, a request and its answer wait for up to 4 ticks of 4 ms: 16 ms
        last test               0 s ago
        next test               in 0 s; it turns dense mode on, or leaves it off
        last change             none
        governs                 2: vm/a/nic0, vm/b/nic0
        never touches           none
        not in the utilisation  db1 (cpu-pm: always looks busy)

        LOAD           READING  THRESHOLD  REACHED
        VMs                  8          2  yes
        vCPUs                3          4  no
        utilisation %       71         50  yes
        ");
        (tune.mode, tune.held, tune.state) = (TuneMode::Default, None, TuneState::default());
        let text = show(&tune);
        assert!(text.contains("off; set Net.NetTuneHostMode=dense to test the load"), "{text}");
        assert!(text.contains("next test               never: Net.NetTuneHostMode is default\n"), "{text}");
        assert!(text.contains("vCPUs                -          4        -"), "{text}");
    }
}
