//! `/v1/host/check`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use taut_api::check::{CheckReport, Profile};
use taut_api::error::ErrorKind;
use taut_api::{ApiError, path};
use taut_plan::checklist;
use tokio::sync::Mutex;

use super::body::{Failure, bad_query};
use super::{Shared, daemon, vms};

/// Time for which a report is served again. A check reads some files for each pCPU, and pages that
/// are open ask for it again and again.
const KEPT_FOR: Duration = Duration::from_secs(10);

/// Reports that may be served again. The lock is held while a report is made, so that concurrent
/// requests make it once.
#[derive(Debug, Default)]
pub(crate) struct HostChecks(Mutex<Reports>);

/// Reports with the time of each, by profile.
#[derive(Debug, Default)]
struct Reports(BTreeMap<&'static str, (Instant, CheckReport)>);

impl Reports {
    /// Returns the report for a profile, if it may be served again.
    fn fresh(&self, profile: Profile) -> Option<CheckReport> {
        let (made, report) = self.0.get(profile.as_str())?;
        (made.elapsed() < KEPT_FOR).then(|| report.clone())
    }
}

/// Query of the check.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Asked {
    /// Purpose to check for.
    #[serde(default)]
    #[param(inline)]
    profile: Profile,
}

/// Compares the host with best practices, as `taut check host` does. A report may be ten seconds
/// old.
#[utoipa::path(get, path = path::HOST_CHECK, tag = "Host", params(Asked),
    responses((status = 200, body = CheckReport), (status = 400, body = ApiError),
        (status = 503, body = ApiError)))]
pub(super) async fn check_host(
    State(app): State<Shared>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Json<CheckReport>, Failure> {
    let hint = "use profile=latency, throughput or dense";
    let Query(Asked { profile }) = asked.map_err(|error| bad_query(&error, hint))?;
    if let Some(report) = app.checks.0.lock().await.fresh(profile) {
        return Ok(Json(report));
    }
    // The accelerator's probe may take 30 s, so it is awaited without the lock.
    let host = daemon::describe(&app).await?;
    let mut reports = app.checks.0.lock().await;
    if let Some(report) = reports.fresh(profile) {
        return Ok(Json(report));
    }
    let settings = app.store.state().desired.host.clone();
    let commitment = checklist::commitment(&vms::all(&app)?, &host, &settings);
    let facts = tokio::task::spawn_blocking(|| taut_host::check::host(Path::new("/"))).await;
    let facts = facts.map_err(|error| Failure::internal("the check was interrupted", &error))?;
    let mut facts = facts.map_err(|error| {
        let message = "the settings of this host cannot be read";
        ApiError::new(ErrorKind::Unavailable, message, "the check needs /proc and /sys").because(&error)
    })?;
    facts.commitment = Some(commitment);
    let report = CheckReport::from(checklist::host(&facts, profile));
    reports.0.insert(profile.as_str(), (Instant::now(), report.clone()));
    Ok(Json(report))
}
