//! Prints the refusal of a host with SMT on which every free pCPU has an owned sibling (LS-4).
//!
//! `cargo run -p taut-plan --example smt_refusal`; row PL5 of `make goals SET=PL` runs it.

use taut_api::enforcement::HostReport;
use taut_api::host::Cpu;
use taut_api::resources::{CpuReservation, CpuResources, MemoryReservation};
use taut_api::vm::{LatencySensitivity, Power, VmDesired, VmSpec};
use taut_api::{Bytes, Name};
use taut_plan::admission::reservations::admit_reservations;
use taut_plan::facts::HostSeen;
use taut_plan::{Desired, Observed};

/// A latency-sensitive VM with full reservations.
fn sensitive(vcpus: u32) -> VmDesired {
    let vm = VmSpec {
        vcpus,
        memory_reservation: MemoryReservation::Full,
        cpu: CpuResources { reservation: CpuReservation::Full, ..CpuResources::default() },
        latency_sensitivity: LatencySensitivity::High,
        ..VmSpec::default()
    };
    VmDesired { vm, power: Power::On }
}

fn main() {
    // Two cores of two threads each. The first core stays with the host.
    let cpu = |id| Cpu { id, package: 0, core: id / 2, node: 0, llc: 0 };
    let host =
        HostSeen { cpus: (0..4).map(cpu).collect(), memory_total: Bytes(8 << 30), ..HostSeen::default() };
    let observed = Observed { host, ..Observed::default() };
    let name = |text: &str| text.parse::<Name>().expect("a name");
    let desired = Desired { vms: [(name("first"), sensitive(1))].into(), ..Desired::default() };
    let report = HostReport::default();
    match admit_reservations(&desired, &observed, &report, &name("second"), &sensitive(1)) {
        Ok(()) => println!("admitted"),
        Err(error) => println!("{error}"),
    }
}
