//! The pages of the host, sockets, events and the audit record.

use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use taut_api::audit::AuditEntry;
use taut_api::error::ErrorKind;
use taut_api::event::{Event, Level};
use taut_api::route::Vm;
use taut_api::vmci::VmciConnection;
use taut_api::{ApiError, path};
use taut_page::view::host::{self, Host};
use taut_page::view::{audit, events, sockets};

use super::api::Api;
use super::shown::Shown;

/// Events that are asked for at a time.
const EVENTS: usize = 10_000;
/// Entries of the audit record on its page.
const ENTRIES: usize = 300;

pub(super) async fn host(api: Api) -> Shown {
    let frame = api.frame().await;
    let page = async {
        let view = Host {
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

/// Query of the event log.
#[derive(Debug, serde::Deserialize)]
pub(super) struct EventQuery {
    #[serde(default)]
    level: Option<String>,
}

pub(super) async fn events(api: Api, query: Result<Query<EventQuery>, QueryRejection>) -> Shown {
    let frame = api.frame().await;
    let page = async {
        let bad = |message| ApiError::new(ErrorKind::Invalid, message, "write level=info, warning or error");
        let Query(query) = query.map_err(|error| bad("the query cannot be read").because(&error))?;
        let least = match query.level {
            Some(word) => events::level(&word).ok_or_else(|| bad("there is no such level"))?,
            None => Level::Info,
        };
        Ok(events::page(&frame, &newest(&api).await?, least))
    };
    let page = page.await;
    Shown::of(&frame, page)
}

/// Returns the newest events. The API lists from the oldest on.
async fn newest(api: &Api) -> Result<Vec<Event>, ApiError> {
    let mut all = Vec::new();
    loop {
        let since = all.last().map_or(0, |event: &Event| event.seq);
        let more: Vec<Event> = api.get(&format!("{}?since={since}&limit={EVENTS}", path::EVENTS)).await?;
        if more.len() < EVENTS {
            all.extend(more);
            return Ok(all);
        }
        all = more;
    }
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
