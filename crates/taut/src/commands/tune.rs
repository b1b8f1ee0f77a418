//! `taut host tune`: dense mode.

use std::time::{Duration, SystemTime};

use taut_api::Name;
use taut_api::tune::{HostTune, TuneMode};

use crate::output;

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
        ("threshold", format!("{} on {} pCPUs", tune.threshold, tune.pcpus)),
        ("last test", tune.state.test.as_ref().map_or("none".to_owned(), |test| ago(test.at_ms))),
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
        last test               0 s ago
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
        assert!(text.contains("vCPUs                -          4        -"), "{text}");
    }
}
