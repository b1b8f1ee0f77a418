//! Metrics of the daemon, of the fabric and its workers, and of dense mode.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use taut_api::fabric::counters::WorkerCounters;
use taut_api::route::WorkerInfo;
use taut_api::tune::HostTune;

use super::encoder::{Column, Labels, count, counter, gauge, seconds};

const WORKER: &[Column<WorkerCounters>] = &[
    ("taut_worker_sleeps", "Times the worker went to sleep", |counters| counters.sleeps),
    ("taut_worker_bursts", "Rounds with at least one frame", |counters| counters.bursts),
    ("taut_worker_empty_rounds", "Rounds without a frame", |counters| counters.empty_rounds),
    ("taut_worker_queues_given", "Transmit queues given to another worker", |counters| counters.given),
];

const WORKER_TIMES: &[Column<WorkerCounters>] = &[
    ("taut_worker_sleep_seconds", "Time the worker slept", |counters| counters.sleep_ns),
    ("taut_worker_busy_seconds", "Time the worker moved frames", |counters| counters.busy_ns),
];

/// State of the daemon.
#[derive(Debug, Default)]
pub(super) struct State {
    /// A fabric is connected and serves all ports.
    pub(super) fabric_up: bool,
    /// Number of times that another fabric took over.
    pub(super) fabric_restarts: u32,
    /// Newest revision in the store.
    pub(super) newest: u64,
    /// Newest revision that is in force.
    pub(super) in_force: u64,
    /// Number of problems that are tried again.
    pub(super) problems: usize,
    /// Samples of counters reach their file.
    pub(super) history_written: bool,
    /// Number of requests that were refused because of their caller's role.
    pub(super) forbidden: u64,
    /// Number of refusals over TCP, by reason.
    pub(super) refusals: Vec<(&'static str, u64)>,
}

/// Encodes the state of the daemon.
pub(super) fn encode(state: &State, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut build = gauge(encoder, "taut_build_info", "Version of the daemon")?;
    build.encode_family(&[("version", env!("CARGO_PKG_VERSION"))])?.encode_gauge(&1_u32)?;
    let up = u32::from(state.fabric_up);
    gauge(encoder, "taut_fabric_up", "1 if a fabric serves all ports, or 0")?.encode_gauge(&up)?;
    let help = "Times another fabric took over: after a crash, a hang, or in an upgrade";
    count(counter(encoder, "taut_fabric_restarts", help)?, u64::from(state.fabric_restarts))?;
    let help = "Newest revision of the documents";
    gauge(encoder, "taut_revision_newest", help)?.encode_gauge(&state.newest)?;
    let help = "Newest revision that daemon and fabric have worked on";
    gauge(encoder, "taut_revision_in_force", help)?.encode_gauge(&state.in_force)?;
    let help = "Parts of the plan that failed and are tried again";
    gauge(encoder, "taut_problems", help)?.encode_gauge(&state.problems)?;
    let written = u32::from(state.history_written);
    let help = "1 if samples of counters reach their file, or 0";
    gauge(encoder, "taut_history_written", help)?.encode_gauge(&written)?;
    let help = "Requests refused because their caller lacks the role";
    count(counter(encoder, "taut_api_forbidden", help)?, state.forbidden)?;
    let help = "Connections and requests over TCP that were refused";
    let mut refused = counter(encoder, "taut_remote_refused", help)?;
    for (reason, number) in &state.refusals {
        count(refused.encode_family(&[("reason", *reason)])?, *number)?;
    }
    Ok(())
}

/// Encodes the counters of workers.
pub(super) fn encode_workers(workers: &[WorkerInfo], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let labels = |worker: &WorkerInfo| -> Labels {
        vec![("worker", worker.worker.to_string().into()), ("mode", worker.mode.clone().into())]
    };
    for (name, help, read) in WORKER {
        let mut metric = counter(encoder, name, help)?;
        for worker in workers {
            count(metric.encode_family(&labels(worker))?, read(&worker.counters))?;
        }
    }
    for (name, help, read) in WORKER_TIMES {
        let mut metric = counter(encoder, name, help)?;
        for worker in workers {
            seconds(metric.encode_family(&labels(worker))?, read(&worker.counters))?;
        }
    }
    Ok(())
}

/// Encodes dense mode. Readings exist after the first test; the utilisation only if it is known.
pub(super) fn encode_tune(tune: &HostTune, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let dense = u32::from(tune.state.on);
    gauge(encoder, "taut_tune_dense", "1 if dense mode is in force, or 0")?.encode_gauge(&dense)?;
    let test = tune.state.test.as_ref();
    let limits = test.map_or(tune.limits, |test| test.limits);
    let ratio = |percent: u32| f64::from(percent) / 100.0;
    gauge(encoder, "taut_tune_threshold_vms", "VMs that make the host dense")?.encode_gauge(&limits.vms)?;
    let help = "vCPUs that make the host dense";
    gauge(encoder, "taut_tune_threshold_vcpus", help)?.encode_gauge(&limits.vcpus)?;
    let help = "Utilisation of all pCPUs that makes the host dense";
    gauge(encoder, "taut_tune_threshold_utilisation_ratio", help)?
        .encode_gauge(&ratio(limits.utilisation))?;
    let Some(reading) = test.map(|test| &test.reading) else { return Ok(()) };
    gauge(encoder, "taut_tune_reading_vms", "VMs at the last test")?.encode_gauge(&reading.vms)?;
    gauge(encoder, "taut_tune_reading_vcpus", "vCPUs at the last test")?.encode_gauge(&reading.vcpus)?;
    let Some(utilisation) = reading.utilisation else { return Ok(()) };
    let help = "Utilisation of all pCPUs at the last test";
    gauge(encoder, "taut_tune_reading_utilisation_ratio", help)?.encode_gauge(&ratio(utilisation))
}
