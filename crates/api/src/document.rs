//! What the store keeps and the API returns: a named, revisioned document.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Name;

/// Desired state (`spec`) of one resource beside what was last observed of it (`status`).
///
/// `revision` is the store's number of the write that made this `spec`: it grows with every acknowledged write
/// to any resource and never repeats, so two documents with the same revision are the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Document<Spec, Status> {
    /// Unique among resources of this kind.
    pub name: Name,
    /// Store revision of the last write to `spec`.
    pub revision: u64,
    /// What the user asked for.
    pub spec: Spec,
    /// What was observed; never written by the user.
    pub status: Status,
}
