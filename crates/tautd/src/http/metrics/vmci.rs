//! Metrics of VMCI devices.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use taut_api::fabric::counters::VmciCounters;
use taut_api::link::Link;
use taut_api::route::Vm;

use super::encoder::{Column, Labels, count, counter, gauge};

const VMCI: &[Column<VmciCounters>] = &[
    ("taut_vmci_connections_opened", "Connections opened, from either side", |counters| counters.opened),
    ("taut_vmci_rx_bytes", "Payload bytes delivered to the guest", |counters| counters.rx_bytes),
    ("taut_vmci_tx_bytes", "Payload bytes taken from the guest", |counters| counters.tx_bytes),
    ("taut_vmci_ring_rx_bytes", "Payload bytes delivered to the guest by rings", |counters| {
        counters.ring_rx_bytes
    }),
    ("taut_vmci_ring_tx_bytes", "Payload bytes taken from the guest by rings", |counters| {
        counters.ring_tx_bytes
    }),
    ("taut_vmci_rx_packets", "Packets delivered to the guest", |counters| counters.rx_packets),
    ("taut_vmci_tx_packets", "Packets taken from the guest", |counters| counters.tx_packets),
    ("taut_vmci_requests_refused", "Requests reset: no listener, or no permission", |counters| {
        counters.refused
    }),
    ("taut_vmci_requests_limited", "Requests reset because of a limit", |counters| counters.limited),
    ("taut_vmci_packets_forged", "Packets dropped for a source address of another VM", |counters| {
        counters.forged
    }),
    ("taut_vmci_packets_malformed", "Malformed packets dropped", |counters| counters.malformed),
    ("taut_vmci_connections_reset", "Connections reset by a protocol error or a restart", |counters| {
        counters.resets
    }),
    ("taut_vmci_stalls", "Times that the guest took nothing for a second", |counters| counters.stalls),
    ("taut_vmci_interrupts", "Interrupts sent to the guest", |counters| counters.interrupts),
    ("taut_vmci_kicks", "Notifications received from the guest", |counters| counters.kicks),
];

/// Encodes the counters and links of VMCI devices.
pub(super) fn encode(vms: &[Vm], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let devices = vms.iter().filter_map(|vm| {
        let device = vm.status.vmci.as_ref()?;
        let labels: Labels = vec![("vm", vm.name.to_string().into()), ("cid", device.cid.to_string().into())];
        Some((labels, device))
    });
    let devices: Vec<_> = devices.collect();
    for (name, help, read) in VMCI {
        let mut metric = counter(encoder, name, help)?;
        for (labels, device) in &devices {
            count(metric.encode_family(labels)?, read(&device.counters))?;
        }
    }
    let mut open = gauge(encoder, "taut_vmci_connections", "Open connections")?;
    for (labels, device) in &devices {
        open.encode_family(labels)?.encode_gauge(&device.counters.connections)?;
    }
    let mut attached = gauge(encoder, "taut_vmci_attached", "Ends of connections that use rings")?;
    for (labels, device) in &devices {
        attached.encode_family(labels)?.encode_gauge(&device.counters.attached)?;
    }
    let mut up = gauge(encoder, "taut_vmci_up", "1 if the guest's driver serves the device, or 0")?;
    for (labels, device) in &devices {
        up.encode_family(labels)?.encode_gauge(&u32::from(device.link == Link::Up))?;
    }
    Ok(())
}
