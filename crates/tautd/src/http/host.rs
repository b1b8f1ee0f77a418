//! `/v1/host/settings`, `/v1/host/tune` and `/v1/host/restore`.

use std::path::Path;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::Value;
use taut_api::error::ErrorKind;
use taut_api::host::HostSettings;
use taut_api::route::ChangeHostSettings;
use taut_api::tune::HostTune;
use taut_api::{ApiError, path};
use taut_host::kernel::utilisation;
use tokio::sync::oneshot;

use super::Shared;
use super::body::{Body, Failure};
use crate::inbox::Message;
use crate::status;
use crate::store::Change;

/// Shows the host's settings with defaults filled in.
#[utoipa::path(get, path = path::HOST_SETTINGS, tag = "Host", responses((status = 200, body = HostSettings)))]
pub(super) async fn show_settings(State(app): State<Shared>) -> Json<HostSettings> {
    Json(app.store.state().desired.host.clone())
}

/// Changes the given settings, all or none. They take effect at once.
#[utoipa::path(patch, path = path::HOST_SETTINGS, tag = "Host", request_body = ChangeHostSettings,
    responses((status = 200, body = HostSettings), (status = 400, body = ApiError), (status = 503, body = ApiError)))]
pub(super) async fn change_settings(
    State(app): State<Shared>,
    Body(changes): Body<ChangeHostSettings>,
) -> Result<Json<HostSettings>, Failure> {
    let state = app.write(move |state| Ok(Change::host(changed(&state.desired.host, changes)?))).await?;
    Ok(Json(state.desired.host.clone()))
}

/// Restores everything that was changed on the host for latency-sensitive VMs, which continue to
/// run. The next change of any document, or the next daemon, applies it again.
#[utoipa::path(post, path = path::HOST_RESTORE, tag = "Host",
    responses((status = 204), (status = 503, body = ApiError)))]
pub(super) async fn restore(State(app): State<Shared>) -> Result<StatusCode, Failure> {
    let (done, restored) = oneshot::channel();
    app.inbox.send(Message::RestoreHost(done));
    restored.await.map_err(|_| {
        ApiError::new(ErrorKind::Unavailable, "the daemon is ending", "start it again, then restore the host")
    })??;
    Ok(StatusCode::NO_CONTENT)
}

fn changed(settings: &HostSettings, changes: ChangeHostSettings) -> Result<HostSettings, ApiError> {
    let invalid = |message: String, hint: &str| ApiError::new(ErrorKind::Invalid, message, hint);
    let mut keys = serde_json::to_value(settings).expect("our own types are JSON");
    for (key, value) in changes.0 {
        // Absent settings get their defaults when the document is read.
        let restores = value.is_empty() || value == "default";
        keys[key] = if restores { Value::Null } else { Value::String(value) };
    }
    if let Some(keys) = keys.as_object_mut() {
        keys.retain(|_, value| !value.is_null());
    }
    let settings: HostSettings = serde_json::from_value(keys).map_err(|error| {
        invalid(format!("invalid host setting: {error}"), "`taut host settings` shows all of them")
    })?;
    settings.coalescing().map_err(|error| {
        invalid(
            format!(
                "Net.CoalesceScheme = {} and Net.CoalesceParams = {} do not match: {error}",
                settings.coalesce_scheme, settings.coalesce_params
            ),
            "set both in one command; Net.CoalesceParams=default restores the scheme's default",
        )
    })?;
    settings.tune_interval().map_err(|error| {
        invalid(
            format!("invalid host setting: {error}"),
            "Net.NetTuneInterval=default restores the default, 60",
        )
    })?;
    settings.tune_threshold().map_err(|error| {
        invalid(
            format!("invalid host setting: {error}"),
            "write VMs, vCPUs and percent of the pCPUs' time, such as \"1n 2n 50\" (default); n is the number of pCPUs",
        )
    })?;
    Ok(settings)
}

/// Shows dense mode: thresholds, readings of the last test, whether it is in force, and the ports
/// it governs.
#[utoipa::path(get, path = path::HOST_TUNE, tag = "Host",
    responses((status = 200, body = HostTune), (status = 500, body = ApiError)))]
pub(super) async fn show_tune(State(app): State<Shared>) -> Result<Json<HostTune>, Failure> {
    Ok(Json(tune(&app)?))
}

/// Returns the state of dense mode.
pub(super) fn tune(app: &Shared) -> Result<HostTune, Failure> {
    let cpus = utilisation::read(Path::new("/"));
    let cpus = cpus.map_err(|error| Failure::internal("the host's load cannot be read", &error))?;
    let (state, seen) = app.look();
    Ok(status::tune(&state.desired, &seen, cpus.pcpus()))
}

#[cfg(test)]
mod tests {
    use taut_api::tune::{TuneMode, TuneThreshold};

    use super::*;

    fn change(settings: &HostSettings, changes: &[(&str, &str)]) -> Result<HostSettings, String> {
        let changes = changes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        changed(settings, ChangeHostSettings(changes)).map_err(|error| error.to_string())
    }

    #[test]
    fn settings_change_together_or_not_at_all() {
        let rbc = HostSettings::default();
        let fixed = change(&rbc, &[("Net.CoalesceScheme", "static"), ("Net.CoalesceParams", "16")]).unwrap();
        assert_eq!(fixed.coalescing().unwrap().to_string(), "static:16");
        let refused = change(&fixed, &[("Net.CoalesceScheme", "rbc")]).unwrap_err();
        assert!(refused.contains("rbc and Net.CoalesceParams = 16 do not match"), "{refused}");
        assert!(refused.contains("hint: set both"), "{refused}");
        let back = change(&fixed, &[("Net.CoalesceScheme", ""), ("Net.CoalesceParams", "")]).unwrap();
        assert_eq!(back, rbc);
    }

    #[test]
    fn settings_of_dense_mode_are_checked_before_they_are_stored() {
        let default = HostSettings::default();
        let changes = [
            ("Net.NetTuneHostMode", "dense"),
            ("Net.NetTuneInterval", "3600"),
            ("Net.NetTuneThreshold", "3 2n 100"),
        ];
        let dense = change(&default, &changes).unwrap();
        assert_eq!((dense.tune_mode, dense.tune_interval()), (TuneMode::Dense, Ok(3600)));
        assert_eq!(dense.tune_threshold().unwrap().to_string(), "3 2n 100");
        for (key, value, message) in [
            ("Net.NetTuneHostMode", "on", "unknown variant `on`, expected `default` or `dense`"),
            (
                "Net.NetTuneInterval",
                "0",
                "takes 1 to 3600 seconds, not `0`\nhint: Net.NetTuneInterval=default",
            ),
            ("Net.NetTuneThreshold", "1n", "three values, VMs, vCPUs and percent, not `1n`\nhint: write VMs"),
        ] {
            let refused = change(&default, &[(key, value)]).unwrap_err();
            assert!(refused.contains(message), "{refused}");
        }
        for word in ["", "default"] {
            let back = changes.map(|(key, _)| (key, word));
            assert_eq!(change(&dense, &back).unwrap(), default, "`{word}`");
        }
    }

    #[test]
    fn settings_stored_before_dense_mode_existed_are_read() {
        let old = r#"{"Net.CoalesceScheme":"adapt","Net.CoalesceParams":"","Net.Vmxnet3SwLRO":"0"}"#;
        let settings: HostSettings = serde_json::from_str(old).unwrap();
        assert_eq!((settings.tune_mode, settings.tune_interval()), (TuneMode::Default, Ok(60)));
        assert_eq!(settings.tune_threshold(), Ok(TuneThreshold::default()));
    }

    #[test]
    fn an_unknown_setting_is_named_in_the_error() {
        let refused = change(&HostSettings::default(), &[("Net.CoalesceSceme", "rbc")]).unwrap_err();
        assert!(refused.contains("`Net.CoalesceSceme`"), "{refused}");
        assert!(refused.contains("`Net.CoalesceScheme`"), "{refused}");
    }
}
