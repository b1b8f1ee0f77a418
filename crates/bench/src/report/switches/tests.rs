use super::*;

const FILE: &str = r#"{"machine": {"cpu": "Example CPU", "cpus": 2, "virtual": true, "os": "Debian", "kernel": "6.18", "taut": "0.1.0",
    "ovs": "3.5", "dpdk": "24.11", "date": "2026-01-02"},
 "samples": [
{"switch":"taut","generator":"taut","mode":"one-way","size":64,"round":1,"state":"near","mpps":40.0,"ring_full_percent":97},
{"switch":"taut","generator":"taut","mode":"one-way","size":64,"round":2,"state":"near","mpps":44.0,"ring_full_percent":96},
{"switch":"taut","generator":"taut","mode":"one-way","size":64,"round":2,"state":"moved","mpps":1.0},
{"switch":"ovs_normal","generator":"taut","mode":"one-way","size":64,"round":1,"state":"near","mpps":10.0},
{"switch":"ovs_normal","generator":"taut","mode":"one-way","size":64,"round":2,"state":"near","mpps":22.0},
{"switch":"taut","generator":"taut","mode":"one-way","size":1518,"state":"near","mpps":16.0,"ring_full_percent":54},
{"switch":"taut_learning","generator":"taut","mode":"one-way","size":64,"flows":65536,"prepared":65536,"state":"near","mpps":18.0},
{"switch":"taut","generator":"vgen","mode":"one-way","size":64,"state":"near","mpps":18.0},
{"switch":"ovs_normal","generator":"vgen","mode":"one-way","size":64,"state":"near","mpps":9.0},
{"switch":"taut","generator":"taut","mode":"traversal","size":64,"packed":true,"state":"near",
 "traversal":{"count":9,"lost":0,"p50_ns":230,"p90_ns":250,"p99_ns":280,"p99_9_ns":400}},
{"switch":"vhost","generator":"taut","mode":"traversal","size":64,"packed":true,"state":"near",
 "traversal":{"count":9,"lost":0,"p50_ns":460,"p90_ns":500,"p99_ns":580,"p99_9_ns":800,"p99_99_ns":9000}}
]}"#;

fn results() -> SwitchResults {
    serde_json::from_str(FILE).unwrap()
}

#[test]
fn only_samples_of_one_state_are_compared() {
    insta::assert_snapshot!(results().markdown("performance.svg", &[]));
}

#[test]
fn ratios_are_paired_by_round_and_have_a_spread() {
    let page = results().markdown("performance.svg", &[]);
    // 40 ÷ 10 and 44 ÷ 22, not 42 ÷ 16.
    assert!(page.contains("| 64 B, one way, split, Mpps | 42.0 | 16.0 | – | 3.00 | – |"), "{page}");
    assert!(page.contains("| n = 2 | 40.0–44.0 | 10.0–22.0 | – | 2.00–4.00 | – |"), "{page}");
}

#[test]
fn a_figure_that_the_generator_limits_has_a_star() {
    let page = results().markdown("performance.svg", &[]);
    assert!(page.contains("| 1518 B, one way, split, Mpps | 16.00\\* |"), "{page}");
}

#[test]
fn the_ratio_with_the_generator_of_dpdk_is_said() {
    let page = results().markdown("performance.svg", &[]);
    assert!(page.contains("With DPDK's own generator the ratio is smaller"), "{page}");
    assert!(page.contains("2.00 times"), "{page}");
}

#[test]
fn a_state_that_was_not_seen_is_shown_by_an_earlier_run() {
    let mut earlier = results();
    earlier.machine.cpu = "Other CPU".to_owned();
    earlier.samples.iter_mut().for_each(|sample| sample.state = Cores::Far);
    let page = results().markdown("performance.svg", &[earlier]);
    let (_, far) = page.split_once("## Cores far apart").unwrap();
    assert!(far.contains("Other CPU") && far.contains("| 64 B, one way, split, Mpps |"), "{far}");
}

#[test]
fn every_bar_has_its_figure() {
    let svg = results().svg().unwrap();
    for figure in ["42.0", "16.0", "64 B", "1518 B"] {
        assert!(svg.contains(figure), "{figure} is missing");
    }
}
