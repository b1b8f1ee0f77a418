//! `/v1/daemon`, `/v1/host`, `/v1/upgrade-fabric`, `/v1/shutdown`.

use std::path::Path;
use std::time::Duration;

use axum::Json;
use axum::extract::{ConnectInfo, State};
use axum::http::StatusCode;
use taut_api::error::ErrorKind;
use taut_api::fabric::counters::MAX_WORKERS;
use taut_api::host::HostInfo;
use taut_api::route::{CallerInfo, DaemonInfo, Shutdown, UpgradedFabric, WorkerInfo};
use taut_api::{ApiError, path};
use taut_host::kernel::topology;
use tokio::sync::oneshot;

use super::body::{Body, Failure};
use super::{App, Shared};
use crate::access::caller::Caller;
use crate::board::HostFacts;
use crate::inbox::Message;

/// Time that `/v1/host` waits until the accelerator is known.
const PROBE_PATIENCE: Duration = Duration::from_secs(30);

/// Shows version, processes and workers of the daemon.
#[utoipa::path(get, path = path::DAEMON, tag = "Daemon", responses((status = 200, body = DaemonInfo)))]
pub(super) async fn show_daemon(
    State(app): State<Shared>,
    ConnectInfo(caller): ConnectInfo<Caller>,
) -> Result<Json<DaemonInfo>, Failure> {
    let (state, seen) = app.look();
    let role = caller.role(&app.roles);
    Ok(Json(DaemonInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        fabric_pid: seen.observed.fabric.pid,
        fabric_version: Some(seen.fabric_version.clone())
            .filter(|version| !version.is_empty() && seen.observed.fabric.pid.is_some()),
        fabric_starts: seen.fabric_starts,
        revision: state.revision,
        reconciled: seen.in_force,
        state_dir: app.state_dir.display().to_string(),
        workers: workers(&app)?,
        caller: role.map(|role| CallerInfo { uid: caller.uid(), token: caller.token().cloned(), role }),
        remote: app.remote.info.clone(),
    }))
}

/// Returns the fabric's workers with their counters.
pub(super) fn workers(app: &App) -> Result<Vec<WorkerInfo>, Failure> {
    let wanted = &app.store.state().desired.workers;
    let count = wanted.count().min(MAX_WORKERS);
    let worker = |number: usize| {
        let counters = app.counters.read_worker(number);
        let counters = counters.map_err(|error| Failure::internal("the counters cannot be read", &error))?;
        let (cpu, mode) = (wanted.cpus.get(number).copied(), wanted.mode.as_str().to_owned());
        Ok(WorkerInfo { worker: number as u32, cpu, mode, counters })
    };
    (0..count).map(worker).collect()
}

/// Shows the host's topology, accelerator and QEMU.
#[utoipa::path(get, path = path::HOST, tag = "Daemon",
    responses((status = 200, body = HostInfo), (status = 503, body = ApiError)))]
pub(super) async fn show_host(State(app): State<Shared>) -> Result<Json<HostInfo>, Failure> {
    Ok(Json(describe(&app).await?))
}

/// Describes the host, once its accelerator is known.
pub(super) async fn describe(app: &Shared) -> Result<HostInfo, Failure> {
    let facts = tokio::time::timeout(PROBE_PATIENCE, known(app)).await.map_err(|_| {
        let message =
            format!("timed out after {PROBE_PATIENCE:?} waiting until the accelerator of this host is known");
        ApiError::new(ErrorKind::Unavailable, message, "try again, or read the daemon's log")
    })?;
    // Some files are read for each pCPU.
    let described =
        tokio::task::spawn_blocking(|| topology::describe(Path::new("/"), facts.accelerator, facts.qemu));
    let described =
        described.await.map_err(|error| Failure::internal("reading the topology was interrupted", &error))?;
    described.map_err(|error| Failure::internal("the host's topology cannot be read", &error))
}

async fn known(app: &Shared) -> HostFacts {
    loop {
        if let Some(host) = app.board.lock().host.clone() {
            return host;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Replaces the running fabric by a new process of the installed program. Answers when the new one
/// serves.
#[utoipa::path(post, path = path::UPGRADE_FABRIC, tag = "Daemon",
    responses((status = 200, body = UpgradedFabric), (status = 503, body = ApiError)))]
pub(super) async fn upgrade_fabric(State(app): State<Shared>) -> Result<Json<UpgradedFabric>, Failure> {
    let (done, upgraded) = oneshot::channel();
    app.inbox.send(Message::UpgradeFabric(done));
    let upgraded = upgraded.await.map_err(|_| {
        ApiError::new(
            ErrorKind::Unavailable,
            "the daemon is ending",
            "start it again, then upgrade the fabric",
        )
    })?;
    Ok(Json(upgraded?))
}

/// Ends the daemon. Answers when everything that should end has ended.
#[utoipa::path(post, path = path::SHUTDOWN, tag = "Daemon", request_body = Shutdown,
    responses((status = 204), (status = 503, body = ApiError)))]
pub(super) async fn shutdown(
    State(app): State<Shared>,
    Body(request): Body<Shutdown>,
) -> Result<StatusCode, Failure> {
    let (done, ended) = oneshot::channel();
    app.inbox.send(Message::Shutdown { everything: request.everything, done });
    ended.await.map_err(|_| {
        ApiError::new(ErrorKind::Unavailable, "the daemon is already ending", "wait until it has ended")
    })?;
    Ok(StatusCode::NO_CONTENT)
}
