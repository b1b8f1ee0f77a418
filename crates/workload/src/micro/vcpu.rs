//! The microguest's only CPU: runs its stacks and the tasks on them, and sleeps when there is nothing to do.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use smoltcp::time::Instant as StackInstant;

use super::nic::Nic;
use super::task::{Next, Task};
use crate::front_end::Event;
use crate::front_end::Link;

/// Tells one task from another.
pub(super) type TaskId = u64;

/// Something quick to do with the vNICs.
pub(super) type Errand = Box<dyn FnOnce(&mut [Nic]) + Send>;

/// What other threads ask the vCPU to do.
pub(super) enum Command {
    /// A link for the vNIC of this index.
    Connect(usize, Box<Link>),
    /// It has gone.
    Disconnect(usize),
    /// Something quick with the vNICs, such as looking at their addresses.
    Call(Errand),
    /// Begin a task.
    Start(TaskId, Box<dyn Task>),
    /// End it, if it has not ended.
    Stop(TaskId),
}

/// The vCPU.
pub(super) struct Vcpu {
    pub(super) nics: Vec<Nic>,
    pub(super) commands: Receiver<Command>,
    /// Raised when there is a command.
    pub(super) doorbell: Event,
    /// Never sleep.
    pub(super) poll: bool,
}

impl Vcpu {
    /// Runs until nobody can send commands any more.
    pub(super) fn run(mut self) {
        let start = Instant::now();
        let mut tasks: BTreeMap<TaskId, Box<dyn Task>> = BTreeMap::new();
        loop {
            if !self.obey(&mut tasks) {
                return;
            }
            let now = Instant::now();
            let mut wake: Option<Instant> = None;
            let mut busy = self.poll_nics(start);
            tasks.retain(|_, task| match task.poll(&mut self.nics, now) {
                Next::Done => {
                    busy = true;
                    false
                }
                Next::Again => {
                    busy = true;
                    true
                }
                Next::Idle => true,
                Next::At(at) => {
                    wake = Some(wake.map_or(at, |wake| wake.min(at)));
                    true
                }
            });
            busy |= self.poll_nics(start);
            for nic in &mut self.nics {
                nic.device.flush();
            }
            if busy || self.poll {
                continue;
            }
            self.sleep(start, wake);
        }
    }

    fn poll_nics(&mut self, start: Instant) -> bool {
        let now = stack_time(start);
        self.nics.iter_mut().fold(false, |busy, nic| nic.poll(now) | busy)
    }

    fn obey(&mut self, tasks: &mut BTreeMap<TaskId, Box<dyn Task>>) -> bool {
        use std::sync::mpsc::TryRecvError;
        loop {
            match self.commands.try_recv() {
                Ok(Command::Connect(nic, link)) => {
                    if let Err(error) = self.nics[nic].connect(*link) {
                        eprintln!("taut-micro: {error:#}");
                    }
                }
                Ok(Command::Disconnect(nic)) => self.nics[nic].device.disconnect(),
                Ok(Command::Call(call)) => call(&mut self.nics),
                Ok(Command::Start(id, task)) => _ = tasks.insert(id, task),
                Ok(Command::Stop(id)) => {
                    if let Some(mut task) = tasks.remove(&id) {
                        task.stop(&mut self.nics);
                    }
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Sleeps until an interrupt, a command, `wake`, or a stack's own timer.
    fn sleep(&mut self, start: Instant, wake: Option<Instant>) {
        let now = stack_time(start);
        let mut timeout = wake.map(|wake| wake.saturating_duration_since(Instant::now()));
        let mut arrived = false;
        for nic in &mut self.nics {
            arrived |= nic.device.arm();
            if let Some(delay) = nic.poll_delay(now) {
                let delay = Duration::from(delay);
                timeout = Some(timeout.map_or(delay, |timeout| timeout.min(delay)));
            }
        }
        if !arrived && timeout != Some(Duration::ZERO) {
            let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
            let mut polled = vec![PollFd::from_borrowed_fd(self.doorbell.as_fd(), PollFlags::IN)];
            let interrupts = self.nics.iter().flat_map(|nic| nic.device.interrupts());
            polled.extend(interrupts.map(|call| PollFd::from_borrowed_fd(call, PollFlags::IN)));
            // A signal, or anything else, is one more reason to look.
            let _ = poll(&mut polled, timeout.as_ref());
        }
        self.doorbell.clear();
        for nic in &mut self.nics {
            nic.device.disarm();
        }
    }
}

fn stack_time(start: Instant) -> StackInstant {
    StackInstant::from_micros(i64::try_from(start.elapsed().as_micros()).unwrap_or(i64::MAX))
}
