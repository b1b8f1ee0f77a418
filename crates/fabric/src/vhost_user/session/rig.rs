//! Admission of what a front end brings, for the fuzz targets.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use taut_api::fabric::config::FrontEndRules;
use taut_api::fabric::session::MemoryRecord;

use crate::vhost_user::error::SessionError;

/// Admits an event descriptor as a session does.
pub fn admit_event(rules: &FrontEndRules, fd: OwnedFd) -> Result<Arc<OwnedFd>, SessionError> {
    super::admission::admit_event(rules, fd)
}

/// Checks guest memory as a session does.
pub fn check_memory(
    rules: &FrontEndRules,
    regions: &[MemoryRecord],
    files: &[OwnedFd],
) -> Result<(), SessionError> {
    super::admission::check_memory(rules, regions, files)
}
