//! The page of the audit record.

use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use taut_api::audit::AuditEntry;
use taut_api::error::ErrorKind;
use taut_api::{ApiError, path};
use taut_page::view::audit;

use super::api::Api;
use super::shown::Shown;

/// Entries of the record on its page.
const ENTRIES: usize = 300;

/// Query of the audit record.
#[derive(Debug, serde::Deserialize)]
pub(super) struct AuditQuery {
    #[serde(default)]
    refused: bool,
}

pub(super) async fn show(api: Api, query: Result<Query<AuditQuery>, QueryRejection>) -> Shown {
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
