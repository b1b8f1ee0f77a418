//! The agent's side of a conversation.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Scope};
use std::time::Instant;

use super::backend::{Backend, Run, Serving, Spinning, Stop};
use super::lines::{self, Line};
use super::protocol::{AgentError, Answer, Call, MAX_LINE, Outcome, Reply, Request, Server, Work};

/// Most concurrent measurements.
const MAX_MEASUREMENTS: usize = 32;
/// Most concurrent servers.
const MAX_SERVERS: usize = 64;

/// Answers calls from `reader` on `writer` until `reader` ends, then ends everything that they
/// started.
///
/// Returns the errors of `reader`. If nobody reads the replies, calls are executed anyway.
pub fn serve(reader: impl Read, writer: impl Write + Send, backend: &dyn Backend) -> io::Result<()> {
    let session = Session { backend, writer: Mutex::new(writer), measuring: AtomicUsize::new(0) };
    thread::scope(|scope| session.answer_all(&mut BufReader::new(reader), scope))
}

struct Session<'a, W> {
    backend: &'a dyn Backend,
    writer: Mutex<W>,
    measuring: AtomicUsize,
}

/// Everything that the current caller has started. Dropping it ends that.
#[derive(Default)]
struct Conversation {
    stop: Arc<Stop>,
    servers: Vec<Box<dyn Serving>>,
    /// The running computation, and its start.
    spinning: Option<(Box<dyn Spinning>, Instant)>,
}

impl Conversation {
    fn spin(&mut self, backend: &dyn Backend) -> Result<Answer, AgentError> {
        if self.spinning.is_none() {
            let began = Instant::now();
            self.spinning = Some((backend.spin()?, began));
        }
        Ok(Answer::Ok)
    }

    fn work(&self) -> Result<Answer, AgentError> {
        let (spinning, began) = self.spinning.as_ref().ok_or_else(|| {
            AgentError::new("nothing is being computed", "send `spin` first; `hello` ends it")
        })?;
        let units = spinning.units();
        Ok(Answer::Work(Work { units, elapsed_us: began.elapsed().as_micros() as u64 }))
    }

    fn rest(&mut self) -> Answer {
        self.spinning = None;
        Answer::Ok
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.stop.raise();
    }
}

impl<W: Write + Send> Session<'_, W> {
    fn answer_all<'scope>(
        &'scope self,
        reader: &mut impl BufRead,
        scope: &'scope Scope<'scope, '_>,
    ) -> io::Result<()> {
        let mut conversation = Conversation::default();
        loop {
            let call = match lines::next(reader)? {
                Line::End => return Ok(()),
                Line::Whole(line) if line.is_empty() => continue,
                Line::Whole(line) => serde_json::from_slice(&line).map_err(|error| no_call(&error)),
                Line::TooLong => Err(too_long()),
            };
            match call {
                Ok(call) => self.answer(call, &mut conversation, scope),
                Err(error) => self.reply(None, Outcome::Failed(error)),
            }
        }
    }

    fn answer<'scope>(
        &'scope self,
        call: Call,
        conversation: &mut Conversation,
        scope: &'scope Scope<'scope, '_>,
    ) {
        let done = match call.request {
            Request::Hello => {
                *conversation = Conversation::default();
                Ok(Answer::Hello(self.backend.hello()))
            }
            Request::Addresses => self.backend.addresses().map(Answer::Addresses),
            Request::Configure(wanted) => self.backend.configure(&wanted).map(|()| Answer::Ok),
            Request::Cid => self.backend.cid().map(Answer::Cid),
            Request::Cpu => self.backend.cpu().map(Answer::Cpu),
            Request::Spin => conversation.spin(self.backend),
            Request::Work => conversation.work(),
            Request::Rest => Ok(conversation.rest()),
            Request::Check(wanted) => self.backend.check(&wanted.profile).map(Answer::Checked),
            Request::Serve(_) if conversation.servers.len() == MAX_SERVERS => Err(AgentError::new(
                format!("{MAX_SERVERS} servers run already"),
                "send `hello`, which ends them",
            )),
            Request::Serve(wanted) => self.backend.serve(&wanted).map(|server| {
                let port = server.port();
                conversation.servers.push(server);
                Answer::Server(Server { port })
            }),
            Request::Poweroff => {
                self.reply(Some(call.id), Outcome::Done(Answer::Ok));
                return self.backend.poweroff().unwrap_or_else(|error| {
                    self.reply(None, Outcome::Failed(error));
                });
            }
            measurement @ (Request::Ping(_)
            | Request::Rr(_)
            | Request::Puts(_)
            | Request::Stream(_)
            | Request::Probe(_)
            | Request::WakeUps(_)) => {
                return self.measure(call.id, measurement, &conversation.stop, scope);
            }
        };
        self.reply(Some(call.id), Outcome::from(done));
    }

    /// Runs a measurement on a thread of its own.
    fn measure<'scope>(
        &'scope self,
        id: u64,
        request: Request,
        stop: &Arc<Stop>,
        scope: &'scope Scope<'scope, '_>,
    ) {
        if self.measuring.fetch_add(1, Ordering::Relaxed) >= MAX_MEASUREMENTS {
            self.measuring.fetch_sub(1, Ordering::Relaxed);
            let message = format!("{MAX_MEASUREMENTS} measurements run already");
            return self
                .reply(Some(id), Outcome::Failed(AgentError::new(message, "wait until one has ended")));
        }
        let stop = Arc::clone(stop);
        scope.spawn(move || {
            let started = || self.reply(Some(id), Outcome::Started);
            let run = Run::new(&stop, &started);
            let done = match request {
                Request::Ping(wanted) => self.backend.ping(&wanted, &run).map(Answer::Latency),
                Request::Rr(wanted) => self.backend.rr(&wanted, &run).map(Answer::Latency),
                Request::Puts(wanted) => self.backend.puts(&wanted, &run).map(Answer::Latency),
                Request::Stream(wanted) => self.backend.stream(&wanted, &run).map(Answer::Throughput),
                Request::Probe(wanted) => self.backend.probe(&wanted, &run).map(Answer::Probed),
                Request::WakeUps(wanted) => self.backend.wake_ups(&wanted, &run).map(Answer::WakeUps),
                _ => unreachable!("only measurements come here"),
            };
            self.measuring.fetch_sub(1, Ordering::Relaxed);
            self.reply(Some(id), Outcome::from(done));
        });
    }

    fn reply(&self, id: Option<u64>, outcome: Outcome) {
        let mut line =
            serde_json::to_vec(&Reply { id, outcome }).expect("replies have no unserializable part");
        line.push(b'\n');
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a reader of replies, the channel's reading side will end as well.
        let _ = writer.write_all(&line).and_then(|()| writer.flush());
    }
}

impl From<Result<Answer, AgentError>> for Outcome {
    fn from(done: Result<Answer, AgentError>) -> Self {
        match done {
            Ok(answer) => Self::Done(answer),
            Err(error) => Self::Failed(error),
        }
    }
}

fn no_call(error: &serde_json::Error) -> AgentError {
    AgentError::new(
        format!("the line is not a call: {error}"),
        "write a call as {\"id\":1,\"request\":\"hello\"}",
    )
}

fn too_long() -> AgentError {
    AgentError::new(
        format!("the line is longer than {MAX_LINE} bytes"),
        "end each call with a newline; no call needs that many bytes",
    )
}
