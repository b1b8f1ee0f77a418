//! Connects guests to programs on the host. A guest's connection to port P of the host leads to the
//! Unix socket of its VMCI device with `_P` appended. The fabric cannot open sockets, so it asks
//! the daemon.
//!
//! A thread of its own answers: it may have to wait for a program whose backlog is full, and for
//! the wire.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use taut_api::fabric::{PortId, ToFabric};
use taut_vm::launch::RunPaths;

use super::Shared;
use crate::external::connect_now;

/// Time to wait for a program whose backlog is full. Linux guests give up after two seconds.
const PATIENCE: Duration = Duration::from_secs(1);
/// Interval between attempts.
const RETRY: Duration = Duration::from_millis(20);

/// Requests that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct Connector {
    questions: Mutex<Vec<Question>>,
    asked: Condvar,
}

/// Request of a guest to connect to a program on the host.
#[derive(Debug)]
struct Question {
    port: PortId,
    request: u32,
    /// Socket of the program.
    path: PathBuf,
    /// Generation of the fabric that asked.
    generation: u64,
    until: Instant,
}

impl Connector {
    fn ask(&self, question: Question) {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner).push(question);
        self.asked.notify_one();
    }

    /// Takes all requests; blocks while there is none.
    fn take(&self, idle: bool) -> Vec<Question> {
        let questions = self.questions.lock().unwrap_or_else(PoisonError::into_inner);
        let mut questions = if idle {
            self.asked.wait_while(questions, |questions| questions.is_empty())
        } else {
            let waited = self.asked.wait_timeout_while(questions, RETRY, |questions| questions.is_empty());
            waited.map(|(questions, _)| questions).map_err(|error| PoisonError::new(error.into_inner().0))
        }
        .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut questions)
    }
}

impl Shared {
    /// Queues the request of a guest that connects to port `to` of the host.
    pub(super) fn connect_to_host(&self, port: PortId, request: u32, to: u32) {
        let path = super::owner(&self.wanted().config, port).and_then(|owner| self.socket_of(owner, to));
        // A device that is no longer wanted has no connections.
        let Some(path) = path else { return };
        let generation = self.generation.load(Ordering::SeqCst);
        self.connector.ask(Question { port, request, path, generation, until: Instant::now() + PATIENCE });
    }

    /// Returns the socket that the guest of this VMCI device reaches by port `to` of the host.
    fn socket_of(&self, owner: &str, to: u32) -> Option<PathBuf> {
        let vm = owner.strip_prefix("vm/")?.strip_suffix("/vmci")?;
        Some(RunPaths::new(self.paths.run_dir.join("vms").join(vm)).vmci_of_host(to))
    }

    /// Answers requests forever.
    pub(super) fn connect_guests(&self) {
        let mut waiting = Vec::new();
        loop {
            let idle = waiting.is_empty();
            waiting.append(&mut self.connector.take(idle));
            waiting.retain(|question: &Question| match attempt(&question.path, question.until) {
                Some(answer) => {
                    self.answer(question, answer);
                    false
                }
                None => true,
            });
        }
    }

    fn answer(&self, question: &Question, answer: io::Result<OwnedFd>) {
        let Question { port, request, .. } = *question;
        if let Err(error) = &answer {
            tracing::debug!(%port, path = %question.path.display(), %error, "nobody to connect the guest to");
        }
        // The program may have sent something already.
        let sockets: Vec<_> =
            answer.ok().map(|socket| self.wanted().held.foreign(port, socket)).into_iter().collect();
        let wire = self.wire();
        // Each fabric numbers its own requests, so an answer must go to the fabric that asked.
        if question.generation != self.generation.load(Ordering::SeqCst) {
            return;
        }
        super::send(wire.as_ref(), &ToFabric::HostConnected { port, request }, &sockets);
    }
}

/// Tries once to connect; `None` asks for another attempt.
fn attempt(path: &Path, until: Instant) -> Option<io::Result<OwnedFd>> {
    match connect_now(path) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => None,
        result => Some(result),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_full_queue_is_waited_for_until_the_deadline_and_nobody_is_an_answer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vmci.sock_7");
        let later = || Instant::now() + Duration::from_secs(600);
        assert_eq!(attempt(&path, later()).unwrap().unwrap_err().kind(), io::ErrorKind::NotFound);
        let listener = UnixListener::bind(&path).unwrap();
        let mut queued = Vec::new();
        while let Some(answer) = attempt(&path, later()) {
            queued.push(answer.unwrap());
        }
        let late = attempt(&path, Instant::now()).unwrap().unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::WouldBlock);
        listener.accept().unwrap();
        assert!(attempt(&path, later()).unwrap().is_ok(), "there is room again");
        drop(listener);
        let gone = attempt(&path, later()).unwrap().unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn questions_are_handed_over_once_and_without_any_the_retry_comes() {
        let connector = Connector::default();
        let question =
            Question { port: PortId(3), request: 9, path: "/x".into(), generation: 1, until: Instant::now() };
        connector.ask(question);
        assert_eq!(connector.take(true).len(), 1);
        assert_eq!(connector.take(false).len(), 0);
    }
}
