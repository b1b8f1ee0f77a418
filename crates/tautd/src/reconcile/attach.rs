//! Attachments of network namespaces to ports, and what all attachments have in common.

use std::time::Duration;

use taut_api::error::ErrorKind;
use taut_api::event::Level;
use taut_api::fabric::PortId;
use taut_api::fabric::message::Attachment;
use taut_api::network::NetnsSpec;
use taut_api::{ApiError, Name};
use taut_plan::Owner;
use taut_plan::facts::NetnsSeen;
use taut_plan::network::mtu::vswitch_mtu;

use super::Reconciler;
use crate::netns;

/// Time after which a failed attachment is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Returns whether taut made the namespace that has the attachment's name now.
fn is_ours(seen: &NetnsSeen) -> bool {
    let same = |before: &String| netns::identity(&seen.spec.netns).as_ref() == Some(before);
    seen.made_netns && seen.namespace.as_ref().is_none_or(same)
}

/// Returns the error for an attached namespace that somebody deleted. taut does not make it again,
/// because it cannot know whether it is wanted.
fn namespace_deleted(name: &Name, spec: &NetnsSpec) -> ApiError {
    let netns = &spec.netns;
    ApiError::new(
        ErrorKind::Unavailable,
        format!("network namespace `{netns}` was deleted"),
        format!("make it again (ip netns add {netns}), or detach it: taut netns detach {name}"),
    )
}

impl Reconciler {
    /// Calls `attach`, which returns whether it is done, unless it failed a moment ago. Raises an
    /// event for success and for each new problem.
    pub(super) fn try_attaching(
        &mut self,
        owner: &Owner,
        attach: impl FnOnce(&mut Self) -> Result<bool, ApiError>,
    ) {
        let document = owner.document();
        if !self.is_fabric_ready() || !self.retries.is_due(&document) {
            return;
        }
        let kind = match owner {
            Owner::Netns(_) => "netns",
            Owner::Netdev(_) => "netdev",
            Owner::Uplink(_) => "uplink",
            Owner::Nic(..) | Owner::Vmci(_) | Owner::External(_) => "external",
        };
        match attach(self) {
            Ok(false) => {}
            Ok(true) => {
                self.retries.reset(&document);
                self.board.lock().problems.remove(&document);
                self.store.event(Level::Info, &document, &format!("{kind}.attached"), "attached to its port");
            }
            Err(error) => {
                self.retries.delay(&document, RETRY);
                self.tell_problem(&document, &format!("{kind}.not-attached"), &error.to_string());
            }
        }
    }

    /// Notes a problem of a document, and raises an event unless it is known already.
    pub(super) fn tell_problem(&self, document: &str, kind: &str, problem: &str) {
        if self.board.is_new_problem(document, problem) {
            self.store.event(Level::Warning, document, kind, problem);
        }
    }

    /// Attaches a namespace's TAP device to a port. What is about to be made is in the store first.
    pub(super) fn attach_netns(&self, name: &Name, port: PortId) -> Result<bool, ApiError> {
        let state = self.store.state();
        let Some(spec) = state.desired.netns.get(name) else { return Ok(false) };
        let owner = Owner::Netns(name.clone());
        let before = self.board.lock().observed.netns.get(name).cloned();
        let exists = netns::exists(&spec.netns);
        if before.as_ref().is_some_and(|before| before.lost) && !exists {
            return Err(namespace_deleted(name, spec));
        }
        let made_netns = !exists || before.is_some_and(|before| is_ours(&before));
        let Some(mtu) = vswitch_mtu(&state.desired, &owner) else { return Ok(false) };
        let mut seen = NetnsSeen { spec: spec.clone(), made_netns, namespace: None, mtu: None, lost: false };
        self.note_netns(name, &seen)?;
        let tap = netns::attach(spec, spec.mac.unwrap_or_else(|| owner.derived_mac()), mtu)?;
        seen.mtu = Some(mtu);
        seen.namespace = netns::identity(&spec.netns);
        self.note_netns(name, &seen)?;
        self.fabric.attach(port, Attachment::Tap { uso: tap.uso }, vec![tap.device]);
        Ok(true)
    }

    /// Sets the MTU of an attached TAP device to that of its vSwitch.
    pub(super) fn set_netns_mtu(&mut self, name: &Name) {
        let owner = Owner::Netns(name.clone());
        let subject = format!("{owner}/mtu");
        let seen = self.board.lock().observed.netns.get(name).cloned();
        let mtu = vswitch_mtu(&self.store.state().desired, &owner);
        let Some((mut seen, mtu)) = seen.zip(mtu).filter(|_| self.retries.is_due(&subject)) else { return };
        seen.mtu = Some(mtu);
        let set = netns::set_mtu(&seen.spec, mtu).map_err(|error| error.to_string());
        let set = set.and_then(|()| self.note_netns(name, &seen).map_err(|error| error.to_string()));
        if let Err(error) = set {
            self.retries.delay(&subject, RETRY);
            if self.board.is_new_problem(&subject, &error) {
                let message = format!("its MTU cannot be set to {mtu}: {error}; taut tries again");
                self.store.event(Level::Warning, &owner.document(), "netns.mtu", &message);
            }
            return;
        }
        self.retries.reset(&subject);
        self.board.lock().problems.remove(&subject);
    }

    /// Records an attachment in the store and on the board.
    fn note_netns(&self, name: &Name, seen: &NetnsSeen) -> Result<(), ApiError> {
        self.store.remember(&Owner::Netns(name.clone()).document(), seen)?;
        self.board.lock().observed.netns.insert(name.clone(), seen.clone());
        Ok(())
    }

    /// Looks whether each attached namespace still has its interface, and marks those attachments
    /// that lost it. Returns whether there are any.
    pub(super) fn look_for_interfaces(&mut self) -> bool {
        let mut are_lost = false;
        let state = self.store.state();
        let attached: Vec<_> = {
            let observed = &self.board.lock().observed;
            let is_attached = |name: &Name| {
                let port = state.desired.numbers.port(&Owner::Netns(name.clone()));
                port.is_some_and(|port| observed.attached(port))
            };
            let attached = observed.netns.iter().filter(|(name, seen)| !seen.lost && is_attached(name));
            attached.map(|(name, seen)| (name.clone(), seen.clone())).collect()
        };
        for (name, seen) in attached {
            let owner = Owner::Netns(name.clone());
            // An error is no evidence: the namespace may be about to be made.
            if netns::has_device(&seen.spec).unwrap_or(true) {
                continue;
            }
            if let Some(seen) = self.board.lock().observed.netns.get_mut(&name) {
                seen.lost = true;
            }
            are_lost = true;
            let message = format!(
                "its interface `{}` is gone: somebody deleted it, or network namespace `{}`",
                seen.spec.ifname, seen.spec.netns
            );
            self.store.event(Level::Warning, &owner.document(), "netns.lost", &message);
        }
        are_lost
    }

    /// Removes a namespace's TAP device, and the namespace if taut made it.
    pub(super) fn detach_netns(&mut self, name: &Name) {
        let Some(mut seen) = self.board.lock().observed.netns.get(name).cloned() else { return };
        seen.made_netns = is_ours(&seen);
        if seen.made_netns && self.hand_namespace_on(name, &seen) {
            seen.made_netns = false;
        }
        let detached = netns::detach(&seen.spec, seen.made_netns);
        self.forget(&Owner::Netns(name.clone()), "netns", detached);
    }

    /// Notes a namespace made for one attachment as made for another one that uses it, if any.
    fn hand_namespace_on(&self, name: &Name, seen: &NetnsSeen) -> bool {
        let mut board = self.board.lock();
        let shares =
            |(other, found): &(&Name, &mut NetnsSeen)| *other != name && found.spec.netns == seen.spec.netns;
        let Some((other, heir)) = board.observed.netns.iter_mut().find(shares) else { return false };
        heir.made_netns = true;
        let (other, heir) = (other.clone(), heir.clone());
        board.observed.netns.entry(name.clone()).and_modify(|seen| seen.made_netns = false);
        drop(board);
        if let Err(error) = self.store.remember(&Owner::Netns(other).document(), &heir) {
            let netns = &seen.spec.netns;
            tracing::warn!(%error, netns, "that taut made the namespace could not be noted");
        }
        true
    }

    /// Forgets an attachment that was undone. If it was not, it stays known and is tried again.
    pub(super) fn forget<E: ToString>(&mut self, owner: &Owner, kind: &str, undone: Result<(), E>) {
        let document = owner.document();
        let undone = undone.map_err(|error| error.to_string());
        let forgotten = undone.and_then(|()| self.store.forget(&document).map_err(|error| error.to_string()));
        if let Err(problem) = forgotten {
            self.tell_problem(&document, &format!("{kind}.not-detached"), &problem);
            return;
        }
        let mtu = format!("{owner}/mtu");
        self.retries.reset(&mtu);
        let mut seen = self.board.lock();
        seen.problems.remove(&document);
        // An old problem would keep the same one of the next attachment from being told.
        seen.problems.remove(&mtu);
        match owner {
            Owner::Netns(name) => drop(seen.observed.netns.remove(name)),
            Owner::Netdev(name) => drop(seen.observed.netdevs.remove(name)),
            Owner::Uplink(name) => drop(seen.observed.uplinks.remove(name)),
            Owner::External(name) => {
                seen.observed.external.remove(name);
                // Its user has taken the front end away: another one may come.
                if let Some(port) = self.store.state().desired.numbers.port(owner) {
                    seen.observed.fabric.quarantined.remove(&port);
                }
            }
            Owner::Nic(..) | Owner::Vmci(_) => {}
        }
        drop(seen);
        self.retries.reset(&document);
        self.store.event(Level::Info, &document, &format!("{kind}.detached"), "detached from its port");
    }
}
