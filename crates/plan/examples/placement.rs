//! Measures the placement of 1,000 latency-sensitive VMs on 256 pCPUs: of all VMs at once, of the
//! same VMs again, and after one VM is gone.
//!
//! `cargo run --release -p taut-plan --example placement`; row PL7 of `make goals SET=PL` takes the
//! slowest of its lines.

use std::collections::BTreeMap;
use std::time::Instant;

use taut_api::Name;
use taut_api::host::Cpu;
use taut_plan::placement::problem::{Demand, Placement, Problem};
use taut_plan::placement::solve::place;

fn main() {
    // Eight nodes of sixteen cores with two threads.
    let cpu =
        |id: u32| Cpu { id, package: id % 128 / 64, core: id % 64, node: id % 128 / 16, llc: id % 128 / 8 };
    let demand = |number: u32| {
        let name: Name = format!("vm{number:04}").parse().expect("a name");
        (name, Demand { vcpus: 1 + number % 4, threads: number.is_multiple_of(3), allowed: None })
    };
    let mut problem = Problem {
        cpus: (0..256).map(cpu).collect(),
        demands: (0..1000).map(demand).collect(),
        ..Problem::default()
    };
    let first = timed("from nothing", &problem);
    problem.current = first.granted.iter().map(|(name, grant)| (name.clone(), grant.cpus.clone())).collect();
    let again = timed("again", &problem);
    assert_eq!(first, again, "nothing moves");
    let gone: BTreeMap<_, _> = problem.demands.split_off(&"vm0010".parse().expect("a name"));
    problem.demands.extend(gone.into_iter().skip(1));
    timed("one has gone", &problem);
}

fn timed(what: &str, problem: &Problem) -> Placement {
    let begun = Instant::now();
    let placement = place(problem);
    let took = begun.elapsed();
    println!(
        "{what}: {} VMs on {} pCPUs in {:.1} ms: {} granted, {} short",
        problem.demands.len(),
        problem.cpus.len(),
        took.as_secs_f64() * 1e3,
        placement.granted.len(),
        placement.short.len()
    );
    placement
}
