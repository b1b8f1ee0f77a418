//! Attachments of front ends that taut did not start. Users name the paths of their sockets, so
//! other threads touch these.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use taut_api::error::ErrorKind;
use taut_api::fabric::PortId;
use taut_api::network::{ExternalPortSpec, SocketRole};
use taut_api::{ApiError, Name};
use taut_plan::Owner;
use taut_plan::facts::ExternalSeen;

use super::Reconciler;
use crate::external;
use crate::inbox::{Inbox, Message};
use crate::process::own_table;

/// Time after which it is a problem that a path does not answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Attempts to attach or detach that are in progress: one thread for each external port.
#[derive(Debug, Default)]
pub(super) struct Attempts(BTreeMap<Name, Attempt>);

#[derive(Debug)]
struct Attempt {
    task: Task,
    began: Instant,
    /// The socket that is attached.
    socket: Option<OwnedFd>,
    done: Receiver<Result<(), ApiError>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Task {
    /// Connect to the front end, or listen for it.
    Attach(ExternalPortSpec),
    /// Remove the socket on which taut listened.
    Detach(ExternalPortSpec),
}

impl Attempts {
    /// Returns the result of a task, which is begun unless it is in progress; `None` until there is
    /// one. A silent path is an error, and its thread stays.
    fn result(
        &mut self,
        name: &Name,
        task: &Task,
        inbox: &Inbox,
    ) -> Option<Result<Option<OwnedFd>, ApiError>> {
        if let Some(attempt) = self.0.get(name) {
            let result = match attempt.done.try_recv() {
                Err(TryRecvError::Empty) if attempt.began.elapsed() < PATIENCE => return None,
                Err(TryRecvError::Empty) => return Some(Err(task.silent())),
                Err(TryRecvError::Disconnected) => Err(panicked()),
                Ok(result) => result,
            };
            let attempt = self.0.remove(name)?;
            // The document may have changed meanwhile.
            if attempt.task == *task {
                return Some(result.map(|()| attempt.socket));
            }
        }
        match Attempt::begin(task.clone(), inbox.clone()) {
            Ok(attempt) => drop(self.0.insert(name.clone(), attempt)),
            Err(error) => return Some(Err(not_begun(&error))),
        }
        None
    }
}

impl Attempt {
    fn begin(task: Task, inbox: Inbox) -> io::Result<Self> {
        let (sender, done) = channel();
        let finish = move |result| {
            // The port may have been forgotten meanwhile.
            let _ = sender.send(result);
            inbox.send(Message::Wake);
        };
        let socket = match task.clone() {
            Task::Attach(spec) => {
                let socket = external::unconnected()?;
                let work = move |socket| finish(external::attach(&spec, &socket));
                own_table::spawn_with("external", socket.try_clone()?, work)?;
                Some(socket)
            }
            Task::Detach(spec) => {
                own_table::spawn("external", move || {
                    finish(external::detach(&spec).map_err(|error| not_removed(&spec, &error)));
                })?;
                None
            }
        };
        Ok(Self { task, began: Instant::now(), socket, done })
    }
}

impl Task {
    fn silent(&self) -> ApiError {
        let (Self::Attach(spec) | Self::Detach(spec)) = self;
        let message = format!("`{}` did not answer within {} s", spec.socket, PATIENCE.as_secs());
        ApiError::new(ErrorKind::Unavailable, message, "see whether the file system that it is on answers")
    }
}

fn not_removed(spec: &ExternalPortSpec, error: &io::Error) -> ApiError {
    let message = format!("the socket `{}` cannot be removed", spec.socket);
    ApiError::new(ErrorKind::Unavailable, message, "look at its directory").because(error)
}

fn not_begun(error: &io::Error) -> ApiError {
    let message = "no socket or thread can be had for it";
    ApiError::new(ErrorKind::Unavailable, message, "raise the limits of the daemon").because(error)
}

fn panicked() -> ApiError {
    ApiError::new(ErrorKind::Internal, "the attempt has panicked", "report this fault")
}

impl Reconciler {
    /// Attaches an external front end's socket to a port. Returns whether it is attached.
    pub(super) fn attach_external(&mut self, name: &Name, port: PortId) -> Result<bool, ApiError> {
        let state = self.store.state();
        let Some(spec) = state.desired.external.get(name) else { return Ok(false) };
        let seen = ExternalSeen { spec: spec.clone() };
        if self.board.lock().observed.external.get(name) != Some(&seen) {
            self.store.remember(&Owner::External(name.clone()).document(), &seen)?;
            self.board.lock().observed.external.insert(name.clone(), seen);
        }
        let attached = self.attempts.result(name, &Task::Attach(spec.clone()), &self.inbox).transpose()?;
        let Some(socket) = attached.flatten() else { return Ok(false) };
        self.fabric.attach(port, external::kind(spec), socket);
        Ok(true)
    }

    /// Removes the socket of an external front end if taut listens on it.
    pub(super) fn detach_external(&mut self, name: &Name) {
        let Some(seen) = self.board.lock().observed.external.get(name).cloned() else { return };
        let detached = match seen.spec.role {
            SocketRole::Connect => Ok(()),
            SocketRole::Listen => {
                let result = self.attempts.result(name, &Task::Detach(seen.spec), &self.inbox);
                let Some(result) = result else { return };
                result.map(drop)
            }
        };
        self.forget(&Owner::External(name.clone()), "external", detached);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(socket: &std::path::Path) -> ExternalPortSpec {
        let spec = serde_json::json!({ "portgroup": "lan", "socket": socket, "role": "listen" });
        serde_json::from_value(spec).unwrap()
    }

    fn done(attempts: &mut Attempts, task: &Task) -> Result<Option<OwnedFd>, ApiError> {
        let (inbox, messages) = Inbox::new();
        let name: Name = "a".parse().unwrap();
        loop {
            if let Some(result) = attempts.result(&name, task, &inbox) {
                return result;
            }
            messages.recv_timeout(Duration::from_secs(20)).unwrap();
        }
    }

    #[test]
    fn a_port_listens_until_it_is_detached() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("port.sock");
        let mut attempts = Attempts::default();
        let socket = done(&mut attempts, &Task::Attach(spec(&path))).unwrap().unwrap();
        std::os::unix::net::UnixStream::connect(&path).unwrap();
        let again = done(&mut attempts, &Task::Attach(spec(&path))).unwrap_err().to_string();
        assert!(again.contains("another program listens there"), "{again}");
        drop(socket);
        assert!(done(&mut attempts, &Task::Detach(spec(&path))).unwrap().is_none());
        assert!(!path.exists() && attempts.0.is_empty());
    }

    #[test]
    fn a_silent_path_is_named_and_has_one_thread() {
        let mut attempts = Attempts::default();
        let (inbox, _messages) = Inbox::new();
        let name: Name = "a".parse().unwrap();
        let task = Task::Attach(spec(std::path::Path::new("/dead/port.sock")));
        let (_never, done) = channel();
        let began = Instant::now().checked_sub(PATIENCE).unwrap();
        attempts.0.insert(name.clone(), Attempt { task: task.clone(), began, socket: None, done });
        for _ in 0..2 {
            let error = attempts.result(&name, &task, &inbox).unwrap().unwrap_err().to_string();
            assert!(error.contains("`/dead/port.sock` did not answer within 10 s"), "{error}");
        }
    }
}
