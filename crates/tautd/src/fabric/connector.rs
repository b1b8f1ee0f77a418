//! Connects guests to programs on the host. A guest's connection to port P of the host leads to the
//! Unix socket of its VMCI device with `_P` appended, or to one that the device's group has. The
//! fabric cannot open sockets, so it asks the daemon.
//!
//! A thread of its own answers: it may have to wait for a program whose backlog is full, and for
//! the wire.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use taut_api::Name;
use taut_api::fabric::{ForeignFd, PortId, ToFabric, keep_urgent};
use taut_vm::launch::RunPaths;

use super::Shared;
use crate::external::connect_now;
use crate::group_folders::GroupFolders;

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
    program: Program,
    /// Generation of the fabric that asked.
    generation: u64,
    until: Instant,
}

/// A program on the host that a guest connects to.
#[derive(Debug)]
struct Program {
    vm: Name,
    /// The port that it serves.
    port: u32,
    run_dir: PathBuf,
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
        let vm = super::owner(&self.wanted().config, port).and_then(vm_of);
        // A device that is no longer wanted has no connections.
        let Some(vm) = vm else { return };
        let generation = self.generation.load(Ordering::SeqCst);
        let program = Program { vm, port: to, run_dir: self.paths.run_dir.clone() };
        self.connector.ask(Question { port, request, program, generation, until: Instant::now() + PATIENCE });
    }

    /// Answers requests forever.
    pub(super) fn connect_guests(&self) {
        let mut waiting = Vec::new();
        loop {
            let idle = waiting.is_empty();
            waiting.append(&mut self.connector.take(idle));
            waiting.retain(|question: &Question| {
                let queue = self.wanted().held.queue_of_programs(question.port);
                let answer = if queue.is_clogged() {
                    Some(Err(io::Error::other("too many sockets of programs on the host wait to be closed")))
                } else {
                    attempt(&question.program, question.until)
                };
                let is_answered = answer.is_some();
                if let Some(answer) = answer {
                    let foreign = |socket| {
                        let socket = ForeignFd::new(socket, &queue);
                        keep_urgent(&socket)?;
                        Ok(socket)
                    };
                    self.answer(question, answer.and_then(foreign));
                }
                !is_answered
            });
        }
    }

    fn answer(&self, question: &Question, answer: io::Result<ForeignFd>) {
        let Question { port, request, .. } = *question;
        if let Err(error) = &answer {
            let Program { vm, port, .. } = &question.program;
            tracing::debug!(%vm, port, %error, "cannot connect the guest to a program on the host");
        }
        // The program may have sent descriptors already, so the close of its socket may wait.
        let sockets: Vec<_> = answer.ok().map(Arc::new).into_iter().collect();
        let wire = self.wire();
        // Each fabric numbers its own requests, so an answer must go to the fabric that asked.
        if question.generation != self.generation.load(Ordering::SeqCst) {
            return;
        }
        super::send(wire.as_ref(), &ToFabric::HostConnected { port, request }, &sockets);
    }
}

/// Returns the VM of a VMCI device.
pub(super) fn vm_of(owner: &str) -> Option<Name> {
    owner.strip_prefix("vm/")?.strip_suffix("/vmci")?.parse().ok()
}

impl Program {
    /// Connects without blocking: to root's program, or else to one of the device's group.
    fn connect(&self) -> io::Result<OwnedFd> {
        use io::ErrorKind::{ConnectionRefused, NotFound};
        let Self { vm, port, run_dir } = self;
        let of_root = RunPaths::new(run_dir.join("vms").join(vm.as_str())).vmci_of_host(*port);
        match connect_now(&of_root) {
            Err(error) if matches!(error.kind(), NotFound | ConnectionRefused) => {
                GroupFolders::at(run_dir).connect(vm, *port)
            }
            result => result,
        }
    }
}

/// Tries once to connect; `None` asks for another attempt.
fn attempt(program: &Program, until: Instant) -> Option<io::Result<OwnedFd>> {
    match program.connect() {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => None,
        result => Some(result),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// The program that serves port 7 for VM `m`, and the two paths at which it may listen.
    fn program(run_dir: &tempfile::TempDir) -> (Program, [PathBuf; 2]) {
        let paths = ["vms/m", "vmci/m"].map(|folder| {
            std::fs::create_dir_all(run_dir.path().join(folder)).unwrap();
            run_dir.path().join(folder).join("vmci.sock_7")
        });
        (Program { vm: "m".parse().unwrap(), port: 7, run_dir: run_dir.path().to_owned() }, paths)
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(600)
    }

    #[test]
    fn a_full_queue_is_waited_for_until_the_deadline_and_nobody_is_an_answer() {
        let dir = tempfile::tempdir().unwrap();
        let (program, paths) = program(&dir);
        for path in paths {
            assert_eq!(attempt(&program, later()).unwrap().unwrap_err().kind(), io::ErrorKind::NotFound);
            let listener = UnixListener::bind(&path).unwrap();
            let mut queued = Vec::new();
            while let Some(answer) = attempt(&program, later()) {
                queued.push(answer.unwrap());
            }
            let late = attempt(&program, Instant::now()).unwrap().unwrap_err();
            assert_eq!(late.kind(), io::ErrorKind::WouldBlock);
            listener.accept().unwrap();
            assert!(attempt(&program, later()).unwrap().is_ok(), "there is room again");
            drop(listener);
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn roots_program_comes_first_and_one_that_ended_leaves_the_port_to_the_group() {
        let dir = tempfile::tempdir().unwrap();
        let (program, [of_root, of_group]) = program(&dir);
        let of_group = UnixListener::bind(of_group).unwrap();
        of_group.set_nonblocking(true).unwrap();
        let root = UnixListener::bind(of_root).unwrap();
        let first = attempt(&program, later()).unwrap().unwrap();
        root.accept().unwrap();
        assert_eq!(of_group.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop((root, first));
        let _second = attempt(&program, later()).unwrap().unwrap();
        of_group.accept().unwrap();
        drop(of_group);
        let gone = attempt(&program, later()).unwrap().unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn questions_are_handed_over_once_and_without_any_the_retry_comes() {
        let connector = Connector::default();
        let program = Program { vm: "m".parse().unwrap(), port: 7, run_dir: "/x".into() };
        let question =
            Question { port: PortId(3), request: 9, program, generation: 1, until: Instant::now() };
        connector.ask(question);
        assert_eq!(connector.take(true).len(), 1);
        assert_eq!(connector.take(false).len(), 0);
    }
}
