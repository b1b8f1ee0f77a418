//! Rates of a made-up host for tests.

use std::collections::BTreeMap;

use taut_api::fabric::DropReason;
use taut_api::fabric::counters::PortCounters;
use taut_api::statistics::PortRates;
use taut_host::observe::load::HostMemory;
use taut_host::observe::processes::MemoryUse;

use crate::rates::{DiskRates, Done, InterruptRates, Neighbour, PortLine, Process, Rates, Times, Vcpu, Vm};

fn vcpu(vcpu: u32, run: f64, ready: f64, neighbour: Option<(&str, f64)>) -> Vcpu {
    Vcpu {
        vcpu,
        tid: 713 + vcpu,
        cpu: vcpu,
        times: Some(Times { run, ready }),
        paged: None,
        neighbour: neighbour.map(|(name, percent)| Neighbour { name: name.to_owned(), percent }),
    }
}

fn vm(pid: u32, name: &str, vcpus: Vec<Vcpu>) -> Vm {
    Vm {
        pid,
        name: name.to_owned(),
        threads: vcpus.len() + 3,
        vcpus,
        others: Some(4.0),
        throttled: Some(0.0),
        memory: Some(MemoryUse {
            resident: 1536 << 20,
            shared: 1 << 30,
            huge: 0,
            locked: 2 << 20,
            swapped: 512 << 10,
        }),
        read_per_s: Some(1_500_000.0),
        written_per_s: Some(0.0),
        reads_per_s: Some(120.0),
        writes_per_s: Some(60.0),
    }
}

/// Returns the rates of a host with three VMs: one that waits, one that is new, and one whose
/// vCPUs are not known; and with three ports.
pub(crate) fn rates() -> Rates {
    let waits = vcpu(0, 50.0, 50.0, Some(("web \"1\", big vCPU 0", 49.5)));
    let rests = vcpu(1, 12.25, 2.5, None);
    let new = Vm {
        others: None,
        throttled: None,
        memory: None,
        read_per_s: None,
        written_per_s: None,
        reads_per_s: None,
        writes_per_s: None,
        ..vm(815, "new", vec![Vcpu { times: None, ..vcpu(0, 0.0, 0.0, None) }])
    };
    let throttled = Vm { throttled: Some(0.5), ..vm(900, "web \"1\", big", Vec::new()) };
    let busy = PortCounters {
        tx_frames: 30_000,
        tx_bytes: 45_000_000,
        rx_frames: 15_000,
        rx_bytes: 960_000,
        rx_drops: vec![(DropReason::RingFull, 300)],
        tx_drops: vec![(DropReason::ForgedTransmit, 30)],
        kicks: 900,
        interrupts: 12_000,
        ..PortCounters::default()
    };
    let port = |number, owner: &str, counted: Option<PortCounters>| PortLine {
        number,
        owner: owner.to_owned(),
        vswitch: "sw".to_owned(),
        done: counted.map(|counted| Done { rates: PortRates::of(&counted, 2000), counted }),
    };
    let ports =
        vec![port(3, "vm/db/nic0", Some(busy)), port(4, "vm/new/nic0", None), port(9, "uplink/eth0", None)];
    Rates {
        epoch_ms: 1_795_000_000_250,
        pcpus: BTreeMap::from([(0, 99.5), (1, 12.0)]),
        memory: Some(HostMemory {
            total: 24_683_656 << 10,
            available: 20_922_700 << 10,
            huge: 0,
            swap: 2 << 30,
            swap_used: 1 << 30,
        }),
        vms: vec![vm(712, "db", vec![waits, rests]), new, throttled],
        vcpus: 3,
        left_out: 0,
        processes: vec![Process { pid: 44, name: "kswapd0".to_owned(), threads: 1, run: 3.0, ready: 20.0 }],
        disks: vec![DiskRates {
            name: "vda".to_owned(),
            active: 2,
            reads_per_s: Some(10.0),
            writes_per_s: Some(20.5),
            read_per_s: Some(40_960.0),
            written_per_s: Some(2_048_000.0),
            request_ms: Some(1.25),
            busy: Some(30.0),
        }],
        interrupts: vec![
            InterruptRates {
                name: "LOC".to_owned(),
                what: "Local timer interrupts".to_owned(),
                per_s: 1000.0,
                pcpus: (0..6).map(|cpu| (cpu, 250.0 - 40.0 * f64::from(cpu))).collect(),
            },
            InterruptRates {
                name: "27".to_owned(),
                what: "PCI-MSI virtio0-input.0".to_owned(),
                per_s: 12.5,
                pcpus: vec![(1, 12.5)],
            },
        ],
        ports: Some(ports),
    }
}
