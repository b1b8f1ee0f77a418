//! The status of an entry, as reported to `tautd`.

use taut_api::link::{Link, LinkReason};

use super::Entry;

/// Advice for a guest with a broken ring. A driver that starts again sets up new rings.
const RESET: &str = "load the card's driver in the guest again, or restart the VM";

/// Rest of the reason that an uplink with a link is not used.
const NO_PATH: &str = ", by the probes of its team (no beacon of another uplink, or no answer of the gateway, for 2.5 s \
                       and until 10 s after the next one); hint: look at the switch at its other end";

/// The state of a port that `tautd` is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::control) struct Status {
    pub(in crate::control) link: Link,
    /// The reason why the link is not up, or leads nowhere.
    pub(in crate::control) reason: Option<String>,
    /// Something is attached, or a front end can connect.
    pub(in crate::control) attached: bool,
    /// The reason why memory for queue pairs is not used.
    pub(in crate::control) unused_queue_pairs: Option<String>,
}

impl Entry {
    /// The status, if it differs from the one reported last.
    pub(in crate::control) fn changed_status(&mut self) -> Option<Status> {
        let status = self.status();
        if self.reported.as_ref() == Some(&status) {
            return None;
        }
        self.reported = Some(status.clone());
        Some(status)
    }

    /// Makes the next status be reported even if it has not changed.
    pub(in crate::control) fn forget_reported(&mut self) {
        self.reported = None;
    }

    fn status(&self) -> Status {
        let attached = self.session.is_some() || self.listener.is_some() || self.plugged.is_some();
        let fault = self.session.as_ref().and_then(|session| session.fault());
        let (link, reason) = match fault {
            Some(fault) => (Link::Broken, Some(format!("{fault}; hint: {RESET}"))),
            None if self.device.is_up() => (Link::Up, self.has_no_path.then(no_path)),
            None => (Link::Down, Some(self.why_down())),
        };
        Status { link, reason, attached, unused_queue_pairs: self.unused_queue_pairs.clone() }
    }

    fn why_down(&self) -> String {
        match (&self.session, &self.lost) {
            (Some(session), _) if session.record().memory.is_empty() => without_memory(self.kind.owner()),
            (Some(_), _) => format!("{} its rings", LinkReason::DriverNotStarted.as_str()),
            (None, Some(reason)) => reason.clone(),
            (None, None) if self.listener.is_some() => LinkReason::NotConnected.as_str().to_owned(),
            (None, None) => LinkReason::NothingAttached.as_str().to_owned(),
        }
    }
}

fn no_path() -> String {
    LinkReason::NoPath.as_str().to_owned() + NO_PATH
}

/// Why the port of a front end that has shared no memory is down. QEMU silently omits memory that
/// it cannot share, which looks like an idle driver. All memory of VMs that taut starts is shared.
fn without_memory(owner: &str) -> String {
    let silent = LinkReason::DriverNotStarted.as_str();
    if owner.starts_with("vm/") {
        return silent.to_owned();
    }
    let unshared = LinkReason::MemoryNotShared.as_str();
    format!(
        "{unshared}: {silent}, or its VM's memory is private; hint: QEMU needs memory-backend-memfd with share=on"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_hour_only_front_ends_that_taut_did_not_start_get_advice_about_their_memory() {
        for owner in ["vm/m1/vmci", "vm/m1/nic0"] {
            assert_eq!(without_memory(owner), "the guest's driver has not started");
        }
        assert!(without_memory("external/gen").contains("share=on"));
    }
}
