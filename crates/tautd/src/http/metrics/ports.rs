//! Metrics of ports.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use taut_api::fabric::DropReason;
use taut_api::fabric::counters::PortCounters;
use taut_api::link::Link;
use taut_api::route::PortInfo;

use super::encoder::{Column, Labels, count, counter, gauge};

const PORT: &[Column<PortCounters>] = &[
    ("taut_port_rx_frames", "Frames delivered to the guest", |counters| counters.rx_frames),
    ("taut_port_rx_bytes", "Bytes delivered to the guest", |counters| counters.rx_bytes),
    ("taut_port_tx_frames", "Frames taken from the guest", |counters| counters.tx_frames),
    ("taut_port_tx_bytes", "Bytes taken from the guest", |counters| counters.tx_bytes),
    ("taut_port_interrupts", "Interrupts sent to the guest", |counters| counters.interrupts),
    ("taut_port_kicks", "Notifications received from the guest", |counters| counters.kicks),
    ("taut_port_rx_multicast_frames", "Broadcast and multicast frames delivered", |counters| {
        counters.rx_multicast
    }),
    ("taut_port_rx_waits", "Times a sender waited for a full receive ring", |counters| counters.rx_waits),
    ("taut_port_rx_merged_frames", "Frames merged from several TCP segments (LRO)", |counters| {
        counters.rx_merged_frames
    }),
    ("taut_port_rx_merged_segments", "TCP segments in merged frames", |counters| counters.rx_merged_segments),
    ("taut_port_wire_tx_bytes", "Bytes sent by uplinks, as they are on the wire", |counters| {
        counters.wire_tx_bytes
    }),
    ("taut_port_wire_rx_bytes", "Bytes received by uplinks, as they are on the wire", |counters| {
        counters.wire_rx_bytes
    }),
];

/// Name, explanation and reading of drops by reason.
type Drops = (&'static str, &'static str, fn(&PortCounters) -> &[(DropReason, u64)]);

const DROPS: [Drops; 2] = [
    ("taut_port_rx_drops", "Frames for the guest that were dropped, by reason", |counters| {
        &counters.rx_drops
    }),
    ("taut_port_tx_drops", "Frames from the guest that were dropped, by reason", |counters| {
        &counters.tx_drops
    }),
];

/// Encodes the counters and links of ports. A reason for drops has samples once a frame was dropped
/// for it.
pub(super) fn encode(ports: &[PortInfo], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    for (name, help, read) in PORT {
        let mut metric = counter(encoder, name, help)?;
        for port in ports {
            count(metric.encode_family(&labels(port))?, read(&port.counters))?;
        }
    }
    for (name, help, read) in DROPS {
        let mut drops = counter(encoder, name, help)?;
        for port in ports {
            for (reason, frames) in read(&port.counters) {
                let mut labels = labels(port);
                labels.push(("reason", reason.code().into()));
                count(drops.encode_family(&labels)?, *frames)?;
            }
        }
    }
    let mut up = gauge(encoder, "taut_port_up", "1 if the link is up, or 0")?;
    for port in ports {
        up.encode_family(&labels(port))?.encode_gauge(&u32::from(port.link == Link::Up))?;
    }
    Ok(())
}

fn labels(port: &PortInfo) -> Labels {
    let portgroup = port.portgroup.as_ref().map(ToString::to_string).unwrap_or_default();
    vec![
        ("port", port.port.to_string().into()),
        ("owner", port.owner.clone().into()),
        ("portgroup", portgroup.into()),
    ]
}
