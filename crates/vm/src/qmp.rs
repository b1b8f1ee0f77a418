//! QEMU's monitor (QMP): a blocking client for the few things that taut asks of a running QEMU.

mod kvm;

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longest line that is accepted, in bytes. QEMU's longest answers here are some hundred bytes per vCPU.
const MOST_LINE: usize = 1 << 20;
/// How much of a wrong message is quoted, in characters.
const MOST_QUOTED: usize = 200;

/// A connection to one QEMU's monitor. QEMU serves one at a time.
#[derive(Debug)]
pub struct Qmp {
    stream: BufReader<UnixStream>,
    timeout: Duration,
    events: Vec<Event>,
}

/// Something that QEMU reported by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// QEMU's name, such as `SHUTDOWN`.
    pub name: String,
    /// What belongs to it.
    pub data: Value,
}

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// The connection failed, timed out or ended.
    #[error("QEMU's monitor does not answer")]
    Io(#[from] io::Error),
    /// What came is not QMP.
    #[error("QEMU's monitor sent something that is not QMP: {0}")]
    Protocol(String),
    /// QEMU refused the command.
    #[error("QEMU refused {command}: {reason}")]
    Refused {
        /// The command.
        command: String,
        /// QEMU's words.
        reason: String,
    },
}

impl Qmp {
    /// Connects to the monitor at `path`. `timeout` bounds this and every later command.
    ///
    /// # Errors
    /// [`QmpError::Io`] when nobody listens or the time is over, [`QmpError::Protocol`] when it is no monitor.
    pub fn connect(path: &Path, timeout: Duration) -> Result<Self, QmpError> {
        let stream = UnixStream::connect(path)?;
        stream.set_write_timeout(Some(timeout))?;
        let mut qmp = Self { stream: BufReader::new(stream), timeout, events: Vec::new() };
        let greeting = qmp.message(Instant::now() + timeout)?;
        if greeting.get("QMP").is_none() {
            return Err(QmpError::Protocol(shortened(&greeting)));
        }
        qmp.execute("qmp_capabilities", &Value::Null)?;
        Ok(qmp)
    }

    /// Ends QEMU at once, as if the plug were pulled.
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

    /// What QEMU reported by itself since the last call, as far as it was seen while waiting for answers.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Waits for an event, or finds it among those that were seen before; tells whether it came within `patience`. Others are kept.
    pub(crate) fn wait_for(
        &mut self,
        wanted: impl Fn(&Event) -> bool,
        patience: Duration,
    ) -> Result<bool, QmpError> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(index) = self.events.iter().position(&wanted) {
                self.events.remove(index);
                return Ok(true);
            }
            let message = match self.message(deadline) {
                Err(QmpError::Io(error)) if timed_out(&error) => return Ok(false),
                message => message?,
            };
            self.note_event(message)?;
        }
    }

    /// Has a command carried out; no arguments are [`Value::Null`].
    pub(crate) fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value, QmpError> {
        let deadline = Instant::now() + self.timeout;
        let mut request = json!({ "execute": command });
        if !arguments.is_null() {
            request["arguments"] = arguments.clone();
        }
        let mut line = request.to_string();
        line.push('\n');
        self.stream.get_mut().write_all(line.as_bytes())?;
        loop {
            let mut message = self.message(deadline)?;
            if let Some(value) = message.get_mut("return") {
                return Ok(value.take());
            }
            if let Some(error) = message.get("error") {
                let reason = error["desc"].as_str().unwrap_or("no reason given").to_owned();
                return Err(QmpError::Refused { command: command.to_owned(), reason });
            }
            self.note_event(message)?;
        }
    }

    fn note_event(&mut self, mut message: Value) -> Result<(), QmpError> {
        let Some(name) = message["event"].as_str().map(str::to_owned) else {
            return Err(QmpError::Protocol(shortened(&message)));
        };
        self.events.push(Event { name, data: message["data"].take() });
        Ok(())
    }

    fn message(&mut self, deadline: Instant) -> Result<Value, QmpError> {
        let line = self.line(deadline)?;
        let message = serde_json::from_slice(&line).ok().filter(Value::is_object);
        message.ok_or_else(|| {
            QmpError::Protocol(String::from_utf8_lossy(&line).trim().chars().take(MOST_QUOTED).collect())
        })
    }

    /// The next line, whole by the deadline and within bounds.
    fn line(&mut self, deadline: Instant) -> Result<Vec<u8>, QmpError> {
        let mut line = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
            self.stream.get_ref().set_read_timeout(Some(left))?;
            let bytes = self.stream.fill_buf()?;
            if bytes.is_empty() {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            let end = bytes.iter().position(|&byte| byte == b'\n');
            let taken = end.map_or(bytes.len(), |end| end + 1);
            line.extend_from_slice(&bytes[..taken]);
            self.stream.consume(taken);
            if end.is_some() {
                return Ok(line);
            }
            if line.len() > MOST_LINE {
                return Err(QmpError::Protocol(format!("a line of more than {MOST_LINE} bytes")));
            }
        }
    }
}

fn timed_out(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

fn shortened(message: &Value) -> String {
    message.to_string().chars().take(MOST_QUOTED).collect()
}

#[cfg(test)]
mod tests;
