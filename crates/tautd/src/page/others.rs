//! The pages of the host, sockets, events, the audit record and the guide.

use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use taut_api::audit::AuditEntry;
use taut_api::check::Profile;
use taut_api::error::ErrorKind;
use taut_api::event::Event;
use taut_api::route::Vm;
use taut_api::vmci::VmciConnection;
use taut_api::{ApiError, path};
use taut_page::guide::Document;
use taut_page::view::events::{self, Filter};
use taut_page::view::host::{self, Host};
use taut_page::view::{audit, guide, sockets};

use super::api::Api;
use super::shown::Shown;

/// Entries of the audit record on its page.
const ENTRIES: usize = 300;

/// Query of the host's page.
#[derive(Debug, serde::Deserialize)]
pub(super) struct HostQuery {
    #[serde(default)]
    profile: Option<String>,
}

pub(super) async fn host(api: Api, query: Result<Query<HostQuery>, QueryRejection>) -> Shown {
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

pub(super) async fn sockets(api: Api) -> Shown {
    let frame = api.frame().await;
    let page = async {
        let vms: Vec<Vm> = api.get(path::VMS).await?;
        let connections: Vec<VmciConnection> = api.get(path::VMCI_CONNECTIONS).await?;
        Ok(sockets::page(&frame, &vms, &connections))
    };
    let page = page.await;
    Shown::of(&frame, page)
}

/// Query of the event log. A form sends fields that are empty, too.
#[derive(Debug, serde::Deserialize)]
pub(super) struct EventQuery {
    #[serde(default)]
    level: String,
    #[serde(default)]
    newest: String,
}

pub(super) async fn events(api: Api, query: Result<Query<EventQuery>, QueryRejection>) -> Shown {
    let frame = api.frame().await;
    let page = async {
        let filter = filter(query)?;
        let (newest, least) = (filter.newest, filter.least.as_str());
        let events: Vec<Event> = api.get(&format!("{}?newest={newest}&level={least}", path::EVENTS)).await?;
        Ok(events::page(&frame, &events, filter))
    };
    let page = page.await;
    Shown::of(&frame, page)
}

fn filter(query: Result<Query<EventQuery>, QueryRejection>) -> Result<Filter, ApiError> {
    let bad = |message| {
        let hint = format!("write level=info, warning or error, and newest=1 to {}", Filter::MOST);
        ApiError::new(ErrorKind::Invalid, message, hint)
    };
    let Query(EventQuery { level, newest }) =
        query.map_err(|error| bad("the query cannot be read").because(&error))?;
    let mut filter = Filter::default();
    if !level.is_empty() {
        filter.least = events::level(&level).ok_or_else(|| bad("there is no such level"))?;
    }
    if !newest.is_empty() {
        let number = newest.parse().ok().filter(|number| (1..=Filter::MOST).contains(number));
        filter.newest = number.ok_or_else(|| bad("so many events cannot be listed"))?;
    }
    Ok(filter)
}

pub(super) async fn reasons(api: Api) -> Shown {
    Shown::page(guide::page(&api.frame().await, Document::Reasons))
}

pub(super) async fn checks(api: Api) -> Shown {
    Shown::page(guide::page(&api.frame().await, Document::Checks))
}

/// Query of the audit record.
#[derive(Debug, serde::Deserialize)]
pub(super) struct AuditQuery {
    #[serde(default)]
    refused: bool,
}

pub(super) async fn audit(api: Api, query: Result<Query<AuditQuery>, QueryRejection>) -> Shown {
    let frame = api.frame().await;
    let page = async {
        let Query(AuditQuery { refused }) = query.map_err(|error| {
            ApiError::new(ErrorKind::Invalid, "the query cannot be read", "write refused=true")
                .because(&error)
        })?;
        let address = format!("{}?lines={ENTRIES}&refused={refused}", path::AUDIT);
        let entries: Vec<AuditEntry> = api.get(&address).await?;
        Ok(audit::page(&frame, &entries, refused))
    };
    let page = page.await;
    Shown::of(&frame, page)
}
