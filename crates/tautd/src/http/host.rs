//! `/v1/host/settings`.

use axum::Json;
use axum::extract::State;
use serde_json::Value;
use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_api::host::HostSettings;
use taut_api::route::ChangeHostSettings;

use super::Shared;
use super::body::{Body, Failure};
use crate::store::Change;

/// The host's settings, defaults filled in.
#[utoipa::path(get, path = "/v1/host/settings", tag = "Host", responses((status = 200, body = HostSettings)))]
pub(super) async fn show_settings(State(app): State<Shared>) -> Json<HostSettings> {
    Json(app.store.state().desired.host.clone())
}

/// Changes the settings that are named, all or none; what they govern follows at once.
#[utoipa::path(patch, path = "/v1/host/settings", tag = "Host", request_body = ChangeHostSettings,
    responses((status = 200, body = HostSettings), (status = 400, body = ApiError), (status = 503, body = ApiError)))]
pub(super) async fn change_settings(
    State(app): State<Shared>,
    Body(changes): Body<ChangeHostSettings>,
) -> Result<Json<HostSettings>, Failure> {
    let state = app.write(move |desired| Ok(Change::host(changed(&desired.host, changes)?))).await?;
    Ok(Json(state.desired.host.clone()))
}

fn changed(settings: &HostSettings, changes: ChangeHostSettings) -> Result<HostSettings, ApiError> {
    let invalid = |message: String, hint: &str| ApiError::new(ErrorKind::Invalid, message, hint);
    let mut keys = serde_json::to_value(settings).expect("our own types are JSON");
    for (key, value) in changes.0 {
        // What is absent has its default when it is read.
        keys[key] = if value.is_empty() { Value::Null } else { Value::String(value) };
    }
    if let Some(keys) = keys.as_object_mut() {
        keys.retain(|_, value| !value.is_null());
    }
    let settings: HostSettings = serde_json::from_value(keys).map_err(|error| {
        invalid(format!("host settings cannot be so: {error}"), "`taut host settings` shows all of them")
    })?;
    settings.coalescing().map_err(|error| {
        invalid(
            format!(
                "Net.CoalesceScheme = {} and Net.CoalesceParams = {} do not go together: {error}",
                settings.coalesce_scheme, settings.coalesce_params
            ),
            "set both in one go; an empty Net.CoalesceParams= stands for the scheme's default",
        )
    })?;
    Ok(settings)
}

#[cfg(test)]
mod tests {
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
        assert!(refused.contains("rbc and Net.CoalesceParams = 16 do not go together"), "{refused}");
        assert!(refused.contains("hint: set both"), "{refused}");
        let back = change(&fixed, &[("Net.CoalesceScheme", ""), ("Net.CoalesceParams", "")]).unwrap();
        assert_eq!(back, rbc);
    }

    #[test]
    fn a_setting_that_is_not_there_is_named() {
        let refused = change(&HostSettings::default(), &[("Net.CoalesceSceme", "rbc")]).unwrap_err();
        assert!(refused.contains("`Net.CoalesceSceme`"), "{refused}");
        assert!(refused.contains("`Net.CoalesceScheme`"), "{refused}");
    }
}
