//! Addresses that guests' drivers have set for their cards, as QEMU tells them.
//!
//! A thread for each QEMU with virtio cards holds a connection to a monitor that is for events
//! alone. QEMU tells a change once, and again only after it was asked for the addresses.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use taut_api::event::Level;
use taut_api::vm::{NicModel, VmKind};
use taut_api::{MacAddr, Name};
use taut_plan::Owner;
use taut_plan::network::addresses::is_rejected;
use taut_vm::launch::address;
use taut_vm::qmp::{Qmp, QmpError};

use super::Reconciler;
use crate::inbox::Message;
use crate::monitor_thread;

/// Maximum time that QEMU's monitor may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time after which a lost connection is made again.
const RETRY: Duration = Duration::from_secs(5);
/// Shortest time between two questions. It doubles with each change up to [`LOOK`]: a guest may
/// change its addresses as often as it likes, and each change configures the fabric.
const PAUSE: Duration = Duration::from_millis(250);
/// Time without a change after which the pause is the shortest again. It is longer than [`LOOK`],
/// so a guest that goes on does not reach it.
const QUIET: Duration = Duration::from_secs(15);
/// Longest time between two questions. QEMU does not tell that a driver has reset a card, which
/// restores the configured address.
const LOOK: Duration = Duration::from_secs(5);

/// The threads that watch addresses, by VM, with the number of the VM's process.
#[derive(Debug, Default)]
pub(super) struct AddressWatches(BTreeMap<Name, (u32, JoinHandle<()>)>);

impl Reconciler {
    /// Starts a thread for each QEMU with virtio cards that has none. A thread ends with its
    /// connection.
    pub(super) fn watch_addresses(&mut self) {
        let vms = self.board.lock().observed.vms.clone();
        self.address_watches.0.retain(|name, (pid, thread)| {
            let process = vms.get(name).and_then(|vm| vm.process.as_ref());
            process.is_some_and(|process| process.pid == *pid) && !thread.is_finished()
        });
        let state = self.store.state();
        for (name, vm) in vms {
            let Some(process) = vm.process else { continue };
            let nics = state.desired.vms.get(&name).map_or(&[][..], |vm| &vm.vm.nics);
            let has_virtio = nics.iter().any(|nic| nic.model == NicModel::Virtio);
            let is_watched = self.address_watches.0.contains_key(&name);
            let operation = format!("vm/{name}/addresses");
            let can_tell = process.kind == VmKind::Qemu && process.ready && has_virtio;
            if !can_tell || is_watched || !self.retries.is_due(&operation) {
                continue;
            }
            self.retries.delay(&operation, RETRY);
            let (monitor, inbox) = (self.vms.paths(&name).events(), self.inbox.clone());
            if !monitor.exists() {
                // An earlier version of the daemon has started it.
                continue;
            }
            let (pid, cards, vm) = (process.pid, nics.len(), name.clone());
            let thread = monitor_thread::try_spawn(&name, move || {
                let tell = |addresses| inbox.send(Message::Addresses(vm.clone(), pid, addresses));
                let Err(error) = follow(&monitor, cards, tell);
                // Its process has ended, or does not answer in time.
                tracing::debug!(%vm, %error, "the addresses of its cards are not followed");
            });
            match thread {
                Ok(thread) => drop(self.address_watches.0.insert(name, (pid, thread))),
                Err(error) => {
                    tracing::warn!(vm = %name, %error, "the addresses of its cards cannot be followed");
                }
            }
        }
    }

    /// Notes the addresses of a VM's cards, and raises an event for each that has changed.
    pub(super) fn note_addresses(&mut self, vm: &Name, pid: u32, addresses: &[Option<MacAddr>]) {
        let Some(before) = self.vms.record_addresses(vm, pid, addresses) else { return };
        let state = self.store.state();
        for (owner, portgroup, configured) in state.desired.ports() {
            let Owner::Nic(name, index) = &owner else { continue };
            let Some(Some(now)) = addresses.get(*index).filter(|_| name == vm).copied() else { continue };
            let before = before.get(*index).copied().flatten().unwrap_or(configured);
            if now == before {
                continue;
            }
            let (level, outcome) = if now == configured {
                (Level::Info, "which is the configured one".to_owned())
            } else if is_rejected(&state.desired, portgroup, configured, now) {
                let hint = format!("hint: taut portgroup set {portgroup} --mac-changes");
                let outcome = format!(
                    "which port group {portgroup} rejects; its port receives no frames until the guest \
                     sets {configured} again\n{hint}"
                );
                (Level::Warning, outcome)
            } else {
                (Level::Info, format!("which port group {portgroup} accepts"))
            };
            let message = format!("the guest has changed its address from {before} to {now}, {outcome}");
            self.store.event(level, &owner.to_string(), "nic.address-changed", &message);
        }
    }
}

/// Tells the addresses of the first `cards` cards, and again when they change, until the connection
/// ends.
fn follow(monitor: &Path, cards: usize, tell: impl Fn(Vec<Option<MacAddr>>)) -> Result<Infallible, QmpError> {
    let mut qmp = Qmp::connect(monitor, PATIENCE)?;
    let mut told = None;
    let mut pause = PAUSE;
    let mut changed = None;
    loop {
        let asked = Instant::now();
        let addresses = address::read(&mut qmp, cards)?;
        if told.as_ref() != Some(&addresses) {
            pause = changed.replace(asked).map_or(PAUSE, |last| pause_after(pause, asked - last));
            tell(addresses.clone());
            told = Some(addresses);
        }
        address::await_change(&mut qmp, LOOK)?;
        thread::sleep(pause.saturating_sub(asked.elapsed()));
    }
}

/// Returns the pause that follows a change. `before` is the pause until then, and `since` the time
/// since the last change.
fn pause_after(before: Duration, since: Duration) -> Duration {
    if since < QUIET { (before * 2).min(LOOK) } else { PAUSE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_keeps_changing_its_address_is_asked_less_and_less_often() {
        let mut pause = PAUSE;
        for expected in [500, 1000, 2000, 4000, 5000, 5000] {
            // The guest changes the address at once.
            pause = pause_after(pause, pause);
            assert_eq!(pause, Duration::from_millis(expected));
        }
        assert_eq!(pause_after(pause, QUIET), PAUSE);
    }
}
