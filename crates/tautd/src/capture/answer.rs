//! The answer to the request for a capture: pcapng that goes on until the capture ends.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::{Bytes, HttpBody};
use hyper::body::Frame;
use taut_api::fabric::capture::{Ended, Message};

use super::Subject;
use super::pcapng::{self, Interface, Totals};
use super::reader::Reader;

/// Bytes that are collected before they are sent, if so many frames wait.
const PIECE: usize = 64 << 10;

/// The body of the answer. When it is dropped, the capture ends.
#[derive(Debug)]
pub(crate) struct Answer {
    reader: Reader,
    writer: Writer,
}

/// The pcapng that was not sent yet.
#[derive(Debug)]
struct Writer {
    out: Vec<u8>,
    totals: Totals,
    /// Number of frames that were lost before the last one that was captured.
    lost_before: u64,
    /// Number of frames that are still wanted; `None` without a limit.
    left: Option<u64>,
    is_over: bool,
    /// The daemon is ending.
    is_ending: Arc<AtomicBool>,
}

impl Answer {
    /// Begins the answer of a capture that is in force.
    pub(super) fn new(reader: Reader, subject: &Subject, is_ending: Arc<AtomicBool>) -> Self {
        let mut out = Vec::new();
        let (name, snaplen) = (format!("port {}", subject.port), subject.snaplen);
        pcapng::begin(&mut out, &Interface { name: &name, comment: &subject.owner, snaplen });
        let totals = Totals { begun_ns: now_ns(), ..Totals::default() };
        let left = subject.count;
        let writer = Writer { out, totals, lost_before: 0, left, is_over: false, is_ending };
        Self { reader, writer }
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Self { reader, writer } = self.get_mut();
        while !writer.is_over && writer.out.len() < PIECE {
            match reader.poll_next(cx) {
                Poll::Ready(message) => writer.add(message),
                Poll::Pending if writer.out.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        if writer.out.is_empty() {
            return Poll::Ready(None);
        }
        let piece = std::mem::take(&mut writer.out);
        Poll::Ready(Some(Ok(Frame::data(piece.into()))))
    }
}

impl Writer {
    /// Adds what a message of the fabric tells.
    fn add(&mut self, message: io::Result<Option<Message<'_>>>) {
        match message {
            Ok(Some(Message::Frame(record))) => {
                let lost = record.lost.saturating_sub(self.lost_before);
                self.lost_before = record.lost;
                self.totals.lost = self.totals.lost.max(record.lost);
                self.totals.captured += 1;
                pcapng::frame(&mut self.out, &record, lost);
                self.left = self.left.map(|left| left.saturating_sub(1));
                if self.left == Some(0) {
                    self.end(None);
                }
            }
            Ok(Some(Message::Lost(lost))) => {
                self.totals.lost = self.totals.lost.max(lost);
                pcapng::statistics(&mut self.out, now_ns(), &self.totals, None);
            }
            Ok(Some(Message::Begun)) => {}
            Ok(Some(Message::Ended(Ended::NoPort))) => {
                self.end(Some("the port is gone: it was removed, or its VM was stopped"));
            }
            Ok(Some(Message::Ended(Ended::TooMany | Ended::Failed))) => {
                self.end(Some("the fabric has ended it"));
            }
            Ok(None) if self.is_ending.load(Relaxed) => self.end(Some("tautd is ending")),
            Ok(None) => self.end(Some("the fabric has ended, or another one has taken over")),
            Err(error) => self.end(Some(&format!("the fabric's messages cannot be read: {error}"))),
        }
    }

    /// Ends the answer with the numbers of the capture. A reason tells that its end was not wanted.
    fn end(&mut self, reason: Option<&str>) {
        pcapng::statistics(&mut self.out, now_ns(), &self.totals, reason);
        self.is_over = true;
    }
}

/// Returns the wall clock in nanoseconds since the Unix epoch.
fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::os::fd::OwnedFd;

    use rustix::net::{SendFlags, send};
    use taut_api::fabric::capture::{Direction, Record};

    use super::super::Captures;
    use super::*;

    fn tell(fabric: &OwnedFd, message: &Message<'_>) {
        let bytes = if let Message::Frame(record) = message { record.bytes } else { &[] };
        send(fabric, &[&message.header()[..], bytes].concat(), SendFlags::empty()).unwrap();
    }

    fn frame(lost: u64) -> Message<'static> {
        let record =
            Record { at_ns: 1, lost, direction: Direction::Rx, dropped: None, len: 60, bytes: &[7; 60] };
        Message::Frame(record)
    }

    /// Begins a capture, tells its messages, and returns the kinds of the blocks of its answer.
    async fn blocks(count: Option<u64>, messages: &[Message<'_>]) -> Vec<u32> {
        let (opened, fabric) = Captures::default().open().unwrap();
        tell(&fabric, &Message::Begun);
        let subject = Subject { port: 1, owner: "vm/a/nic0".into(), snaplen: 96, count };
        let mut answer = opened.begun(&subject).await.unwrap();
        for message in messages {
            tell(&fabric, message);
        }
        drop(fabric);
        let mut bytes = Vec::new();
        while let Some(Ok(piece)) = poll_fn(|cx| Pin::new(&mut answer).poll_frame(cx)).await {
            bytes.extend(piece.into_data().unwrap());
        }
        let mut kinds = Vec::new();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
            kinds.push(word(0));
            rest = &rest[word(4) as usize..];
        }
        kinds
    }

    const BEGIN: [u32; 2] = [0x0a0d_0d0a, 1];

    #[tokio::test]
    async fn an_answer_has_all_frames_and_ends_with_the_numbers() {
        let got = blocks(None, &[frame(0), frame(0), Message::Lost(3), frame(4)]).await;
        assert_eq!(got, [&BEGIN[..], &[6, 6, 5, 6, 5]].concat());
        let many = vec![frame(0); 200];
        let got = blocks(None, &many).await;
        assert_eq!(got.len(), 2 + 200 + 1);
    }

    #[tokio::test]
    async fn an_answer_ends_after_the_wanted_number_of_frames_or_with_the_port() {
        let got = blocks(Some(2), &[frame(0), frame(0), frame(0)]).await;
        assert_eq!(got, [&BEGIN[..], &[6, 6, 5]].concat());
        let got = blocks(None, &[Message::Ended(Ended::NoPort), frame(0)]).await;
        assert_eq!(got, [&BEGIN[..], &[5]].concat());
    }
}
