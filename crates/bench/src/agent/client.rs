//! The caller's side of a conversation with an agent.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::protocol::{AgentError, Answer, Call, Hello, MAX_LINE, Outcome, PROTOCOL, Reply, Request};

/// A conversation with an agent, one call at a time.
pub struct Client {
    channel: Channel,
    hello: Hello,
}

/// Calls and replies over a pair of descriptors, before the agent has introduced itself.
struct Channel {
    /// The agent's machine, as errors call it.
    name: String,
    input: File,
    output: File,
    /// Bytes read after the last complete line.
    pending: Vec<u8>,
    next_id: u64,
}

/// The reason why a call to an agent failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No agent listens there.
    #[error("cannot connect to the agent of {name}")]
    Connect {
        /// The agent's machine.
        name: String,
        /// Error of the connection.
        #[source]
        source: io::Error,
    },
    /// Reading or writing failed.
    #[error("the connection to the agent of {name} failed")]
    Broken {
        /// The agent's machine.
        name: String,
        /// Error of the connection.
        #[source]
        source: io::Error,
    },
    /// The agent, or its machine, closed the connection.
    #[error("the agent of {name} has closed its connection")]
    Closed {
        /// The agent's machine.
        name: String,
    },
    /// The agent did not answer in time.
    #[error("the agent of {name} gave no answer within {} s", after.as_secs())]
    Silent {
        /// The agent's machine.
        name: String,
        /// Time waited.
        after: Duration,
    },
    /// The agent speaks another version of the protocol.
    #[error("the agent of {name} speaks protocol version {theirs}, this program {PROTOCOL}")]
    Version {
        /// The agent's machine.
        name: String,
        /// The agent's version.
        theirs: u32,
    },
    /// The agent sent an answer that does not fit the request.
    #[error("the agent of {name} sent an answer that does not fit the request")]
    Confused {
        /// The agent's machine.
        name: String,
    },
    /// The agent could not do what was asked.
    #[error("the agent of {name} could not do what it was asked")]
    Failed {
        /// The agent's machine.
        name: String,
        /// The agent's error.
        #[source]
        source: AgentError,
    },
}

impl ClientError {
    /// Returns what the user can do about the error.
    pub fn hint(&self) -> &str {
        match self {
            Self::Connect { .. } => "start the machine if `taut vm list` does not show it running",
            Self::Broken { .. } | Self::Closed { .. } => {
                "`taut events` tells whether the machine has stopped"
            }
            Self::Silent { .. } => {
                "the guest may still be booting, or another program may hold its agent channel, which takes one \
                 at a time; if the guest has no agent, run `taut-guest agent` in it (docs/guide/operations.md)"
            }
            Self::Version { .. } => "install the `taut-guest` that came with this program in the guest",
            Self::Confused { .. } => "install the `taut-guest` of this version on that machine",
            Self::Failed { source, .. } => &source.hint,
        }
    }
}

impl Client {
    /// Connects to the Unix socket of an agent and says hello. Errors call its machine `name`.
    ///
    /// `patience` bounds the wait for the answer: a channel into a guest accepts the connection
    /// long before an agent runs inside.
    pub fn connect(name: impl Into<String>, path: &Path, patience: Duration) -> Result<Self, ClientError> {
        let name = name.into();
        let connect = || {
            let stream = UnixStream::connect(path)?;
            Ok((stream.try_clone()?, stream))
        };
        let (input, output) =
            connect().map_err(|source| ClientError::Connect { name: name.clone(), source })?;
        Self::over(name, input.into(), output.into(), patience)
    }

    /// Says hello over any pair of descriptors, such as the standard output and input of a process.
    /// Errors call the agent's machine `name`.
    pub fn over(
        name: impl Into<String>,
        input: OwnedFd,
        output: OwnedFd,
        patience: Duration,
    ) -> Result<Self, ClientError> {
        // Ids start at the current time, so that late replies to a predecessor do not match.
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Self::with_ids(name.into(), input, output, patience, now.as_nanos() as u64 >> 11)
    }

    /// As [`Self::over`], with `first` as the id of the first call. For tests that know the ids.
    #[doc(hidden)]
    pub fn with_ids(
        name: String,
        input: OwnedFd,
        output: OwnedFd,
        patience: Duration,
        first: u64,
    ) -> Result<Self, ClientError> {
        let (input, output) = (input.into(), output.into());
        let mut channel = Channel { name, input, output, pending: Vec::new(), next_id: first };
        // The empty line ends a line that a predecessor may have left incomplete.
        channel.send(b"\n")?;
        let Answer::Hello(hello) = channel.call(Request::Hello, patience, || {})? else {
            return Err(ClientError::Confused { name: channel.name });
        };
        if hello.protocol != PROTOCOL {
            return Err(ClientError::Version { name: channel.name, theirs: hello.protocol });
        }
        Ok(Self { channel, hello })
    }

    /// Returns the agent's introduction.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Sends a request and waits for the answer, at most for `patience`. A measurement needs its
    /// own duration and some seconds.
    pub fn call(&mut self, request: Request, patience: Duration) -> Result<Answer, ClientError> {
        self.channel.call(request, patience, || {})
    }

    /// Like [`Self::call`]; calls `started` when the measurement begins.
    pub fn call_and_watch(
        &mut self,
        request: Request,
        patience: Duration,
        started: impl FnMut(),
    ) -> Result<Answer, ClientError> {
        self.channel.call(request, patience, started)
    }

    /// Returns the error for an answer that does not fit the request.
    pub fn confused(&self) -> ClientError {
        ClientError::Confused { name: self.channel.name.clone() }
    }
}

impl Channel {
    fn call(
        &mut self,
        request: Request,
        patience: Duration,
        mut started: impl FnMut(),
    ) -> Result<Answer, ClientError> {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        let mut line = serde_json::to_vec(&Call { id, request }).expect("calls have no unserializable part");
        line.push(b'\n');
        self.send(&line)?;
        let end = Instant::now() + patience;
        loop {
            let Some(line) = self.next_line(end)? else {
                return Err(ClientError::Silent { name: self.name.clone(), after: patience });
            };
            // A reply to a predecessor, or the rest of one.
            let Ok(reply) = serde_json::from_slice::<Reply>(&line) else { continue };
            match reply.outcome {
                _ if reply.id != Some(id) => {}
                Outcome::Started => started(),
                Outcome::Done(answer) => return Ok(answer),
                Outcome::Failed(source) => {
                    return Err(ClientError::Failed { name: self.name.clone(), source });
                }
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.output.write_all(bytes).map_err(|source| self.broken(source))
    }

    /// Reads the next line; none if there is none by `end`.
    fn next_line(&mut self, end: Instant) -> Result<Option<Vec<u8>>, ClientError> {
        let mut searched = 0;
        loop {
            if let Some(at) = self.pending[searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.pending.split_off(searched + at + 1);
                return Ok(Some(std::mem::replace(&mut self.pending, rest)));
            }
            if self.pending.len() > MAX_LINE {
                // Too long for an agent's line. The next one may be valid.
                self.pending.clear();
            }
            searched = self.pending.len();
            if !self.wait(end).map_err(|source| self.broken(source))? {
                return Ok(None);
            }
            let mut buffer = [0; 16 << 10];
            match self.input.read(&mut buffer) {
                Ok(0) => return Err(ClientError::Closed { name: self.name.clone() }),
                Ok(length) => self.pending.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(self.broken(source)),
            }
        }
    }

    /// Waits until there is something to read. Returns false if there is nothing by `end`.
    fn wait(&self, end: Instant) -> io::Result<bool> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&self.input, PollFlags::IN)], Some(&timeout)) {
                Ok(0) => return Ok(false),
                Ok(_) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn broken(&self, source: io::Error) -> ClientError {
        ClientError::Broken { name: self.name.clone(), source }
    }
}
