//! The host's part of a plan: settled, reported, restored.

use std::collections::BTreeMap;
use std::path::Path;

use taut_api::ApiError;
use taut_api::enforcement::{HostPlan, HostReport};
use taut_api::error::ErrorKind;
use taut_api::event::Level;
use taut_host::kernel::topology;

use super::{Reconciler, report};

impl Reconciler {
    /// Notes on the board what the host offers for enforcement, and what an earlier daemon left.
    pub(super) fn note_host(&self) {
        let root = Path::new("/");
        let mut seen = self.board.lock();
        seen.observed.host.controllers = self.enforcer.controllers();
        seen.observed.host.huge_pages = topology::free_huge_pages(root);
        seen.observed.host.swap_total = topology::swap_total(root);
        seen.report = self.enforcer.report().clone();
    }

    /// Notes on the board whether the host is restored, and, if vCPUs are bound, the on-line pCPUs.
    pub(super) fn observe_host(&mut self) {
        let revision = self.store.state().revision;
        self.restored_at = self.restored_at.filter(|at| *at == revision);
        let cpus = if self.enforcer.places_vcpus() { topology::online(Path::new("/")).ok() } else { None };
        let mut seen = self.board.lock();
        seen.observed.restored = self.restored_at.is_some();
        if let Some(cpus) = cpus {
            seen.observed.host.cpus = cpus;
        }
    }

    /// Makes the host as the plan wants it, and raises events for what has changed.
    pub(super) fn settle_host(&mut self, plan: &HostPlan) -> HostReport {
        let before = self.enforcer.report().clone();
        let now = self.enforcer.settle(plan);
        report::raise(&self.store, plan, &before, &now);
        for unrecorded in &now.unrecorded {
            tracing::warn!(%unrecorded, "not changed on the host, because the ledger cannot be kept");
        }
        for problem in &now.device_problems {
            tracing::warn!(problem, "a device is not given back yet");
        }
        self.board.lock().report = now.clone();
        now
    }

    /// Puts back everything that was changed on the host, and leaves it so until a document
    /// changes.
    pub(super) fn restore_host(&mut self) -> Result<(), ApiError> {
        self.restored_at = Some(self.store.state().revision);
        let plan = self.plan();
        let now = self.settle_host(&plan.host);
        if let Some(unrecorded) = now.unrecorded.into_iter().next() {
            let message = "what is changed on the host for VMs cannot be noted, so nothing is changed";
            let hint = "make room in the state directory, or remove the file that the cause names if it is \
                        damaged";
            let error = ApiError::new(ErrorKind::Unavailable, message, hint);
            return Err(ApiError { causes: unrecorded.causes, ..error });
        }
        let message = "everything that was changed for latency, shares, limits and reservations is put back";
        self.store.event(Level::Info, "host", "latency.restored", message);
        Ok(())
    }

    /// Puts everything back, devices too, when the daemon ends and no VM runs. Network cards keep
    /// their settings, as uplinks stay attached, unless they are given back as well.
    pub(super) fn leave_host(&mut self, and_cards: bool) {
        if self.vms.any_running() {
            return;
        }
        let cards = if and_cards { BTreeMap::new() } else { self.store.state().desired.card_settings() };
        let now = self.settle_host(&HostPlan { cards, ..HostPlan::default() });
        if !now.unrecorded.is_empty() {
            tracing::warn!("the host could not be put back: the next daemon does it");
        }
    }
}
