//! `/metrics`, in the formats that Prometheus reads.
//!
//! Names follow the conventions of Prometheus: base units (seconds, bytes, ratios), `_total` for
//! counters, and labels that tell series of one unit apart.

mod daemon;
mod encoder;
mod format;
mod ports;
mod vmci;
mod vms;

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;
use taut_api::path;
use taut_api::route::{PortInfo, Vm, WorkerInfo};
use taut_api::tune::HostTune;

use self::format::Format;
use super::Shared;
use super::body::Failure;
use crate::statistics::VmTimes;

/// Counters of all ports, VMCI devices and workers, times of all VMs of the host, the number of VMs
/// per phase, and the state of the daemon. In OpenMetrics if the request accepts that, and in the
/// text format of Prometheus otherwise.
#[utoipa::path(get, path = path::METRICS, tag = "Daemon",
    responses((status = 200, content(
        (String = "application/openmetrics-text"), (String = "text/plain"),
    ))))]
pub(super) async fn metrics(
    State(app): State<Shared>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, Failure> {
    let format = Format::accepted(&headers);
    let text = format.convert(Snapshot::take(&app)?.into_text());
    Ok(([(header::CONTENT_TYPE, format.content_type())], text))
}

/// Everything that the metrics are made of, read once.
#[derive(Debug)]
struct Snapshot {
    ports: Vec<PortInfo>,
    vms: Vec<Vm>,
    times: Vec<VmTimes>,
    /// VMs that the last sample has left out.
    left_out: usize,
    workers: Vec<WorkerInfo>,
    tune: HostTune,
    daemon: daemon::State,
}

impl Snapshot {
    fn take(app: &Shared) -> Result<Self, Failure> {
        let (state, seen) = app.look();
        let (times, left_out) = app.statistics.vm_times();
        Ok(Self {
            ports: super::ports::all(app)?,
            vms: super::vms::all(app)?,
            times,
            left_out,
            workers: super::daemon::workers(app)?,
            tune: super::host::tune(app)?,
            daemon: daemon::State {
                fabric_up: seen.observed.fabric.ready,
                fabric_restarts: seen.fabrics_served.saturating_sub(1),
                newest: state.revision,
                in_force: seen.in_force,
                problems: seen.problems.len() + seen.refused_ports.len(),
                history_written: app.statistics.is_written(),
                forbidden: app.forbidden.load(Relaxed),
                refusals: app.remote.refusals.all(),
            },
        })
    }

    fn into_text(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        text::encode(&mut text, &registry).expect("writing to a string cannot fail");
        text
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        ports::encode(&self.ports, &mut encoder)?;
        vms::encode_phases(&self.vms, &mut encoder)?;
        vms::encode_times(&self.times, self.left_out, &mut encoder)?;
        vmci::encode(&self.vms, &mut encoder)?;
        daemon::encode_workers(&self.workers, &mut encoder)?;
        daemon::encode_tune(&self.tune, &mut encoder)?;
        daemon::encode(&self.daemon, &mut encoder)
    }
}

#[cfg(test)]
mod exposition;
#[cfg(test)]
mod tests;
