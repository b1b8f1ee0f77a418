//! Microguests: processes that stand for a VM each.
//!
//! Like QEMU, a microguest listens on vhost-user sockets. It runs the driver end of the queues
//! itself, with a small TCP/IP stack (smoltcp) and a small vsock stack on top, and answers the same
//! agent protocol as a guest with Linux. It gives native-speed figures where virtualization is
//! emulated, and a hundred of them fit on a small machine.
//!
//! | thread | work |
//! |---|---|
//! | one per device (`back_end`) | waits for a back end, negotiates, passes the link on, repeats |
//! | vCPU (`vcpu`) | everything that a guest does: drivers, stacks, programs (`task`) |
//! | one per agent connection (`agent`) | reads requests, starts programs, waits for results |

mod agent;
mod back_end;
mod inherited;
mod machine;
mod nic;
mod options;
mod queues;
mod say;
mod task;
#[cfg(test)]
mod tests;
mod vcpu;
mod vsock;

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal};
use taut_bench::agent::protocol::Address;
use taut_bench::front_end::{Event, Link};

pub use back_end::hostile::Hostility;
pub use options::{NicOptions, VsockOptions};

use agent::Agent;
use back_end::BackEnd;
use machine::DeviceId;
use machine::Machine;
use nic::Nic;
use say::say;
use task::{ServerTask, echo};
use vcpu::{Command, TaskId, ToVcpu, Vcpu};
use vsock::Vsock;

/// Devices and settings of a microguest.
#[derive(Debug, Clone)]
pub struct MicroOptions {
    /// Host name.
    pub name: String,
    /// Unix socket on which the agent listens.
    pub agent_socket: PathBuf,
    /// vNICs.
    pub nics: Vec<NicOptions>,
    /// Vsock device.
    pub vsock: Option<VsockOptions>,
    /// Bytes of memory for the rings and buffers of each device.
    pub memory: u64,
    /// Never sleep: lowest latency, at the cost of a whole CPU.
    pub poll: bool,
    /// Break a rule on the first vNIC's transmit queue, for tests of the back end.
    pub hostile: Option<Hostility>,
}

/// Runs a microguest until SIGTERM, SIGINT, or its agent's `poweroff`, then removes its sockets.
pub fn run(options: MicroOptions) -> Result<()> {
    // Older kernels name a program that was executed by its descriptor after that number.
    let _ = rustix::thread::set_name(c"taut-micro");
    // Blocked before the first thread starts, so that all threads inherit it and `wait` gets the
    // signal.
    let ends = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    ends.thread_block().context("cannot block signals")?;
    let sockets = Sockets::listen(&options)?;
    start(options, &sockets)?;
    ends.wait().context("cannot wait for signals")?;
    Ok(())
}

/// Listening sockets, removed when dropped.
struct Sockets {
    agent: Arc<UnixListener>,
    nics: Vec<Arc<UnixListener>>,
    vsock: Option<Arc<UnixListener>>,
    paths: Vec<PathBuf>,
}

impl Sockets {
    fn listen(options: &MicroOptions) -> Result<Self> {
        let mut paths = Vec::new();
        let mut listen = |path: &PathBuf| {
            let listener = if let Some(number) = inherited_number(path) {
                inherited::listener(number)?
            } else {
                let listener = back_end::listen(path)?;
                paths.push(path.clone());
                listener
            };
            Ok(Arc::new(listener))
        };
        let agent = listen(&options.agent_socket)?;
        let nics = options.nics.iter().map(|nic| listen(&nic.socket)).collect::<Result<Vec<_>>>()?;
        let listening = options.vsock.as_ref().filter(|vsock| !vsock.connect);
        let vsock = listening.map(|vsock| listen(&vsock.socket)).transpose()?;
        Ok(Self { agent, nics, vsock, paths })
    }
}

/// Returns the number in `fd:NUMBER`, which names an inherited listening socket instead of a path.
fn inherited_number(path: &Path) -> Option<i32> {
    path.to_str()?.strip_prefix("fd:")?.parse().ok()
}

impl Drop for Sockets {
    fn drop(&mut self) {
        for path in &self.paths {
            // The file may be gone already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Advice for a device whose thread has ended.
const RESTART: &str =
    "hint: the device is down until its VM is restarted: taut vm stop NAME, taut vm start NAME";

/// Task of the echo service. The agent numbers its tasks from 1 on.
const ECHO: TaskId = 0;

/// Starts all threads. They end with the process.
fn start(options: MicroOptions, sockets: &Sockets) -> Result<()> {
    let (send, commands) = mpsc::channel();
    let doorbell = Event::new()?;
    let to_vcpu = ToVcpu { commands: send, doorbell: Arc::new(doorbell.duplicate()?) };
    let nics = options.nics.iter().map(Nic::new).collect();
    let mut machine = Machine::new(nics, options.vsock.as_ref().map(Vsock::new));
    if options.vsock.is_some() {
        let listener = machine.listen(Some(&Address::ANY_VSOCK), echo::PORT, echo::BUFFER)?;
        to_vcpu.send(Command::Start(ECHO, Box::new(ServerTask::<echo::Echo>::new(listener))))?;
    }
    let vcpu = Vcpu { machine, commands, doorbell, poll: options.poll };
    // The vCPU runs before a link or an answer can tell anybody of this guest.
    let (runs, vcpu_runs) = mpsc::channel();
    spawn("vcpu", move || {
        // The receiver waits below.
        let _ = runs.send(());
        vcpu.run();
    })?;
    vcpu_runs.recv().context("the vCPU ended as it began")?;

    for (index, nic) in options.nics.into_iter().enumerate() {
        let (back_end, to_vcpu) = (BackEnd::Connects(Arc::clone(&sockets.nics[index])), to_vcpu.clone());
        let device = DeviceId::Nic(index);
        let hostile = options.hostile.filter(|_| index == 0);
        spawn(&format!("nic{index}"), move || {
            let up = |link: Link| match hostile {
                Some(hostility) => hostility.spoil(link),
                None => to_vcpu.send(Command::Connect(device, Box::new(link))),
            };
            let down = || _ = to_vcpu.send(Command::Disconnect(device));
            let wanted = || back_end::of_nic(&nic, options.memory);
            if let Err(error) = back_end::serve(&back_end, &nic.socket, wanted, up, down) {
                say(format_args!("{}: {error:#}\n{RESTART}", nic.socket.display()));
            }
        })?;
    }
    if let Some(vsock) = options.vsock {
        let (listener, to_vcpu) = (sockets.vsock.clone(), to_vcpu.clone());
        spawn("vsock", move || {
            let up = |link: Link| to_vcpu.send(Command::Connect(DeviceId::Vsock, Box::new(link)));
            let down = || _ = to_vcpu.send(Command::Disconnect(DeviceId::Vsock));
            let back_end = listener.map_or(BackEnd::Listens(&vsock.socket), BackEnd::Connects);
            let wanted = || back_end::of_vsock(&vsock, options.memory);
            if let Err(error) = back_end::serve(&back_end, &vsock.socket, wanted, up, down) {
                say(format_args!("{}: {error:#}\n{RESTART}", vsock.socket.display()));
            }
        })?;
    }

    let agent = Arc::new(Agent::new(options.name, to_vcpu));
    let listener = Arc::clone(&sockets.agent);
    spawn("agent", move || agent::serve(&listener, &agent))
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(body).context("cannot start a thread")?;
    Ok(())
}
