//! The agents of a measurement. Each end point has one conversation, however many pairs it is in,
//! because the channel into a guest accepts one caller at a time.

use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_api::path;
use taut_api::route::{Netns, Vm};
use taut_bench::agent::Client as Agent;
use taut_bench::agent::ClientError;
use taut_bench::agent::protocol::{Answer, Kind, Request};
use taut_bench::report;
use taut_host::kernel::{namespace, real_time};

use super::end_point::EndPoint;
use crate::agent::{self, PATIENCE, failed};
use crate::client::Client;
use crate::output;

/// All agents of a measurement.
#[derive(Default)]
pub(super) struct Parties {
    all: Vec<Party>,
    /// Agents that were started for this measurement. They end after their conversations.
    processes: Vec<Process>,
}

/// Index into [`Parties`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Id(usize);

/// An end point with its agent.
pub(super) struct Party {
    pub(super) end_point: EndPoint,
    /// Accelerator of a VM: `kvm`, `tcg` or `native`.
    pub(super) accelerator: Option<String>,
    pub(super) agent: Agent,
}

/// Scheduling class of an agent that is started.
#[derive(Debug, Clone, Copy)]
enum Class {
    Ordinary,
    /// `SCHED_FIFO`.
    RealTime,
}

impl Class {
    /// Returns an error if agents cannot be started in this class.
    fn check(self, end_point: &EndPoint) -> Result<(), ApiError> {
        match self {
            Self::Ordinary => Ok(()),
            Self::RealTime => real_time::allowed().map_err(|error| {
                ApiError::new(
                    ErrorKind::Unavailable,
                    format!("the agent of {end_point} stands for another machine, but cannot run in the real-time class"),
                    error.hint(),
                )
                .because(&error)
            }),
        }
    }

    fn of(self, command: Command) -> Command {
        match self {
            Self::Ordinary => command,
            Self::RealTime => {
                let mut first = Command::new("chrt");
                first.args(["--fifo", "1"]).arg(command.get_program()).args(command.get_args());
                first
            }
        }
    }
}

/// A process that is killed when this is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already; nothing else can be done.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Parties {
    /// Connects to the agent of `end_point`, unless there is a conversation already.
    pub(super) fn join(&mut self, client: &Client, end_point: &EndPoint) -> Result<Id, ApiError> {
        self.join_as(client, end_point, Class::Ordinary)
    }

    /// Like [`Self::join`]; an agent that is started for this runs in the real-time class.
    pub(super) fn join_in_real_time(
        &mut self,
        client: &Client,
        end_point: &EndPoint,
    ) -> Result<Id, ApiError> {
        self.join_as(client, end_point, Class::RealTime)
    }

    fn join_as(&mut self, client: &Client, end_point: &EndPoint, class: Class) -> Result<Id, ApiError> {
        if let Some(known) = self.all.iter().position(|party| party.end_point == *end_point) {
            return Ok(Id(known));
        }
        let (agent, accelerator) = match end_point {
            EndPoint::Vm(name) => {
                let vm: Vm = client.get(&path::VM.of(name))?;
                (
                    agent::of_vm(&vm, PATIENCE)?,
                    vm.status.accelerator.map(|accelerator| accelerator.to_string()),
                )
            }
            EndPoint::Netns(name) => {
                let netns = netns_of(client, name)?;
                (self.start(end_point, class, "netns", |command| namespace::spawn(&netns, command))?, None)
            }
            EndPoint::Host => (self.start(end_point, class, "host", Command::spawn)?, None),
            EndPoint::Agent(path) => {
                let agent = Agent::connect(end_point.to_string(), path, PATIENCE);
                (agent.map_err(|error| failed(&error))?, None)
            }
        };
        Ok(self.add(Party { end_point: end_point.clone(), accelerator, agent }))
    }

    /// Adds an agent.
    pub(super) fn add(&mut self, party: Party) -> Id {
        self.all.push(party);
        Id(self.all.len() - 1)
    }

    /// Starts an agent of this `kind` by `spawn`, and connects to it over its standard input and
    /// output.
    fn start(
        &mut self,
        end_point: &EndPoint,
        class: Class,
        kind: &str,
        spawn: impl FnOnce(&mut Command) -> io::Result<Child>,
    ) -> Result<Agent, ApiError> {
        class.check(end_point)?;
        let mut command = class.of(Command::new(guest_binary()));
        command.args(["agent", "--stdio", "--kind", kind]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = spawn(&mut command).map_err(|error| {
            ApiError::new(
                ErrorKind::Unavailable,
                format!("the agent of {end_point} could not be started: {command:?}"),
                "install taut-guest beside taut or in PATH, and util-linux; run taut as root",
            )
            .because(&error)
        })?;
        let mut process = Process(child);
        let (input, output) =
            process.0.stdout.take().zip(process.0.stdin.take()).expect("both were asked for");
        match Agent::over(end_point.to_string(), input.into(), output.into(), PATIENCE) {
            Ok(agent) => {
                self.processes.push(process);
                Ok(agent)
            }
            Err(error @ ClientError::Closed { .. }) => Err(ended(end_point, &command, process, &error)),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Sends a request and waits for the answer.
    pub(super) fn ask(&mut self, id: Id, request: Request, patience: Duration) -> Result<Answer, ApiError> {
        self.all[id.0].agent.call(request, patience).map_err(|error| failed(&error))
    }

    /// Returns the error for an answer that does not fit the request.
    pub(super) fn confused(&self, id: Id) -> ApiError {
        failed(&self.all[id.0].agent.confused())
    }

    /// Returns the kind of machine that the agent runs on.
    pub(super) fn kind(&self, id: Id) -> Kind {
        self.all[id.0].agent.hello().kind
    }

    /// Returns the end point as the user named it.
    pub(super) fn end_point(&self, id: Id) -> &EndPoint {
        &self.all[id.0].end_point
    }

    /// Returns the end point for the report.
    pub(super) fn describe(&self, id: Id) -> report::EndPoint {
        let Party { end_point, accelerator, agent } = &self.all[id.0];
        let hello = agent.hello();
        report::EndPoint {
            name: end_point.to_string(),
            kind: output::word(&hello.kind),
            kernel: hello.kernel.clone(),
            address: None,
            accelerator: accelerator.clone(),
        }
    }
}

/// Returns the error for an agent that ended before it said hello.
fn ended(end_point: &EndPoint, command: &Command, mut process: Process, error: &ClientError) -> ApiError {
    // A process that only closed its output is no agent any more.
    let _ = process.0.kill();
    let how = process.0.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
    ApiError::new(
        ErrorKind::Unavailable,
        format!("the agent of {end_point} ended as soon as it was started ({how}): {command:?}"),
        "see its own message above, or run the command by hand",
    )
    .because(error)
}

/// Returns the namespace that `name` means: that of the attachment with this name, or else the
/// namespace with this name.
fn netns_of(client: &Client, name: &str) -> Result<String, ApiError> {
    let attachments: Vec<Netns> = client.get(path::NETNS)?;
    let attached = attachments.into_iter().find(|attachment| attachment.name.as_str() == name);
    let netns = attached.map_or_else(|| name.to_owned(), |attachment| attachment.spec.netns);
    if !namespace::exists(&netns) {
        return Err(ApiError::new(
            ErrorKind::NotFound,
            format!("there is no network namespace {netns}"),
            format!("make it: taut netns attach {netns} --portgroup PORTGROUP --ip ADDRESS/PREFIX"),
        ));
    }
    Ok(netns)
}

/// Returns the path of `taut-guest`: beside this program, or found in PATH.
fn guest_binary() -> PathBuf {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name("taut-guest"));
    beside.filter(|path| path.exists()).unwrap_or_else(|| "taut-guest".into())
}
