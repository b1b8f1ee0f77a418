use super::*;

const FILE: &str = r#"{"machine": {"cpu": "Example CPU", "cpus": 2, "virtual": true, "os": "Debian", "kernel": "6.18", "taut": "0.1.0",
    "ovs": "3.5", "dpdk": "24.11", "date": "2026-01-02"},
 "samples": [
{"switch":"taut","generator":"taut","mode":"one-way","size":64,"state":"near","mpps":40.0},
{"switch":"taut","generator":"taut","mode":"one-way","size":64,"state":"near","mpps":44.0},
{"switch":"taut","generator":"taut","mode":"one-way","size":64,"state":"moved","mpps":1.0},
{"switch":"ovs_normal","generator":"taut","mode":"one-way","size":64,"state":"near","mpps":12.0},
{"switch":"taut","generator":"taut","mode":"one-way","size":1518,"state":"near","mpps":16.0},
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
    insta::assert_snapshot!(results().markdown("performance.svg"));
}

#[test]
fn every_bar_has_its_figure() {
    let svg = results().svg().unwrap();
    for figure in ["42.0", "12.0", "16.0", "64 B", "1518 B"] {
        assert!(svg.contains(figure), "{figure} is missing");
    }
}
