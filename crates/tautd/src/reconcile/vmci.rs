//! The sockets that lead to VMs' VMCI devices, and devices that have lost the fabric.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use taut_api::Name;
use taut_api::event::Level;
use taut_api::fabric::PortId;
use taut_api::fabric::message::Attachment;
use taut_plan::Owner;
use taut_vm::launch::RunPaths;
use taut_vm::qmp::{Qmp, QmpError};
use taut_vm::replug::{self, Replug};

use super::{Message, Reconciler};
use crate::listen::listen;
use crate::{board::Board, external, store::Store};

/// How long QEMU's monitor may take to answer, and a guest to let go of a device: the monitor serves one at a time, and
/// somebody may want to press the power button.
const MONITOR_PATIENCE: Duration = Duration::from_secs(1);
/// How soon a device without a session is looked at: one that has just started is about to connect.
const REPLUG_FIRST: Duration = Duration::from_millis(500);
/// How soon one that could not be replaced is tried again.
const REPLUG_AGAIN: Duration = Duration::from_secs(2);

impl Reconciler {
    /// QEMU connects to this socket while it starts.
    pub(super) fn listen_for_vmci(&self, vm: &Name, port: PortId) {
        if let Some(listener) = self.listen_at(vm, RunPaths::vmci_front) {
            self.fabric.attach(port, Attachment::Listening, listener);
            // The VM may be started now.
            self.inbox.send(Message::Wake);
        }
    }

    pub(super) fn connect_vmci(&self, vm: &Name, port: PortId) {
        if !self.ready() {
            return;
        }
        match external::connect_now(&self.vms.paths(vm).vmci_front()) {
            Ok(socket) => self.fabric.attach(port, Attachment::Connected, socket),
            Err(error) => tracing::debug!(%vm, %error, "the VMCI device's socket is not ready"),
        }
    }

    pub(super) fn listen_for_host(&self, vm: &Name, port: PortId) {
        if let Some(listener) = self.listen_at(vm, RunPaths::vmci) {
            self.fabric.listen_for_host(port, listener);
        }
    }

    /// Listens at one of a VM's sockets; says what is wrong, once.
    fn listen_at(&self, vm: &Name, socket: fn(&RunPaths) -> PathBuf) -> Option<std::os::fd::OwnedFd> {
        if !self.ready() {
            return None;
        }
        let listening = self.vms.made_paths(vm).and_then(|paths| {
            let path = socket(&paths);
            listen(&path)
                .map_err(|error| io::Error::other(format!("cannot listen at {}: {error}", path.display())))
        });
        report(&self.board, &self.store, vm, "vmci.no-socket", listening)
    }

    /// Has QEMU put another device in the place of one that will never connect again. A thread does it: QEMU and the guest may
    /// be slow.
    pub(super) fn replug_vmci(&mut self, vm: &Name) {
        let owner = Owner::Vmci(vm.clone()).to_string();
        let now = Instant::now();
        let next = self.retries.entry(owner).or_insert(now + REPLUG_FIRST);
        if now < *next {
            return;
        }
        *next = now + REPLUG_AGAIN;
        let (paths, vm) = (self.vms.paths(vm), vm.clone());
        let (board, store, inbox) = (self.board.clone(), self.store.clone(), self.inbox.clone());
        std::thread::spawn(move || {
            let replugged = Qmp::connect(&paths.qmp(), MONITOR_PATIENCE)
                .and_then(|mut qmp| replug::vmci(&mut qmp, &paths.vmci_front(), MONITOR_PATIENCE));
            match report(
                &board,
                &store,
                &vm,
                "vmci.not-replugged",
                replugged.map_err(|error| in_full(&error)),
            ) {
                Some(Replug::Done) => {
                    let message = "the device had lost the fabric and was plugged in again: its connections are reset, \
                                   listening sockets in the guest go on";
                    store.event(Level::Warning, &Owner::Vmci(vm).to_string(), "vmci.replugged", message);
                    inbox.send(Message::Wake);
                }
                Some(Replug::Held) => tracing::debug!(%vm, "the guest has not let go of its VMCI device yet"),
                Some(Replug::Connected) | None => {}
            }
        });
    }
}

/// The error with its cause, in one line.
fn in_full(error: &QmpError) -> io::Error {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    io::Error::other(format!("{error}{cause}"))
}

/// What came of it; an error becomes an event when it is news.
fn report<T>(board: &Board, store: &Store, vm: &Name, kind: &str, result: io::Result<T>) -> Option<T> {
    let owner = Owner::Vmci(vm.clone()).to_string();
    match result {
        Ok(value) => {
            board.lock().problems.remove(&owner);
            Some(value)
        }
        Err(error) => {
            let problem = error.to_string();
            let before = board.lock().problems.insert(owner.clone(), problem.clone());
            if before.as_ref() != Some(&problem) {
                store.event(Level::Warning, &owner, kind, &problem);
            }
            None
        }
    }
}
