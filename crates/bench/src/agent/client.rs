//! The caller's side of a conversation.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::protocol::{AgentError, Answer, Call, Hello, MAX_LINE, Outcome, PROTOCOL, Reply, Request};

/// A conversation with an agent; one call at a time.
pub struct Client {
    channel: Channel,
    hello: Hello,
}

/// Calls and replies, before anybody knows who answers.
struct Channel {
    /// Who is spoken to, for messages.
    name: String,
    input: File,
    output: File,
    /// Read, but not yet a whole line.
    pending: Vec<u8>,
    next_id: u64,
}

/// Why an agent could not be spoken to.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens there.
    #[error("cannot connect to the agent {name}")]
    Connect {
        /// Who was spoken to.
        name: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The connection broke.
    #[error("the connection to the agent {name} failed")]
    Broken {
        /// Who was spoken to.
        name: String,
        /// How.
        #[source]
        source: io::Error,
    },
    /// The agent, or the machine that it is in, has gone.
    #[error("the agent {name} has closed its connection")]
    Closed {
        /// Who was spoken to.
        name: String,
    },
    /// Nothing came.
    #[error("the agent {name} gave no answer within {} s", after.as_secs())]
    Silent {
        /// Who was spoken to.
        name: String,
        /// How long was waited.
        after: Duration,
    },
    /// It speaks another version of the protocol.
    #[error("the agent {name} speaks protocol version {theirs}, this program {PROTOCOL}")]
    Version {
        /// Who was spoken to.
        name: String,
        /// Its version.
        theirs: u32,
    },
    /// It answered something else than what was asked.
    #[error("the agent {name} answered something else than what it was asked")]
    Confused {
        /// Who was spoken to.
        name: String,
    },
    /// It was asked, and could not.
    #[error("the agent {name} could not do it")]
    Failed {
        /// Who was spoken to.
        name: String,
        /// Why not.
        #[source]
        source: AgentError,
    },
}

impl ClientError {
    /// What to do about it.
    pub fn hint(&self) -> &str {
        match self {
            Self::Connect { .. } => "is the machine running? `taut vm list` says",
            Self::Broken { .. } | Self::Closed { .. } => "did the machine stop meanwhile? `taut events` says",
            Self::Silent { .. } => {
                "the guest may still be booting, run no agent (`taut-guest agent`), or another program may hold \
                 its agent channel, which takes one at a time"
            }
            Self::Version { .. } => "install the `taut-guest` that came with this program in the guest",
            Self::Confused { .. } => "this is a fault of the agent; is it the `taut-guest` of this version?",
            Self::Failed { source, .. } => &source.hint,
        }
    }
}

impl Client {
    /// Connects to the Unix socket of an agent and says hello. `patience` bounds the wait for the answer: a channel
    /// into a guest takes the connection long before an agent runs inside.
    pub fn connect(path: &Path, patience: Duration) -> Result<Self, ClientError> {
        let name = path.display().to_string();
        let connect = || {
            let stream = UnixStream::connect(path)?;
            Ok((stream.try_clone()?, stream))
        };
        let (input, output) =
            connect().map_err(|source| ClientError::Connect { name: name.clone(), source })?;
        Self::over(name, input.into(), output.into(), patience)
    }

    /// The same over any pair of descriptors, such as the standard output and input of a process. `name` is how errors
    /// call the agent.
    pub fn over(
        name: impl Into<String>,
        input: OwnedFd,
        output: OwnedFd,
        patience: Duration,
    ) -> Result<Self, ClientError> {
        // Ids start anywhere, so that late replies to a predecessor on this channel are not taken for ours.
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let mut channel = Channel {
            name: name.into(),
            input: input.into(),
            output: output.into(),
            pending: Vec::new(),
            next_id: now.as_nanos() as u64 >> 11,
        };
        // The empty line ends a half line that a predecessor may have left.
        channel.send(b"\n")?;
        let Answer::Hello(hello) = channel.call(Request::Hello, patience, || {})? else {
            return Err(ClientError::Confused { name: channel.name });
        };
        if hello.protocol != PROTOCOL {
            return Err(ClientError::Version { name: channel.name, theirs: hello.protocol });
        }
        Ok(Self { channel, hello })
    }

    /// Who answers.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Asks, and waits for the answer, at most for `patience`. A measurement needs its own duration and some seconds.
    pub fn call(&mut self, request: Request, patience: Duration) -> Result<Answer, ClientError> {
        self.channel.call(request, patience, || {})
    }

    /// The same; `started` is called when the measurement begins.
    pub fn call_and_watch(
        &mut self,
        request: Request,
        patience: Duration,
        started: impl FnMut(),
    ) -> Result<Answer, ClientError> {
        self.channel.call(request, patience, started)
    }

    /// The error for an answer of another kind than the request asks for.
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
            // What cannot be read, or is for somebody else, was left behind by a predecessor.
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

    /// The next line; none when there is none by `end`.
    fn next_line(&mut self, end: Instant) -> Result<Option<Vec<u8>>, ClientError> {
        let mut searched = 0;
        loop {
            if let Some(at) = self.pending[searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.pending.split_off(searched + at + 1);
                return Ok(Some(std::mem::replace(&mut self.pending, rest)));
            }
            if self.pending.len() > MAX_LINE {
                // Not an agent's line; what follows its newline may be one.
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

    /// Waits until there is something to read; false when there is nothing by `end`.
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
