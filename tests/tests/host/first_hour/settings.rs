//! Settings of the host: `default` is a word, and dense mode says when it decides next.

use std::time::{SystemTime, UNIX_EPOCH};

use taut_tests::{Taut, eventually};

#[test]
fn default_restores_a_setting_and_dense_mode_names_its_next_test_and_its_price() {
    let taut = Taut::start();
    taut.ok([
        "host",
        "set",
        "Net.NetTuneInterval=1800",
        "Net.NetTuneHostMode=dense",
        "Net.CoalesceScheme=adapt",
    ]);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let at = eventually("an interval has begun", || taut.json(["host", "tune"])["next_test_ms"].as_u64());
    assert!((1500..2100).contains(&(at / 1000).saturating_sub(now)), "{at} and {now} s");
    let shown = taut.ok(["host", "tune"]);
    assert!(
        shown.contains("next test               in 1") && shown.contains("turns dense mode on"),
        "{shown}"
    );
    assert!(shown.contains("4 ticks of 4 ms: 16 ms"), "{shown}");

    let all = ["Net.NetTuneInterval=default", "Net.NetTuneHostMode=default", "Net.CoalesceScheme=default"];
    let said = taut.ok(["host", "set"].into_iter().chain(all));
    assert_eq!(said, "host: Net.CoalesceScheme=rbc, Net.NetTuneHostMode=default, Net.NetTuneInterval=60\n");
    eventually("nothing is tested any more", || {
        taut.json(["host", "tune"])["next_test_ms"].is_null().then_some(())
    });
    assert!(taut.ok(["host", "tune"]).contains("never: Net.NetTuneHostMode is default"));
}
