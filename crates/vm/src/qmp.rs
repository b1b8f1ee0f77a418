//! A blocking client for QEMU's monitor (QMP), with the few commands that taut uses.

mod kvm;
mod socket;

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub use self::socket::MonitorSocket;
pub(crate) use self::socket::connect_to;

/// Longest accepted line in bytes. QEMU's longest answers have some hundred bytes per vCPU, or at
/// most 27 KiB for the receive filter of each of at most 32 cards.
const MOST_LINE: usize = 1 << 20;
/// Number of characters of a malformed message that an error quotes.
const MOST_QUOTED: usize = 200;
/// Number of characters of each text in QEMU's error that is kept.
const MOST_REASON: usize = 2000;
/// Most bytes of events that are kept until somebody takes them.
const MOST_EVENTS: usize = 1 << 20;

/// A connection to the monitor of a QEMU, which serves one connection at a time.
#[derive(Debug)]
pub struct Qmp {
    socket: MonitorSocket,
    timeout: Duration,
    events: Vec<Event>,
    /// Length of the lines in which `events` came.
    event_bytes: usize,
}

/// An event that QEMU reported.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// QEMU's name, such as `SHUTDOWN`.
    pub name: String,
    /// Its data.
    pub data: Value,
}

/// Reason why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// The connection failed, timed out or ended.
    #[error("the QEMU monitor does not answer")]
    Io(#[from] io::Error),
    /// QEMU sent something that is not QMP.
    #[error("the QEMU monitor sent something that is not QMP: {0}")]
    Protocol(String),
    /// QEMU refused the command.
    #[error("QEMU refused {command}: {reason}")]
    Refused {
        /// The command.
        command: String,
        /// Class of the error, such as `GenericError`.
        class: String,
        /// Reason given by QEMU.
        reason: String,
    },
}

impl QmpError {
    /// Returns the error for an answer that is not of the expected form.
    pub(crate) fn unexpected(answer: &Value) -> Self {
        Self::Protocol(shortened(answer))
    }

    /// Returns whether QEMU refused a command because what it names does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { class, .. } if class == "DeviceNotFound")
    }
}

impl Qmp {
    /// Connects to the monitor at `path`. `timeout` limits this and every later command.
    ///
    /// # Errors
    /// [`QmpError::Io`] when nobody listens or the time is over, [`QmpError::Protocol`] when the
    /// peer is not a monitor.
    pub fn connect(path: &Path, timeout: Duration) -> Result<Self, QmpError> {
        Self::over(MonitorSocket::connect(path, timeout)?, timeout)
    }

    /// Greets the monitor at the other end of `socket`. `timeout` limits this and every later
    /// command.
    ///
    /// # Errors
    /// As [`Qmp::connect`].
    pub fn over(socket: MonitorSocket, timeout: Duration) -> Result<Self, QmpError> {
        socket.limit_sending(timeout)?;
        let mut qmp = Self { socket, timeout, events: Vec::new(), event_bytes: 0 };
        let (greeting, _) = qmp.message(Instant::now() + timeout)?;
        if greeting.get("QMP").is_none() {
            return Err(QmpError::Protocol(shortened(&greeting)));
        }
        qmp.execute("qmp_capabilities", &Value::Null)?;
        Ok(qmp)
    }

    /// Ends QEMU at once, without a shutdown of the guest.
    pub fn quit(&mut self) -> Result<(), QmpError> {
        self.execute("quit", &Value::Null).map(drop)
    }

    /// Presses the guest's power button (ACPI).
    pub fn powerdown(&mut self) -> Result<(), QmpError> {
        self.execute("system_powerdown", &Value::Null).map(drop)
    }

    /// QEMU's run state: `running`, `paused`, `shutdown`, `internal-error` …
    pub fn status(&mut self) -> Result<String, QmpError> {
        let answer = self.execute("query-status", &Value::Null)?;
        let status = answer["status"].as_str().ok_or_else(|| QmpError::Protocol(shortened(&answer)))?;
        Ok(status.to_owned())
    }

    /// The host thread of every vCPU, as (vCPU index, thread id), by index.
    pub fn vcpu_threads(&mut self) -> Result<Vec<(u32, i32)>, QmpError> {
        let answer = self.execute("query-cpus-fast", &Value::Null)?;
        let bad = || QmpError::Protocol(shortened(&answer));
        let thread = |cpu: &Value| {
            let index = u32::try_from(cpu["cpu-index"].as_u64()?).ok()?;
            let thread = i32::try_from(cpu["thread-id"].as_i64()?).ok()?;
            Some((index, thread))
        };
        let cpus = answer.as_array().ok_or_else(bad)?;
        let mut threads = cpus.iter().map(thread).collect::<Option<Vec<_>>>().ok_or_else(bad)?;
        threads.sort_unstable();
        Ok(threads)
    }

    /// Events that QEMU reported since the last call and that arrived while this client waited for
    /// answers.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.event_bytes = 0;
        std::mem::take(&mut self.events)
    }

    /// Waits for an event, which may have arrived before. Returns whether it came within
    /// `patience`. Other events are kept.
    pub(crate) fn wait_for(
        &mut self,
        wanted: impl Fn(&Event) -> bool,
        patience: Duration,
    ) -> Result<bool, QmpError> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(index) = self.events.iter().position(&wanted) {
                self.events.remove(index);
                if self.events.is_empty() {
                    self.event_bytes = 0;
                }
                return Ok(true);
            }
            let (message, len) = match self.message(deadline) {
                Err(QmpError::Io(error)) if timed_out(&error) => return Ok(false),
                message => message?,
            };
            self.note_event(message, len)?;
        }
    }

    /// Hands QEMU a descriptor, which later commands of this connection call `name`.
    pub(crate) fn hand(&mut self, name: &str, descriptor: BorrowedFd<'_>) -> Result<(), QmpError> {
        let deadline = Instant::now() + self.timeout;
        let line = request("getfd", &json!({ "fdname": name }));
        self.socket.send_with(&line, descriptor)?;
        self.answer("getfd", deadline).map(drop)
    }

    /// Hands QEMU a descriptor for its own use, marked with `opaque`. Returns its number there.
    pub(crate) fn add_descriptor(
        &mut self,
        opaque: &str,
        descriptor: BorrowedFd<'_>,
    ) -> Result<i64, QmpError> {
        let deadline = Instant::now() + self.timeout;
        let line = request("add-fd", &json!({ "opaque": opaque }));
        self.socket.send_with(&line, descriptor)?;
        let answer = self.answer("add-fd", deadline)?;
        answer["fd"].as_i64().ok_or_else(|| QmpError::unexpected(&answer))
    }

    /// Executes a command. [`Value::Null`] stands for no arguments.
    pub(crate) fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value, QmpError> {
        self.execute_within(self.timeout, command, arguments)
    }

    /// Executes a command that may take longer than others, or less long.
    pub(crate) fn execute_within(
        &mut self,
        patience: Duration,
        command: &str,
        arguments: &Value,
    ) -> Result<Value, QmpError> {
        let deadline = Instant::now() + patience;
        self.socket.send(&request(command, arguments))?;
        self.answer(command, deadline)
    }

    /// Waits for the answer to the command that was sent last. Keeps events that come before it.
    fn answer(&mut self, command: &str, deadline: Instant) -> Result<Value, QmpError> {
        loop {
            let (mut message, len) = self.message(deadline)?;
            if let Some(value) = message.get_mut("return") {
                return Ok(value.take());
            }
            if let Some(error) = message.get("error") {
                let text = |key: &str| {
                    error[key].as_str().map(|text| text.chars().take(MOST_REASON).collect::<String>())
                };
                let class = text("class").unwrap_or_default();
                let reason = text("desc").unwrap_or_else(|| "no reason given".to_owned());
                return Err(QmpError::Refused { command: command.to_owned(), class, reason });
            }
            self.note_event(message, len)?;
        }
    }

    /// Keeps an event, whose line had `len` bytes.
    fn note_event(&mut self, mut message: Value, len: usize) -> Result<(), QmpError> {
        let Some(name) = message["event"].as_str().map(str::to_owned) else {
            return Err(QmpError::Protocol(shortened(&message)));
        };
        self.event_bytes += len;
        if self.event_bytes > MOST_EVENTS {
            return Err(QmpError::Protocol(format!("events of more than {MOST_EVENTS} bytes")));
        }
        self.events.push(Event { name, data: message["data"].take() });
        Ok(())
    }

    /// Reads the next message. Returns it with the length of its line.
    fn message(&mut self, deadline: Instant) -> Result<(Value, usize), QmpError> {
        let line = self.line(deadline)?;
        let message = serde_json::from_slice(&line).ok().filter(Value::is_object);
        message.map(|message| (message, line.len())).ok_or_else(|| {
            QmpError::Protocol(String::from_utf8_lossy(&line).trim().chars().take(MOST_QUOTED).collect())
        })
    }

    /// Reads the next line, which must be complete by the deadline and not too long.
    fn line(&mut self, deadline: Instant) -> Result<Vec<u8>, QmpError> {
        let mut line = Vec::new();
        loop {
            let bytes = self.socket.bytes(deadline)?;
            let end = bytes.iter().position(|&byte| byte == b'\n');
            let taken = end.map_or(bytes.len(), |end| end + 1);
            line.extend_from_slice(&bytes[..taken]);
            self.socket.consume(taken);
            if end.is_some() {
                return Ok(line);
            }
            if line.len() > MOST_LINE {
                return Err(QmpError::Protocol(format!("a line of more than {MOST_LINE} bytes")));
            }
        }
    }
}

/// Returns the line that asks for a command.
fn request(command: &str, arguments: &Value) -> Vec<u8> {
    let mut request = json!({ "execute": command });
    if !arguments.is_null() {
        request["arguments"] = arguments.clone();
    }
    let mut line = request.to_string().into_bytes();
    line.push(b'\n');
    line
}

fn timed_out(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

fn shortened(message: &Value) -> String {
    message.to_string().chars().take(MOST_QUOTED).collect()
}

#[cfg(test)]
mod tests;
