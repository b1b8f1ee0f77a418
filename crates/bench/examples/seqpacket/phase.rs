//! A phase: one connection on which both ends send their messages at the same time, and compare
//! what arrives with the plan.

use std::io::{IoSlice, IoSliceMut};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, RecvMsg, ReturnFlags, SendAncillaryBuffer, SendFlags, recvmsg, sendmsg,
};
use taut_bench::kernel::vsock::set_buffer_size;

use crate::plan::{Message, Pattern, Plan, Reading};

/// Time after which a system call that does not return counts as a hang.
const PATIENCE: Duration = Duration::from_secs(60);
/// Length of the first message, which describes the phase.
const HELLO: usize = 48;
/// The answer to it.
const READY: &[u8] = b"ready";

/// Plan of a phase for both ends. The client sends it to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Phase {
    /// Seed of both directions.
    pub(crate) seed: u64,
    /// Messages in each direction.
    pub(crate) count: u64,
    /// Lengths of the messages.
    pub(crate) lens: RangeInclusive<usize>,
    /// Buffer size of both sockets.
    pub(crate) buffer: u32,
    /// Time before either end begins to read. Senders fill all buffers meanwhile.
    pub(crate) pause: Duration,
}

/// Messages that an end of a phase has received.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Received {
    /// Messages, all of them as planned.
    pub(crate) messages: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Messages of which the receiver took a part only.
    pub(crate) truncated: u64,
}

impl Phase {
    fn to_bytes(&self) -> [u8; HELLO] {
        let words = [
            self.seed,
            self.count,
            *self.lens.start() as u64,
            *self.lens.end() as u64,
            self.buffer.into(),
            self.pause.as_millis() as u64,
        ];
        let mut bytes = [0; HELLO];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let mut words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8")));
        let mut next = || words.next().context("the first message is too short");
        Ok(Self {
            seed: next()?,
            count: next()?,
            lens: usize::try_from(next()?)?..=usize::try_from(next()?)?,
            buffer: u32::try_from(next()?)?,
            pause: Duration::from_millis(next()?),
        })
    }

    /// Runs the client's end: describes the phase, tries messages that are too long, and exchanges
    /// the planned ones.
    pub(crate) fn drive(&self, socket: &OwnedFd) -> Result<Received> {
        set_patience(socket)?;
        send(socket, &[&self.to_bytes()], false)?;
        let mut room = [0; HELLO];
        let answer = receive(socket, &mut room, RecvFlags::empty()).context("no answer")?;
        ensure!(room[..answer.bytes] == *READY, "the answer has {} bytes", answer.bytes);

        let received = self.exchange(socket, 0)?;
        let answer = receive(socket, &mut room, RecvFlags::empty()).context("no result")?;
        let there = Received::from_bytes(&room[..answer.bytes])?;
        ensure!(there.messages == self.count, "{} of {} messages arrived", there.messages, self.count);
        rustix::net::shutdown(socket, rustix::net::Shutdown::Write)?;
        let end = receive(socket, &mut room, RecvFlags::empty()).context("no end")?;
        ensure!(end.bytes == 0, "{} bytes behind the result", end.bytes);
        Ok(received)
    }

    /// Runs the server's end.
    pub(crate) fn serve(socket: &OwnedFd) -> Result<(Self, Received)> {
        set_patience(socket)?;
        let mut room = [0; HELLO];
        let hello = receive(socket, &mut room, RecvFlags::empty()).context("no first message")?;
        let phase = Self::from_bytes(&room[..hello.bytes])?;
        set_buffer_size(socket, phase.buffer)?;
        send(socket, &[READY], false)?;
        let received = phase.exchange(socket, 1)?;
        send(socket, &[&received.to_bytes()], true)?;
        let end = receive(socket, &mut room, RecvFlags::empty()).context("no end")?;
        ensure!(end.bytes == 0, "{} bytes behind the last message", end.bytes);
        Ok((phase, received))
    }

    /// Sends one direction and receives the other. `side` is 0 for the client, 1 for the server.
    fn exchange(&self, socket: &OwnedFd, side: u64) -> Result<Received> {
        let pattern = Pattern::new(self.seed, *self.lens.end());
        let plan = |side: u64| Plan::new(self.seed + 1 + side, self.count, self.lens.clone());
        thread::scope(|scope| {
            let sending = scope.spawn(|| {
                refuse_too_long(socket, self.buffer as usize)?;
                for (number, message) in plan(side).enumerate() {
                    let content = pattern.of(&message);
                    let part = content.len().div_ceil(message.parts);
                    let parts: Vec<&[u8]> = content.chunks(part).collect();
                    send(socket, &parts, message.ends_record)
                        .with_context(|| format!("message {number}, {} bytes", message.len))?;
                }
                Ok(())
            });
            thread::sleep(self.pause);
            let received = self.receive_all(socket, &pattern, plan(1 - side));
            let sent: Result<()> = sending.join().expect("the sender does not panic");
            // An end that could not send has a peer that could not receive.
            sent.context("not sent")?;
            received
        })
    }

    fn receive_all(&self, socket: &OwnedFd, pattern: &Pattern, plan: Plan) -> Result<Received> {
        let mut room = vec![0; *self.lens.end() + 1];
        let mut received = Received::default();
        for (number, message) in plan.enumerate() {
            check(socket, &mut room, pattern, &message)
                .with_context(|| format!("message {number}, {message:?}"))?;
            received.messages += 1;
            received.bytes += message.len as u64;
            received.truncated += u64::from(message.reading != Reading::Whole);
        }
        Ok(received)
    }
}

impl Received {
    fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        for (to, word) in bytes.chunks_exact_mut(8).zip([self.messages, self.bytes, self.truncated]) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let words: Vec<u64> =
            bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8"))).collect();
        let [messages, bytes, truncated] = words[..] else { bail!("the result has {} words", words.len()) };
        Ok(Self { messages, bytes, truncated })
    }
}

/// Receives one message and compares it with the plan.
fn check(socket: &OwnedFd, room: &mut [u8], pattern: &Pattern, message: &Message) -> Result<()> {
    let (size, flags) = match message.reading {
        Reading::Whole => (message.len + 1, RecvFlags::empty()),
        Reading::Short(size) => (size, RecvFlags::empty()),
        Reading::ShortWithLength(size) => (size, RecvFlags::TRUNC),
    };
    let got = receive(socket, &mut room[..size], flags)?;
    let expected = if flags.is_empty() { message.len.min(size) } else { message.len };
    ensure!(got.bytes == expected, "{} bytes, not {expected}", got.bytes);
    let is_short = message.reading != Reading::Whole;
    ensure!(got.flags.contains(ReturnFlags::TRUNC) == is_short, "flags {:?}", got.flags);
    ensure!(got.flags.contains(ReturnFlags::EOR) == message.ends_record, "flags {:?}", got.flags);
    let kept = size.min(message.len);
    ensure!(room[..kept] == pattern.of(message)[..kept], "other bytes");
    Ok(())
}

/// Tries to send a message that is longer than the peer's buffer. Linux 6.1 reports every error of
/// a send as a lack of memory.
fn refuse_too_long(socket: &OwnedFd, buffer: usize) -> Result<()> {
    match send(socket, &[&vec![0; buffer + 1]], false) {
        Err(error) if matches!(error.downcast_ref(), Some(&(Errno::MSGSIZE | Errno::NOMEM))) => Ok(()),
        Err(error) => Err(error.context("a message that is too long")),
        Ok(()) => bail!("a message that is longer than the peer's buffer was sent"),
    }
}

fn set_patience(socket: &OwnedFd) -> Result<()> {
    for direction in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(socket, direction, Some(PATIENCE))?;
    }
    Ok(())
}

/// Sends a message, given in parts.
fn send(socket: &OwnedFd, parts: &[&[u8]], ends_record: bool) -> Result<()> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let parts: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let flags = if ends_record { SendFlags::EOR } else { SendFlags::empty() };
    let sent = sendmsg(socket, &parts, &mut SendAncillaryBuffer::default(), flags | SendFlags::NOSIGNAL)?;
    ensure!(sent == len, "{sent} of {len} bytes were sent");
    Ok(())
}

fn receive(socket: &OwnedFd, room: &mut [u8], flags: RecvFlags) -> Result<RecvMsg> {
    let mut parts = [IoSliceMut::new(room)];
    Ok(recvmsg(socket, &mut parts, &mut RecvAncillaryBuffer::default(), flags)?)
}
