//! `/v1/statistics`.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use taut_api::error::ErrorKind;
use taut_api::fabric::counters::PortCounters;
use taut_api::route::PortInfo;
use taut_api::statistics::{
    HostStatistics, Period, PortRates, PortStatistics, Series, SocketStatistics, Subject, VmStatistics,
};
use taut_api::{ApiError, Name, path};

use super::body::{Failure, bad_query};
use super::{Shared, ports};
use crate::statistics::{Asked, CountedPort};

/// Advice for a query that cannot be read.
const HINT: &str = "use period=SECONDS, or a number with s, m, h or d: period=5m";

/// Query of statistics.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// The period before now: a number of seconds, or a number with `s`, `m`, `h` or `d`; up to 366
    /// days. Five minutes by default.
    #[serde(default)]
    period: Option<String>,
}

/// Advice for a query of a series that cannot be read.
const SERIES_HINT: &str =
    "use subject=port, uplink, vm or sockets with name=NAME, or subject=host, and period=5m if need be";

/// Query of a series.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WhichSeries {
    /// Kind of the subject.
    #[param(inline)]
    subject: Subject,
    /// Its name: the owner of a port (`vm/web1/nic0`), an uplink, or a VM. The
    /// host needs none.
    #[serde(default)]
    name: String,
    /// Process of the VM, which tells apart foreign VMs with one name. Without it, one that runs
    /// comes first, and then the one that was sampled last.
    #[serde(default)]
    pid: Option<u32>,
    /// The period before now: a number of seconds, or a number with `s`, `m`, `h` or `d`; up to 366
    /// days. Five minutes by default.
    #[serde(default)]
    period: Option<String>,
}

/// Returns counts of ports within a period, and averages. All ports that exist are listed; a new
/// one has counted nothing for two seconds. Ports that are gone follow as long as they have samples
/// in the period.
#[utoipa::path(get, path = path::PORT_STATISTICS, tag = "Statistics", params(Which),
    responses((status = 200, body = [PortStatistics]), (status = 400, body = ApiError),
        (status = 503, body = ApiError)))]
pub(super) async fn port_statistics(
    State(app): State<Shared>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<Vec<PortStatistics>>, Failure> {
    let Query(Which { period }) = which.map_err(|error| bad_query(&error, HINT))?;
    let period = period_of(period.as_deref())?;
    let existing = ports::all(&app)?;
    let (state, seen) = app.look();
    // The disk may be slow.
    let counted = tokio::task::spawn_blocking(move || app.statistics.ports(period)).await;
    let counted =
        counted.map_err(|error| Failure::internal("reading statistics was interrupted", &error))??;
    let desired = &state.desired;
    let class = |vswitch: &Name, portgroup: Option<&Name>| {
        let group = desired.portgroups.get(portgroup?)?;
        desired.vswitches.get(vswitch)?.network_io.enabled.then_some(group.traffic_class)
    };
    let mut counted: BTreeMap<_, _> =
        counted.into_iter().map(|port| ((port.port, port.owner.clone()), port)).collect();
    let to_ms = crate::statistics::wall_ms();
    let mut all: Vec<_> = existing
        .into_iter()
        .map(|PortInfo { port, owner, vswitch, portgroup, link, reason, .. }| {
            let counters = PortCounters::default();
            let new = CountedPort { port, owner: owner.clone(), covered_ms: 0, to_ms, counters };
            let statistics = statistics_of(counted.remove(&(port, owner)).unwrap_or(new));
            let traffic_class = class(&vswitch, portgroup.as_ref());
            PortStatistics {
                link: Some(link),
                reason,
                port: Some(port),
                vswitch: Some(vswitch),
                portgroup,
                traffic_class,
                ..statistics
            }
        })
        .collect();
    let off = ports::of_vms_that_are_off(&state.desired, &seen);
    all.extend(counted.into_values().map(|counted| {
        let statistics = statistics_of(counted);
        let (link, reason) = off.get(&statistics.owner).cloned().unzip();
        PortStatistics { link, reason: reason.flatten(), ..statistics }
    }));
    Ok(Json(all))
}

/// Returns the times of all VMs of the host within a period: of taut's, and of those that other
/// programs have started. VMs that are gone are listed as long as they have samples in the period.
#[utoipa::path(get, path = path::VM_STATISTICS, tag = "Statistics", params(Which),
    responses((status = 200, body = [VmStatistics]), (status = 400, body = ApiError),
        (status = 503, body = ApiError)))]
pub(super) async fn vm_statistics(
    State(app): State<Shared>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<Vec<VmStatistics>>, Failure> {
    let Query(Which { period }) = which.map_err(|error| bad_query(&error, HINT))?;
    let period = period_of(period.as_deref())?;
    let all = tokio::task::spawn_blocking(move || app.statistics.vms(period)).await;
    Ok(Json(all.map_err(|error| Failure::internal("reading statistics was interrupted", &error))??))
}

/// Returns averages of the VMCI sockets of all VMs within a period. Those of VMs that are gone are
/// listed as long as they have samples in the period.
#[utoipa::path(get, path = path::SOCKET_STATISTICS, tag = "Statistics", params(Which),
    responses((status = 200, body = [SocketStatistics]), (status = 400, body = ApiError),
        (status = 503, body = ApiError)))]
pub(super) async fn socket_statistics(
    State(app): State<Shared>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<Vec<SocketStatistics>>, Failure> {
    let Query(Which { period }) = which.map_err(|error| bad_query(&error, HINT))?;
    let period = period_of(period.as_deref())?;
    let all = tokio::task::spawn_blocking(move || app.statistics.sockets(period)).await;
    Ok(Json(all.map_err(|error| Failure::internal("reading statistics was interrupted", &error))??))
}

/// Returns averages of the host over a period.
#[utoipa::path(get, path = path::HOST_STATISTICS, tag = "Statistics", params(Which),
    responses((status = 200, body = HostStatistics), (status = 400, body = ApiError),
        (status = 503, body = ApiError)))]
pub(super) async fn host_statistics(
    State(app): State<Shared>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<HostStatistics>, Failure> {
    let Query(Which { period }) = which.map_err(|error| bad_query(&error, HINT))?;
    let period = period_of(period.as_deref())?;
    let host = tokio::task::spawn_blocking(move || app.statistics.host(period)).await;
    Ok(Json(host.map_err(|error| Failure::internal("reading statistics was interrupted", &error))??))
}

/// Returns rates of one port, uplink or VM, or of the host, over a period, step by step: for a
/// chart. A step is a second in a period of five minutes, and longer in longer ones. Times in which
/// nobody took samples have no points.
#[utoipa::path(get, path = path::SERIES, tag = "Statistics", params(WhichSeries),
    responses((status = 200, body = Series), (status = 400, body = ApiError),
        (status = 404, body = ApiError), (status = 503, body = ApiError)))]
pub(super) async fn show_series(
    State(app): State<Shared>,
    which: Result<Query<WhichSeries>, QueryRejection>,
) -> Result<Json<Series>, Failure> {
    let Query(WhichSeries { subject, name, pid, period }) =
        which.map_err(|error| bad_query(&error, SERIES_HINT))?;
    let period = period_of(period.as_deref())?;
    let asked = Asked { subject, name: name.clone(), pid };
    let series = tokio::task::spawn_blocking(move || app.statistics.series(&asked, period)).await;
    let series =
        series.map_err(|error| Failure::internal("reading statistics was interrupted", &error))??;
    let absent = || {
        ApiError::new(
            ErrorKind::NotFound,
            format!("no {} `{name}` has samples of the last {period}", subject.as_str()),
            "/v1/statistics/ports and /v1/statistics/vms list those that have some; \
             a new one has them after two seconds",
        )
    };
    Ok(Json(series.ok_or_else(absent)?))
}

/// Returns the period of a query.
fn period_of(period: Option<&str>) -> Result<Period, ApiError> {
    Period::parse_or_usual(period).map_err(|error| bad_query(&error, HINT))
}

/// Returns the statistics of a port, without its number and networks, which only a port that exists
/// has.
fn statistics_of(CountedPort { owner, covered_ms, to_ms, counters, .. }: CountedPort) -> PortStatistics {
    PortStatistics {
        owner,
        port: None,
        vswitch: None,
        portgroup: None,
        link: None,
        reason: None,
        traffic_class: None,
        covered_ms,
        to_ms,
        rates: PortRates::of(&counters, covered_ms),
        counted: counters,
    }
}
