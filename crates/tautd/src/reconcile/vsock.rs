//! Sockets of VMs' VMCI devices, and devices that have lost the fabric.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::SocketType;
use taut_api::Name;
use taut_api::event::Level;
use taut_api::fabric::PortId;
use taut_api::fabric::message::Attachment;
use taut_plan::Owner;
use taut_vm::launch::RunPaths;
use taut_vm::qmp::Qmp;
use taut_vm::replug::{self, Replug};

use super::Reconciler;
use crate::board::{Board, queue_pairs_document};
use crate::inbox::Message;
use crate::listen::listen_at;
use crate::{external, monitor_thread, store::Store};

/// Maximum time for QEMU's monitor to answer, and for a guest to release a device. The monitor
/// serves one client at a time, and pressing the power button must not wait long.
const MONITOR_PATIENCE: Duration = Duration::from_secs(1);
/// Time that a device without a session has to connect by itself after a start.
const REPLUG_FIRST: Duration = Duration::from_millis(500);
/// Time after which replacing a device is tried again.
const REPLUG_AGAIN: Duration = Duration::from_secs(2);

impl Reconciler {
    /// Listens on the socket that QEMU connects to while it starts.
    pub(super) fn listen_for_vsock(&self, vm: &Name, port: PortId) {
        if let Some(listener) = self.listen_for(vm, RunPaths::vmci_front) {
            self.fabric.attach(port, Attachment::Listening, vec![listener]);
            // The next plan may start the VM.
            self.inbox.send(Message::Wake);
        }
    }

    /// Connects to the VMCI device of a microguest.
    pub(super) fn connect_vsock(&self, vm: &Name, port: PortId) {
        if !self.is_fabric_ready() {
            return;
        }
        match external::connect_now(&self.vms.paths(vm).vmci_front()) {
            Ok(socket) => self.fabric.attach(port, Attachment::Connected, vec![socket]),
            Err(error) => tracing::debug!(%vm, %error, "the VMCI device's socket is not ready"),
        }
    }

    /// Listens on the socket by which programs of the host reach the guest.
    pub(super) fn listen_for_host(&self, vm: &Name, port: PortId) {
        if let Some(listener) = self.listen_for(vm, RunPaths::vmci) {
            self.fabric.listen_for_host(port, listener);
        }
    }

    /// Takes memory for queue pairs from the processes of VMs, and hands it to their VMCI devices.
    /// Raises an event for each new problem; the next round tries again.
    pub(super) fn give_queue_pairs(&self) {
        for (vm, memory) in self.fabric.missing_queue_pairs() {
            // The process may have ended.
            let Some(opened) = self.vms.queue_pair_memory(&vm) else { continue };
            let problem = |error| {
                io::Error::other(format!(
                    "its queue pairs are not used, because their memory cannot be taken from its process: {error}; \
                     hint: stop and start it"
                ))
            };
            let document = queue_pairs_document(&vm);
            let opened = opened.map_err(problem);
            if let Some(fd) =
                report_of(&self.board, &self.store, (&vm, &document), "vmci.no-queue-pairs", opened)
            {
                self.fabric.give_queue_pairs(memory, fd);
            }
        }
    }

    /// Listens on one of a VM's sockets. Raises an event for each new problem.
    fn listen_for(&self, vm: &Name, socket: fn(&RunPaths) -> PathBuf) -> Option<std::os::fd::OwnedFd> {
        if !self.is_fabric_ready() {
            return None;
        }
        let listening = self.vms.made_paths(vm).and_then(|paths| {
            let path = socket(&paths);
            listen_at(&path, SocketType::STREAM)
                .map_err(|error| io::Error::other(format!("cannot listen at {}: {error}", path.display())))
        });
        report(&self.board, &self.store, vm, "vmci.no-socket", listening)
    }

    /// Replaces a device that will never connect again, on another thread since QEMU and the guest
    /// may be slow.
    pub(super) fn replug_vsock(&mut self, vm: &Name) {
        let owner = Owner::Vmci(vm.clone()).to_string();
        if !self.retries.is_due_after(&owner, REPLUG_FIRST) {
            return;
        }
        self.retries.delay(&owner, REPLUG_AGAIN);
        let (paths, vm) = (self.vms.paths(vm), vm.clone());
        let (board, store, inbox) = (self.board.clone(), self.store.clone(), self.inbox.clone());
        monitor_thread::spawn(&vm.clone(), "replacing its VMCI device", move || {
            let replugged = Qmp::connect(&paths.qmp(), MONITOR_PATIENCE)
                .and_then(|mut qmp| replug::vmci(&mut qmp, &paths.vmci_front(), MONITOR_PATIENCE));
            match report(
                &board,
                &store,
                &vm,
                "vmci.not-replugged",
                replugged.map_err(|error| io::Error::other(format!("{:#}", anyhow::Error::from(error)))),
            ) {
                Some(Replug::Done) => {
                    let message = "the device had lost the fabric and was plugged in again: its connections \
                                   are reset, listening sockets in the guest continue";
                    store.event(Level::Warning, &Owner::Vmci(vm).to_string(), "vmci.replugged", message);
                    inbox.send(Message::Wake);
                }
                Some(Replug::Held) => tracing::debug!(%vm, "the guest has not let go of its VMCI device yet"),
                Some(Replug::Connected) | None => {}
            }
        });
    }
}

/// Returns the value. Notes an error on the board and, unless it is known already, raises an event.
fn report<T>(board: &Board, store: &Store, vm: &Name, kind: &str, result: io::Result<T>) -> Option<T> {
    let document = Owner::Vmci(vm.clone()).to_string();
    report_of(board, store, (vm, &document), kind, result)
}

/// The same for a problem that is noted under another document than the device's.
fn report_of<T>(
    board: &Board,
    store: &Store,
    (vm, document): (&Name, &str),
    kind: &str,
    result: io::Result<T>,
) -> Option<T> {
    match result {
        Ok(value) => {
            board.lock().problems.remove(document);
            Some(value)
        }
        Err(error) => {
            let problem = error.to_string();
            if board.is_new_problem(document, &problem) {
                store.event(Level::Warning, &Owner::Vmci(vm.clone()).to_string(), kind, &problem);
            }
            None
        }
    }
}
