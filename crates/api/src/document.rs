//! A named document with revision, as the store keeps it and the API returns it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Name;

/// Desired state (`spec`) of one resource and its last observed state (`status`).
///
/// `revision` is the store's number of the write that made this `spec`. It grows with every
/// acknowledged write to any resource and never repeats, so two documents with the same revision
/// are the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Document<Spec, Status> {
    /// Name, unique among resources of this kind.
    pub name: Name,
    /// Store revision of the last write to `spec`.
    pub revision: u64,
    /// Settings that the user asked for.
    pub spec: Spec,
    /// Observed state; never written by the user.
    pub status: Status,
}
