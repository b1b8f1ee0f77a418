//! Admission of what a front end brings, for the fuzz targets.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use taut_api::fabric::ForeignFd;
use taut_api::fabric::config::FrontEndRules;
use taut_api::fabric::session::MemoryRecord;

use crate::vhost_user::error::SessionError;

/// Admits an event descriptor as a session does.
pub fn admit_event(rules: &FrontEndRules, fd: OwnedFd) -> Result<Arc<ForeignFd>, SessionError> {
    super::admission::admit_event(rules, ForeignFd::own(fd))
}

/// Checks guest memory as a session does.
pub fn check_memory(
    rules: &FrontEndRules,
    regions: &[MemoryRecord],
    files: Vec<OwnedFd>,
) -> Result<(), SessionError> {
    let mut files: Vec<ForeignFd> = files.into_iter().map(ForeignFd::own).collect();
    super::admission::check_memory(rules, regions, &mut files)
}
