//! The microguest's only CPU: runs its stacks and tasks, and sleeps when there is nothing to do.

mod halt;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use taut_bench::front_end::{Event, Link, event};

use crate::machine::{DeviceId, Machine};
use crate::say::say;
use crate::task::{Next, Task};
use anyhow::{Context, Result};
use halt::HaltPolling;

/// Number of a task.
pub(super) type TaskId = u64;

/// The tasks that run. Each turn of the vCPU polls all of them, and they are few: a list is faster
/// than a map.
type Tasks = Vec<(TaskId, Box<dyn Task>)>;

/// A short function on the machine.
pub(super) type Function = Box<dyn FnOnce(&mut Machine) + Send>;

/// A request of another thread to the vCPU.
pub(super) enum Command {
    /// Use a new link of a device.
    Connect(DeviceId, Box<Link>),
    /// Drop a device's link.
    Disconnect(DeviceId),
    /// Execute a short function, such as reading the machine's addresses.
    Call(Function),
    /// Begin a task. No other has its number.
    Start(TaskId, Box<dyn Task>),
    /// Stop a task, if it has not ended.
    Stop(TaskId),
}

/// Sends commands to the vCPU.
#[derive(Clone)]
pub(super) struct ToVcpu {
    pub(super) commands: Sender<Command>,
    pub(super) doorbell: Arc<Event>,
}

impl ToVcpu {
    pub(super) fn send(&self, command: Command) -> Result<()> {
        self.commands.send(command).ok().context("the vCPU has ended")?;
        self.doorbell.raise();
        Ok(())
    }
}

/// The vCPU.
pub(super) struct Vcpu {
    pub(super) machine: Machine,
    pub(super) commands: Receiver<Command>,
    /// Raised with each command.
    pub(super) doorbell: Event,
    /// Never sleep.
    pub(super) poll: bool,
}

impl Vcpu {
    /// Runs until no sender of commands is left.
    pub(super) fn run(mut self) {
        let mut tasks = Tasks::new();
        let mut polling = HaltPolling::default();
        loop {
            if !self.obey(&mut tasks) {
                return;
            }
            let now = Instant::now();
            polling.runs(now);
            let mut wake: Option<Instant> = None;
            let mut busy = self.machine.poll();
            tasks.retain_mut(|(_, task)| match task.poll(&mut self.machine, now) {
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
            busy |= self.machine.poll();
            busy |= self.machine.flush();
            if busy || self.poll {
                polling.worked();
                continue;
            }
            let begun = Instant::now();
            if polling.goes_on(begun) {
                // Threads for whose work this guest waits may need this very pCPU.
                thread::yield_now();
            } else {
                self.sleep(wake);
                polling.slept(begun, Instant::now());
            }
        }
    }

    fn obey(&mut self, tasks: &mut Tasks) -> bool {
        use std::sync::mpsc::TryRecvError;
        loop {
            match self.commands.try_recv() {
                Ok(Command::Connect(device, link)) => {
                    if let Err(error) = self.machine.plug(device, *link) {
                        say(format_args!("{error:#}"));
                    }
                }
                Ok(Command::Disconnect(device)) => self.machine.unplug(device),
                Ok(Command::Call(call)) => call(&mut self.machine),
                Ok(Command::Start(id, task)) => tasks.push((id, task)),
                Ok(Command::Stop(id)) => {
                    if let Some(at) = tasks.iter().position(|(of, _)| *of == id) {
                        tasks.remove(at).1.stop(&mut self.machine);
                    }
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Sleeps until an interrupt, a command, `wake`, or a stack's own timer.
    fn sleep(&mut self, wake: Option<Instant>) {
        let wake = wake.map(|wake| wake.saturating_duration_since(Instant::now()));
        let arrived = self.machine.arm();
        let timeout = wake.into_iter().chain(self.machine.poll_delay()).min();
        if !arrived && timeout != Some(Duration::ZERO) {
            let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
            let mut polled = vec![PollFd::from_borrowed_fd(self.doorbell.as_fd(), PollFlags::IN)];
            polled
                .extend(self.machine.interrupts().map(|call| PollFd::from_borrowed_fd(call, PollFlags::IN)));
            // A signal or an error is one more reason to check for work.
            let _ = poll(&mut polled, timeout.as_ref());
            // Clear only raised events: reading another one would be a useless system call before
            // the work.
            polled.iter().filter(|event| event.revents().contains(PollFlags::IN)).for_each(event::clear);
        }
        self.machine.disarm();
    }
}
