//! The page of the host.

use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use taut_api::check::Profile;
use taut_api::error::ErrorKind;
use taut_api::{ApiError, path};
use taut_page::view::host::{self, Host};

use super::api::Api;
use super::shown::Shown;

/// Query of the host's page.
#[derive(Debug, serde::Deserialize)]
pub(super) struct HostQuery {
    #[serde(default)]
    profile: Option<String>,
}

pub(super) async fn show(api: Api, query: Result<Query<HostQuery>, QueryRejection>) -> Shown {
    let frame = api.frame().await;
    let page = async {
        let bad = |message| {
            ApiError::new(ErrorKind::Invalid, message, "write profile=latency, throughput or dense")
        };
        let Query(query) = query.map_err(|error| bad("the query cannot be read").because(&error))?;
        let profile: Profile = match query.profile {
            Some(word) => word.parse().map_err(|_| bad("there is no such profile"))?,
            None => Profile::default(),
        };
        let view = Host {
            checks: api.get(&format!("{}?profile={profile}", path::HOST_CHECK)).await,
            info: api.get(path::HOST).await?,
            tune: api.get(path::HOST_TUNE).await?,
            daemon: api.get(path::DAEMON).await?,
            vms: api.get(path::VMS).await?,
        };
        Ok(host::page(&frame, &view))
    };
    let page = page.await;
    Shown::of(&frame, page)
}
