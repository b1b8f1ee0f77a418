//! What a host with SMT says when the sibling of every free pCPU is taken (SPEC LS-4; row PL5): `cargo run -p taut-plan --example smt_refusal`.

use taut_api::host::Cpu;
use taut_api::resources::{CpuReservation, CpuResources, MemoryReservation};
use taut_api::vm::{LatencySensitivity, Power, VmDesired, VmSpec};
use taut_api::{Bytes, Name};
use taut_plan::{Desired, Observed, latency};

/// A latency-sensitive VM with everything reserved.
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
    // Two cores of two threads each: one core is the host's.
    let cpu = |id| Cpu { id, package: 0, core: id / 2, node: 0, llc: 0 };
    let observed =
        Observed { cpus: (0..4).map(cpu).collect(), memory_total: Bytes(8 << 30), ..Observed::default() };
    let name = |text: &str| text.parse::<Name>().expect("a name");
    let desired = Desired { vms: [(name("first"), sensitive(1))].into(), ..Desired::default() };
    match latency::admit(&desired, &observed, &name("second"), &sensitive(1)) {
        Ok(()) => println!("admitted"),
        Err(error) => println!("{error}"),
    }
}
