//! Measures how long it takes to explain 500 VMs when the rules run once for all of them, and, for
//! comparison, once for each.
//!
//! `cargo run --release -p taut-plan --example explain`

use std::time::Instant;

use taut_api::enforcement::HostReport;
use taut_api::host::Cpu;
use taut_api::vm::VmDesired;
use taut_api::{Bytes, Name};
use taut_plan::explain::{explain_latency, explain_resources};
use taut_plan::facts::HostSeen;
use taut_plan::resources::Decided;
use taut_plan::{Desired, Observed};

/// Number of VMs of each kind: latency-sensitive, with shares, bound to some pCPUs, off.
const EACH: u32 = 125;

fn main() {
    // Eight nodes of sixteen cores with two threads.
    let cpu =
        |id: u32| Cpu { id, package: id % 128 / 64, core: id % 64, node: id % 128 / 16, llc: id % 128 / 8 };
    let host = HostSeen {
        memory_total: Bytes::mib(1 << 20),
        cpus: (0..256).map(cpu).collect(),
        cpu_mhz: 2400,
        ..HostSeen::default()
    };
    let (observed, report) = (Observed { host, ..Observed::default() }, HostReport::default());
    let desired = Desired { vms: (0..4 * EACH).map(vm).collect(), ..Desired::default() };
    let once = Decided::new(&desired, &observed, &report);
    let told = |decided: &Decided, name: &Name, vm: &VmDesired| {
        let latency = explain_latency(&observed, &report, decided, name, vm);
        let resources = explain_resources(&desired, &observed, &report, decided, name, vm);
        (latency, resources)
    };
    let begun = Instant::now();
    let decided = Decided::new(&desired, &observed, &report);
    let all: Vec<_> = desired.vms.iter().map(|(name, vm)| told(&decided, name, vm)).collect();
    let took = begun.elapsed();
    let begun = Instant::now();
    let each: Vec<_> = desired
        .vms
        .iter()
        .map(|(name, vm)| told(&Decided::new(&desired, &observed, &report), name, vm))
        .collect();
    let before = begun.elapsed();
    assert_eq!(all, each, "both ways explain the same");
    println!(
        "{} VMs, {} of them with pCPUs of their own: {:.1} ms; with the rules run for each of them {:.1} ms",
        all.len(),
        once.placement.granted.len(),
        took.as_secs_f64() * 1e3,
        before.as_secs_f64() * 1e3
    );
}

fn vm(number: u32) -> (Name, VmDesired) {
    let name: Name = format!("vm{number:03}").parse().expect("a name");
    let json = match number / EACH {
        0 => {
            r#"{"power": "on", "memory": "256MiB", "memory_reservation": "full", "latency_sensitivity": "high", "vcpus": 1,
                "cpu": {"reservation": "full"}}"#
        }
        1 => r#"{"power": "on", "memory": "256MiB", "cpu": {"shares": "high"}}"#,
        2 => r#"{"power": "on", "memory": "256MiB", "placement": {"cpus": "40-79"}}"#,
        _ => r#"{"power": "off", "memory": "256MiB"}"#,
    };
    (name, serde_json::from_str(json).expect("a VM"))
}
