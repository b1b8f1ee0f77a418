use super::*;
use crate::measure::latencies::Latencies;
use crate::report::Cpu;

fn end(name: &str, kind: &str) -> EndPoint {
    EndPoint { name: name.to_owned(), kind: kind.to_owned(), ..EndPoint::default() }
}

fn condition(name: &str, ns: u64, per_s: f64, work: Option<f64>) -> Condition {
    let figures = || {
        let latencies = Latencies::from(vec![(ns, 99), (10 * ns, 1)]);
        let cpu = Cpu { fabric: Some(7.0), ..Cpu::default() };
        Figures { per_s: Some(per_s), cpu, ..Figures::of_latencies(latencies) }
    };
    let beside = |more: f64| Beside {
        ready_percent: Some(more),
        work_per_s: work.map(|work| work + more),
        neighbours_ready_percent: work.map(|_| 40.0),
    };
    let repeats = vec![(figures(), beside(0.0)), (figures(), beside(2.0))];
    Condition::new(name, "as it comes", [end("netns/c", "netns"), end("rt1", "guest")], repeats)
}

fn results() -> ConditionResults {
    ConditionResults {
        experiment: Experiment::Neighbours,
        size: 1024,
        interval_us: Some(1500),
        duration_s: 1.0,
        host: Host { hostname: "h".into(), cpus: 2, ..Host::default() },
        neighbours: vec![end("n1", "guest")],
        conditions: vec![
            condition("normal", 100_000, 100.0, Some(2000.0)),
            condition("high", 20_000, 500.0, Some(1200.0)),
            condition("alone", 20_000, 500.0, None),
        ],
    }
}

#[test]
fn as_table() {
    insta::assert_snapshot!(results().table());
}

#[test]
fn ratios_are_relative_to_the_first_condition() {
    let summary = results().summary();
    assert_eq!(
        summary[0],
        "high beside normal: p50 1/5.00, p99 1/5.00, p99.9 1/5.00, 5.00 × the requests, neighbours keep 60 % of their work"
    );
    assert!(!summary[1].contains("neighbours"), "who had none says nothing of them: {}", summary[1]);
}

#[test]
fn as_picture_and_as_json() {
    let results = results();
    let svg = results.svg().unwrap();
    for word in ["normal", "high", "alone", "neighbours"] {
        assert!(svg.contains(word), "{word}");
    }
    let text = serde_json::to_string(&results).unwrap();
    assert_eq!(serde_json::from_str::<ConditionResults>(&text).unwrap(), results);
}
