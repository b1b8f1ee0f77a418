//! The microguest's agent: turns requests into tasks of the vCPU.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeVal;
use nix::unistd::Pid;
use taut_bench::agent::protocol::{
    AgentError, Configure, Cpu, Hello, Interface, Kind, Latency, PROTOCOL, Ping, Probe, Probed, Rr, Serve,
    Stream, Throughput,
};
use taut_bench::agent::{Backend, Run, Serving, Spinning};
use taut_bench::measure::spin::Units;

use crate::machine::Machine;
use crate::nic::Nic;
use crate::task::{
    Conversation, Event, PingTask, ProbeTask, Report, RequestResponseTask, ServerTask, SpinTask, StreamTask,
    Task, buffer_size,
};
use crate::vcpu::{Command, TaskId, ToVcpu};

/// First port of servers without a given one. Clients use ports from 49152 on.
const FIRST_SERVER_PORT: u16 = 20_000;

/// Answers every connection, each on a thread of its own.
pub(super) fn serve(listener: &UnixListener, agent: &Arc<Agent>) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else { continue };
        let agent = Arc::clone(agent);
        thread::spawn(move || {
            // A caller may go away at any time.
            let _ = taut_bench::agent::serve(&stream, &stream, &*agent);
        });
    }
}

/// The agent of one microguest.
pub(super) struct Agent {
    name: String,
    pub(super) to_vcpu: ToVcpu,
    started: Instant,
    next_task: AtomicU64,
    next_server_port: AtomicU16,
}

impl Agent {
    pub(super) fn new(name: String, to_vcpu: ToVcpu) -> Self {
        Self {
            name,
            to_vcpu,
            started: Instant::now(),
            next_task: AtomicU64::new(1),
            next_server_port: AtomicU16::new(FIRST_SERVER_PORT),
        }
    }

    fn send(&self, command: Command) -> Result<(), AgentError> {
        self.to_vcpu.send(command).map_err(|_| ended())
    }

    /// Lets the vCPU execute a short function on the machine, and returns its result.
    fn call<T: Send + 'static>(
        &self,
        what: impl FnOnce(&mut Machine) -> T + Send + 'static,
    ) -> Result<T, AgentError> {
        let (reply, answer) = mpsc::channel();
        self.send(Command::Call(Box::new(move |machine| _ = reply.send(what(machine)))))?;
        answer.recv().map_err(|_| ended())
    }

    /// Lets the vCPU run a measurement, and waits for its result.
    fn measure<T, K: Task + 'static>(
        &self,
        run: &Run<'_>,
        task: impl FnOnce(TaskId, Report<T>) -> K,
    ) -> Result<T, AgentError> {
        let (send, events) = mpsc::channel();
        let id = self.next_task.fetch_add(1, Ordering::Relaxed);
        self.send(Command::Start(id, Box::new(task(id, Report(send)))))?;
        let to_vcpu = self.to_vcpu.clone();
        run.on_stop(move || _ = to_vcpu.send(Command::Stop(id)));
        loop {
            match events.recv() {
                Ok(Event::Started) => run.started(),
                Ok(Event::Ended(result)) => return result,
                Err(_) => return Err(AgentError::new("the measurement was stopped", "start it again")),
            }
        }
    }
}

impl Backend for Agent {
    fn hello(&self) -> Hello {
        Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kind: Kind::Micro,
            hostname: self.name.clone(),
            kernel: "smoltcp".to_owned(),
        }
    }

    fn addresses(&self) -> Result<Vec<Interface>, AgentError> {
        self.call(|machine| {
            let interface = |(index, nic): (usize, &Nic)| Interface {
                name: format!("eth{index}"),
                mac: mac_text(nic),
                ips: nic.ip().into_iter().collect(),
                carrier: nic.device.is_connected(),
                carrier_changes: 0,
            };
            machine.nics.iter().enumerate().map(interface).collect()
        })
    }

    fn configure(&self, wanted: &Configure) -> Result<(), AgentError> {
        let Configure { mac, ip } = wanted.clone();
        let missing = AgentError::new(
            format!("no vNIC has the address {mac}"),
            "`taut vm addresses` lists the vNICs of a VM",
        );
        self.call(move |machine| {
            let nic = machine.nics.iter_mut().find(|nic| mac_text(nic).eq_ignore_ascii_case(&mac));
            nic.map(|nic| nic.set_ip(ip)).ok_or(missing)
        })?
    }

    fn cid(&self) -> Result<u32, AgentError> {
        let cid = self.call(|machine| machine.vsock().map(|vsock| vsock.cid()))??;
        cid.and_then(|cid| u32::try_from(cid).ok()).ok_or_else(|| {
            AgentError::new(
                "this microguest's VMCI device has had no link yet",
                "`taut vm show` says what its device is waiting for",
            )
        })
    }

    fn serve(&self, wanted: &Serve) -> Result<Box<dyn Serving>, AgentError> {
        let port = match wanted.port {
            0 => self.next_server_port.fetch_add(1, Ordering::Relaxed).max(FIRST_SERVER_PORT),
            port => port,
        };
        let task = self.next_task.fetch_add(1, Ordering::Relaxed);
        let (address, buffer) = (wanted.address.clone(), buffer_size(wanted.socket_size));
        let listener = self.call(move |machine| machine.listen(address.as_ref(), port, buffer))??;
        self.send(Command::Start(task, Box::new(ServerTask::<Conversation>::new(listener))))?;
        Ok(Box::new(Server { port, task, to_vcpu: self.to_vcpu.clone() }))
    }

    fn ping(&self, wanted: &Ping, run: &Run<'_>) -> Result<Latency, AgentError> {
        self.measure(run, |id, report| PingTask::new(wanted.clone(), id as u16, report))
    }

    fn rr(&self, wanted: &Rr, run: &Run<'_>) -> Result<Latency, AgentError> {
        self.measure(run, |_, report| RequestResponseTask::new(wanted.clone(), report))
    }

    fn stream(&self, wanted: &Stream, run: &Run<'_>) -> Result<Throughput, AgentError> {
        self.measure(run, |_, report| StreamTask::new(wanted.clone(), report))
    }

    fn probe(&self, wanted: &Probe, run: &Run<'_>) -> Result<Vec<Probed>, AgentError> {
        let nothing = wanted.begin()?;
        self.measure(run, |_, report| ProbeTask::new(wanted.clone(), nothing, report))
    }

    fn cpu(&self) -> Result<Cpu, AgentError> {
        let usage: Usage = getrusage(UsageWho::RUSAGE_SELF)
            .map_err(|error| AgentError::new(format!("CPU times could not be read: {error}"), "try again"))?;
        let (user_us, system_us) = (micros(usage.user_time()), micros(usage.system_time()));
        let process_us = user_us + system_us;
        let elapsed_us = self.started.elapsed().as_micros() as u64;
        let idle_us = elapsed_us.saturating_sub(process_us);
        Ok(Cpu { cpus: 1, user_us, system_us, idle_us, steal_us: 0, process_us })
    }

    fn spin(&self) -> Result<Box<dyn Spinning>, AgentError> {
        let units = Units::default();
        let task = self.next_task.fetch_add(1, Ordering::Relaxed);
        self.send(Command::Start(task, Box::new(SpinTask(units.clone()))))?;
        Ok(Box::new(Spinner { units, task, to_vcpu: self.to_vcpu.clone() }))
    }

    fn poweroff(&self) -> Result<(), AgentError> {
        kill(Pid::this(), Signal::SIGTERM)
            .map_err(|error| AgentError::new(format!("cannot end: {error}"), "stop the VM by force"))
    }
}

/// A server that runs on the vCPU.
struct Server {
    port: u16,
    task: TaskId,
    to_vcpu: ToVcpu,
}

impl Serving for Server {
    fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // If the vCPU has ended, so has the server.
        let _ = self.to_vcpu.send(Command::Stop(self.task));
    }
}

/// A program that computes on the vCPU.
struct Spinner {
    units: Units,
    task: TaskId,
    to_vcpu: ToVcpu,
}

impl Spinning for Spinner {
    fn units(&self) -> u64 {
        self.units.done()
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        // If the vCPU has ended, so has the program.
        let _ = self.to_vcpu.send(Command::Stop(self.task));
    }
}

fn ended() -> AgentError {
    AgentError::new("the microguest's vCPU has ended", "see its log for the reason, and start it again")
}

fn mac_text(nic: &Nic) -> String {
    nic.mac().to_string().replace('-', ":")
}

fn micros(time: TimeVal) -> u64 {
    time.tv_sec() as u64 * 1_000_000 + time.tv_usec() as u64
}
