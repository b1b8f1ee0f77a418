//! Metrics of VMs: phases of taut's own, and times and memory of all VMs of the host.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use taut_api::route::Vm;
use taut_api::vm::Phase;
use taut_host::observe::processes::{MemoryUse, Times};

use super::encoder::{Column, Labels, counter, gauge, seconds};
use crate::statistics::VmTimes;

/// Most vCPUs of all VMs together that have times in the metrics, and most VMs. Others on the host
/// can start as many processes as they are allowed to. Each vCPU takes two series.
const MOST_VCPUS: usize = 4096;
const MOST_VMS: usize = 1024;

const PHASES: [(Phase, &str); 5] = [
    (Phase::Stopped, "stopped"),
    (Phase::Starting, "starting"),
    (Phase::Running, "running"),
    (Phase::Stopping, "stopping"),
    (Phase::Failed, "failed"),
];

const VCPU: [Column<Times>; 2] = [
    ("taut_vm_vcpu_run_seconds", "Time that the vCPU ran", |times| times.ran_ns),
    ("taut_vm_vcpu_ready_seconds", "Time that the vCPU was ready to run and waited for a pCPU", |times| {
        times.waited_ns
    }),
];

const OTHERS: [Column<Times>; 2] = [
    ("taut_vm_others_run_seconds", "Time that the VM's other threads ran: emulation and I/O", |times| {
        times.ran_ns
    }),
    (
        "taut_vm_others_ready_seconds",
        "Time that the VM's other threads were ready to run and waited for a pCPU",
        |times| times.waited_ns,
    ),
];

const MEMORY: [Column<MemoryUse>; 2] = [
    ("taut_vm_memory_bytes", "Memory of the host that the VM's process has", |memory| memory.resident),
    ("taut_vm_swapped_bytes", "Memory of the VM's process that is swapped out", |memory| memory.swapped),
];

/// Encodes the number of taut's VMs in each phase.
pub(super) fn encode_phases(vms: &[Vm], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut metric = gauge(encoder, "taut_vms", "VMs of taut by phase")?;
    for (phase, name) in PHASES {
        let count = vms.iter().filter(|vm| vm.status.phase == phase).count();
        metric.encode_family(&[("phase", name)])?.encode_gauge(&count)?;
    }
    Ok(())
}

/// Encodes the times of VMs, whoever has started them: as many as there is room for, the first ones
/// first. The last sample has left `left_out` others out.
pub(super) fn encode_times(
    vms: &[VmTimes],
    left_out: usize,
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let mut vcpus = 0;
    let has_room = |vm: &&VmTimes| {
        vcpus += vm.vcpus.len();
        vcpus <= MOST_VCPUS
    };
    let listed: Vec<_> = vms.iter().take(MOST_VMS).take_while(has_room).collect();
    let mut about = gauge(encoder, "taut_vm_info", "1 for each VM of the host, whoever has started it")?;
    for vm in &listed {
        let mut labels = labels(vm);
        labels.push(("foreign", if vm.foreign { "true" } else { "false" }.into()));
        labels.push(("pid", vm.pid.to_string().into()));
        about.encode_family(&labels)?.encode_gauge(&1_u32)?;
    }
    for (name, help, read) in VCPU {
        let mut metric = counter(encoder, name, help)?;
        for vm in &listed {
            let vcpus: &BTreeMap<u32, Times> = &vm.vcpus;
            for (vcpu, times) in vcpus {
                let mut labels = labels(vm);
                labels.push(("vcpu", vcpu.to_string().into()));
                seconds(metric.encode_family(&labels)?, read(times))?;
            }
        }
    }
    for (name, help, read) in OTHERS {
        let mut metric = counter(encoder, name, help)?;
        for vm in &listed {
            seconds(metric.encode_family(&labels(vm))?, read(&vm.others))?;
        }
    }
    let help = "Time in which CPU limits kept the VM from running";
    let mut metric = counter(encoder, "taut_vm_throttled_seconds", help)?;
    for vm in &listed {
        if let Some(throttled_ns) = vm.throttled_ns {
            seconds(metric.encode_family(&labels(vm))?, throttled_ns)?;
        }
    }
    for (name, help, read) in MEMORY {
        let mut metric = gauge(encoder, name, help)?;
        for vm in &listed {
            if let Some(memory) = &vm.memory {
                metric.encode_family(&labels(vm))?.encode_gauge(&read(memory))?;
            }
        }
    }
    let help = "VMs of the host without times in these metrics, because there are too many";
    gauge(encoder, "taut_vms_left_out", help)?.encode_gauge(&(vms.len() - listed.len() + left_out))
}

fn labels(vm: &VmTimes) -> Labels {
    vec![("vm", vm.name.clone().into()), ("id", vm.id.clone().into())]
}
