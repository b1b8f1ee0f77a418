//! Attachments of front ends that taut did not start. Users name the paths of their sockets, so
//! other threads touch these.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use taut_api::error::ErrorKind;
use taut_api::fabric::{ClosingQueue, ForeignFd, PortId};
use taut_api::network::{ExternalPortSpec, SocketRole};
use taut_api::{ApiError, Name};
use taut_plan::Owner;
use taut_plan::facts::ExternalSeen;

use super::Reconciler;
use super::errand::{Answer, Delivery, Errand, PATIENCE};
use crate::external;
use crate::inbox::Inbox;
use crate::process::own_table;

/// Maximum number of threads that wait for paths which no port has any more.
const MOST_ABANDONED: usize = 64;

/// Attempts to attach or detach that are in progress.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// One for each external port.
    current: BTreeMap<Name, Attempt>,
    /// Those whose path did not answer before its port was changed or deleted.
    abandoned: Vec<Attempt>,
    /// The queue of what front ends send before their socket is attached, for each port.
    queues: BTreeMap<Name, ClosingQueue>,
}

#[derive(Debug)]
struct Attempt {
    task: Task,
    /// The socket that is attached. A front end may have sent descriptors to it already.
    socket: Option<ForeignFd>,
    errand: Errand<Result<(), ApiError>>,
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
    /// one. After [`PATIENCE`] each call returns an error; the thread keeps waiting.
    fn result(
        &mut self,
        name: &Name,
        task: &Task,
        inbox: &Inbox,
    ) -> Option<Result<Option<ForeignFd>, ApiError>> {
        if let Some(attempt) = self.current.get(name) {
            let is_current = attempt.task == *task;
            let result = match attempt.errand.result() {
                Answer::Running => return None,
                Answer::Silent if is_current => return Some(Err(attempt.task.silent())),
                // The document has changed, and no longer names the path.
                Answer::Silent => match self.abandon(name) {
                    Ok(()) => Ok(()),
                    Err(error) => return Some(Err(error)),
                },
                Answer::Panicked => Err(panicked()),
                Answer::Done(result) => result,
            };
            let attempt = self.current.remove(name);
            // Otherwise it was the result for an earlier document.
            if let Some(attempt) = attempt.filter(|_| is_current) {
                return Some(result.map(|()| attempt.socket));
            }
        }
        if self.is_awaited(task) {
            return Some(Err(task.silent()));
        }
        self.queues.retain(|_, queue| queue.is_used());
        let queue = self.queues.entry(name.clone()).or_insert_with(ClosingQueue::unreported).clone();
        if queue.is_clogged() {
            return Some(Err(clogged()));
        }
        match Attempt::begin(task.clone(), inbox, &queue) {
            Ok(attempt) => drop(self.current.insert(name.clone(), attempt)),
            Err(error) => return Some(Err(not_begun(&error))),
        }
        None
    }

    /// Undoes an attachment. Returns the result, or `None` until there is one. A path that does not
    /// answer holds up neither the deletion of its port nor another path: the thread that waits for
    /// it removes the socket in the end.
    fn detach(&mut self, name: &Name, spec: ExternalPortSpec, inbox: &Inbox) -> Option<Result<(), ApiError>> {
        if spec.role == SocketRole::Connect {
            return Some(self.abandon(name));
        }
        let task = Task::Detach(spec);
        let result = self.result(name, &task, inbox)?;
        let waits = self.current.get(name).is_some_and(|attempt| attempt.task == task);
        Some(if waits {
            self.abandon(name)
        } else if result.is_err() && self.is_awaited(&task) {
            Ok(())
        } else {
            result.map(drop)
        })
    }

    /// Ends the interest in a port's attempt. Its thread undoes what it still does.
    ///
    /// # Errors
    /// Too many threads wait for paths that do not answer.
    fn abandon(&mut self, name: &Name) -> Result<(), ApiError> {
        self.abandoned.retain(|attempt| !attempt.errand.has_ended());
        let Some(attempt) = self.current.get(name) else { return Ok(()) };
        if !attempt.errand.has_ended() && self.abandoned.len() >= MOST_ABANDONED {
            return Err(too_many());
        }
        if let Some(mut attempt) = self.current.remove(name)
            && attempt.errand.abandon().is_none()
        {
            attempt.socket = None;
            self.abandoned.push(attempt);
        }
        Ok(())
    }

    /// Returns whether an abandoned thread waits for the path of a task that would listen there. It
    /// removes the socket there in the end, and must not remove another one.
    fn is_awaited(&mut self, task: &Task) -> bool {
        self.abandoned.retain(|attempt| !attempt.errand.has_ended());
        let listens = |task: &Task| task.spec().role == SocketRole::Listen;
        let same = |other: &Task| listens(other) && other.spec().socket == task.spec().socket;
        listens(task) && self.abandoned.iter().any(|attempt| same(&attempt.task))
    }
}

impl Attempt {
    fn begin(task: Task, inbox: &Inbox, queue: &ClosingQueue) -> io::Result<Self> {
        let (errand, delivery) = Errand::begin(inbox);
        let socket = match task.clone() {
            Task::Attach(spec) => {
                let socket = ForeignFd::new(external::unconnected()?, queue);
                let work = move |socket| attach(&spec, &socket, delivery);
                own_table::spawn_with("external", socket.as_fd().try_clone_to_owned()?, work)?;
                Some(socket)
            }
            Task::Detach(spec) => {
                own_table::spawn("external", move || {
                    let detached = external::detach(&spec).map_err(|error| not_removed(&spec, &error));
                    // A port that was deleted meanwhile needs no result.
                    drop(delivery.deliver(detached));
                })?;
                None
            }
        };
        Ok(Self { task, socket, errand })
    }
}

/// Attaches a socket. Removes what it has made if the port was changed or deleted meanwhile.
fn attach(spec: &ExternalPortSpec, socket: &OwnedFd, delivery: Delivery<Result<(), ApiError>>) {
    if let Some(Ok(())) = delivery.deliver(external::attach(spec, socket))
        && let Err(error) = external::detach(spec)
    {
        tracing::warn!(%error, socket = spec.socket, "the socket of a port that is gone stays");
    }
}

impl Task {
    const fn spec(&self) -> &ExternalPortSpec {
        let (Self::Attach(spec) | Self::Detach(spec)) = self;
        spec
    }

    fn silent(&self) -> ApiError {
        let spec = self.spec();
        let message = format!("`{}` did not answer within {} s", spec.socket, PATIENCE.as_secs());
        ApiError::new(ErrorKind::Unavailable, message, "see whether the file system that it is on answers")
    }
}

fn not_removed(spec: &ExternalPortSpec, error: &io::Error) -> ApiError {
    let message = format!("the socket `{}` cannot be removed", spec.socket);
    ApiError::new(ErrorKind::Unavailable, message, "check the permissions of its folder").because(error)
}

fn not_begun(error: &io::Error) -> ApiError {
    let message = "no socket or thread can be had for it";
    ApiError::new(ErrorKind::Unavailable, message, "raise the limits of the daemon").because(error)
}

fn too_many() -> ApiError {
    let message = format!("{MOST_ABANDONED} earlier paths of external ports do not answer");
    ApiError::new(ErrorKind::Unavailable, message, "see whether their file systems answer")
}

fn clogged() -> ApiError {
    let message = "its front ends have sent more descriptors than can be closed";
    ApiError::new(ErrorKind::Unavailable, message, "restart the program at the socket")
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
        let socket = socket.as_fd().try_clone_to_owned().map_err(|error| not_begun(&error))?;
        self.fabric.attach(port, external::kind(spec), vec![socket]);
        Ok(true)
    }

    /// Removes the socket of an external front end if taut listens on it.
    pub(super) fn detach_external(&mut self, name: &Name) {
        let Some(seen) = self.board.lock().observed.external.get(name).cloned() else { return };
        let Some(detached) = self.attempts.detach(name, seen.spec, &self.inbox) else { return };
        self.forget(&Owner::External(name.clone()), "external", detached);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;
    use std::sync::mpsc::Receiver;
    use std::time::Duration;

    use super::*;
    use crate::inbox::Message;

    fn spec(socket: &Path, role: &str) -> ExternalPortSpec {
        let spec = serde_json::json!({ "portgroup": "lan", "socket": socket, "role": role });
        serde_json::from_value(spec).unwrap()
    }

    fn listen(socket: &Path) -> Task {
        Task::Attach(spec(socket, "listen"))
    }

    /// The attempts of one port.
    struct Port {
        attempts: Attempts,
        name: Name,
        inbox: Inbox,
        messages: Receiver<Message>,
    }

    impl Port {
        fn new() -> Self {
            let (inbox, messages) = Inbox::new();
            Self { attempts: Attempts::default(), name: "a".parse().unwrap(), inbox, messages }
        }

        fn result(&mut self, task: &Task) -> Option<Result<Option<ForeignFd>, ApiError>> {
            self.attempts.result(&self.name, task, &self.inbox)
        }

        fn detach(&mut self, spec: &ExternalPortSpec) -> Option<Result<(), ApiError>> {
            self.attempts.detach(&self.name, spec.clone(), &self.inbox)
        }

        fn wait<T>(&mut self, mut result: impl FnMut(&mut Self) -> Option<T>) -> T {
            loop {
                if let Some(result) = result(self) {
                    return result;
                }
                self.messages.recv_timeout(Duration::from_secs(20)).unwrap();
            }
        }

        fn done(&mut self, task: &Task) -> Result<Option<ForeignFd>, ApiError> {
            self.wait(|port| port.result(task))
        }

        /// Begins a task whose path does not answer for long. Returns the end of its thread.
        fn begin_silent(&mut self, task: &Task) -> Delivery<Result<(), ApiError>> {
            let (mut errand, delivery) = Errand::begin(&self.inbox);
            errand.make_silent();
            let attempt = Attempt { task: task.clone(), socket: None, errand };
            self.attempts.current.insert(self.name.clone(), attempt);
            delivery
        }
    }

    #[test]
    fn a_port_listens_until_it_is_detached() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("port.sock");
        let mut port = Port::new();
        let socket = port.done(&listen(&path)).unwrap().unwrap();
        UnixStream::connect(&path).unwrap();
        let again = port.done(&listen(&path)).unwrap_err().to_string();
        assert!(again.contains("another program listens there"), "{again}");
        drop(socket);
        port.wait(|port| port.detach(&spec(&path, "listen"))).unwrap();
        assert!(!path.exists() && port.attempts.current.is_empty());
    }

    #[test]
    fn a_silent_path_is_named_and_has_one_thread() {
        let mut port = Port::new();
        let task = listen(Path::new("/dead/port.sock"));
        let _thread = port.begin_silent(&task);
        for _ in 0..2 {
            let error = port.result(&task).unwrap().unwrap_err().to_string();
            assert!(error.contains("`/dead/port.sock` did not answer within 10 s"), "{error}");
        }
        assert!(port.attempts.abandoned.is_empty());
    }

    #[test]
    fn a_port_gets_another_path_while_its_last_one_is_silent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("port.sock");
        for role in ["connect", "listen"] {
            let mut port = Port::new();
            let thread = port.begin_silent(&Task::Attach(spec(Path::new("/dead/port.sock"), role)));
            let socket = port.done(&listen(&path)).unwrap().unwrap();
            assert_eq!(port.attempts.abandoned.len(), 1);
            drop(thread);
            port.wait(|port| port.detach(&spec(&path, "listen"))).unwrap();
            assert!(port.attempts.abandoned.is_empty(), "{role}: its thread has ended");
            drop(socket);
        }
    }

    #[test]
    fn a_deleted_port_leaves_no_attempt_to_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("port.sock");
        let mut port = Port::new();
        let _thread = port.begin_silent(&Task::Attach(spec(Path::new("/dead/port.sock"), "connect")));
        port.detach(&spec(Path::new("/dead/port.sock"), "connect")).unwrap().unwrap();
        assert!(port.attempts.current.is_empty());

        // One whose socket was connected before the loop asked for it.
        let listener = UnixListener::bind(&path).unwrap();
        let connect = spec(&path, "connect");
        assert!(port.result(&Task::Attach(connect.clone())).is_none());
        port.messages.recv_timeout(Duration::from_secs(20)).unwrap();
        port.detach(&connect).unwrap().unwrap();
        assert!(port.attempts.current.is_empty());
        drop(listener.accept().unwrap());
    }

    #[test]
    fn a_listening_port_is_deleted_although_its_path_is_silent() {
        let dead = Path::new("/dead/port.sock");
        for task in [listen(dead), Task::Detach(spec(dead, "listen"))] {
            let mut port = Port::new();
            let thread = port.begin_silent(&task);
            port.detach(&spec(dead, "listen")).unwrap().unwrap();
            let error = port.result(&listen(dead)).unwrap().unwrap_err().to_string();
            assert!(error.contains("did not answer"), "the thread may still remove the socket: {error}");
            drop(thread);
            let error = port.done(&listen(dead)).unwrap_err().to_string();
            assert!(error.contains("the socket cannot be made"), "{error}");
        }
    }

    #[test]
    fn a_thread_removes_the_socket_of_a_port_that_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("port.sock");
        let (errand, delivery) = Errand::begin(&Inbox::new().0);
        assert!(errand.abandon().is_none());
        attach(&spec(&path, "listen"), &external::unconnected().unwrap(), delivery);
        assert!(!path.exists());
    }

    #[test]
    fn threads_of_paths_that_no_port_has_are_bounded() {
        let mut port = Port::new();
        let task = |index| Task::Attach(spec(Path::new(&format!("/dead/{index}")), "connect"));
        let mut threads = Vec::new();
        for index in 0..MOST_ABANDONED {
            threads.push(port.begin_silent(&task(index)));
            port.attempts.abandon(&port.name).unwrap();
        }
        threads.push(port.begin_silent(&task(MOST_ABANDONED)));
        let error = port.result(&task(0)).unwrap().unwrap_err().to_string();
        assert!(error.contains("64 earlier paths of external ports do not answer"), "{error}");
        threads.swap_remove(0);
        port.attempts.abandon(&port.name).unwrap();
    }
}
