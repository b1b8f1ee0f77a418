//! Measures the placement of latency-sensitive VMs: of all VMs at once, of the same VMs again, and
//! after one VM is gone. Three cases: VMs that all fit on 256 pCPUs, 1,000 VMs that all fit on
//! 4,096 pCPUs, and 1,000 VMs on 256 pCPUs, most of which find no place.
//!
//! `cargo run --release -p taut-plan --example placement`; row PL7 of `make goals SET=PL` reads its
//! lines.

use std::collections::BTreeMap;
use std::time::Instant;

use taut_api::Name;
use taut_api::host::Cpu;
use taut_plan::placement::problem::{Demand, Placement, Problem};
use taut_plan::placement::solve::place;

fn main() {
    // VMs own whole cores of two threads: 120 of the 127 cores that the host does not keep.
    place_three_times("fits", 80, 256);
    place_three_times("wide", 1000, 4096);
    place_three_times("crowded", 1000, 256);
}

/// Places VMs of one to four vCPUs, two on a core, on nodes of sixteen cores with two threads.
fn place_three_times(case: &str, vms: u32, pcpus: u32) {
    let cores = pcpus / 2;
    let cpu = |id: u32| {
        let core = id % cores;
        Cpu { id, package: core / 64, core: core % 64, node: core / 16, llc: core / 8 }
    };
    let demand = |number: u32| {
        let name: Name = format!("vm{number:04}").parse().expect("a name");
        (name, Demand { vcpus: 1 + number % 4, threads: true, allowed: None })
    };
    let mut problem = Problem {
        cpus: (0..pcpus).map(cpu).collect(),
        demands: (0..vms).map(demand).collect(),
        ..Problem::default()
    };
    let first = timed(&format!("{case}, from nothing"), &problem);
    problem.current = first.granted.iter().map(|(name, grant)| (name.clone(), grant.cpus.clone())).collect();
    let again = timed(&format!("{case}, again"), &problem);
    assert_eq!(first, again, "nothing moves");
    let gone: BTreeMap<_, _> = problem.demands.split_off(&"vm0010".parse().expect("a name"));
    problem.demands.extend(gone.into_iter().skip(1));
    timed(&format!("{case}, one has gone"), &problem);
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
