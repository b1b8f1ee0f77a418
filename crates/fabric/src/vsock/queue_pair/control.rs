//! A control connection: the program's request, the answer, and signals to the program.
//!
//! The first bytes of the program are its request, all later ones are bells; one value also says
//! that the program gives its connection up. The fabric's first bytes are the answer, all later
//! ones are signals. A signal says "look at your rings", so while one waits to be delivered,
//! another one would say nothing more.

use taut_queue_pair::AttachAnswer;
use taut_queue_pair::message::{ANSWER_LEN, GIVE_UP, REQUEST_LEN};

use crate::vsock::proto::{ChannelIdx, Credit};

/// Size of the buffer that the fabric announces to the program. Bells need no more.
const CONTROL_BUFFER: u32 = 64 << 10;
/// Credit that the fabric gives at first.
pub(crate) const CONTROL_CREDIT: Credit = Credit { buf_alloc: CONTROL_BUFFER, fwd_cnt: 0 };
/// Value of a signal. It has no meaning.
const SIGNAL: u8 = b'!';

/// Number of words of [`Control::to_words`].
pub(crate) const CONTROL_WORDS: usize = 4 + REQUEST_LEN / 4 + ANSWER_LEN / 4;

/// A message that the program has sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// The request, if it is complete now.
    pub(crate) request: Option<[u8; REQUEST_LEN]>,
    /// There was at least one bell.
    pub(crate) bell: bool,
    /// The program cannot believe the words of its channel.
    pub(crate) gives_up: bool,
}

/// The state of a control connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Control {
    /// The request as far as it has come.
    request: [u8; REQUEST_LEN],
    gathered: usize,
    answer: [u8; ANSWER_LEN],
    /// Bytes of the answer that the program is still to be sent.
    answer_left: usize,
    /// The program is to be sent a signal.
    signal: bool,
    /// The channel of the end that this connection has attached.
    pub(crate) channel: Option<ChannelIdx>,
    /// Bytes taken that the program's guest has been told of, modulo 2³².
    pub(crate) advertised: u32,
}

impl Control {
    /// Number of bytes of a message that must be read: those that the request lacks, or the first
    /// one.
    pub(crate) fn wanted(&self) -> usize {
        self.lacks().max(1)
    }

    fn lacks(&self) -> usize {
        REQUEST_LEN - self.gathered
    }

    /// Takes up `len` bytes of the program. `bytes` are the first of them, as many as are wanted.
    pub(crate) fn take(&mut self, bytes: &[u8], len: usize) -> Taken {
        let lacks = self.lacks();
        let gives_up = lacks == 0 && bytes.first() == Some(&GIVE_UP);
        let part = bytes.len().min(lacks);
        self.request[self.gathered..self.gathered + part].copy_from_slice(&bytes[..part]);
        self.gathered += part;
        let request = (part > 0 && self.lacks() == 0).then_some(self.request);
        Taken { request, bell: len > lacks, gives_up }
    }

    /// Answers the request.
    pub(crate) fn answer(&mut self, answer: AttachAnswer) {
        self.answer = answer.to_bytes();
        self.answer_left = ANSWER_LEN;
    }

    /// Has the program look at its rings.
    pub(crate) fn signal(&mut self) {
        self.signal = true;
    }

    /// Number of bytes that the program is to be sent.
    pub(crate) fn waiting(&self) -> u32 {
        self.answer_left as u32 + u32::from(self.signal)
    }

    /// The bytes that the program is to be sent: as many as [`Self::waiting`] says.
    pub(crate) fn bytes(&self) -> [u8; ANSWER_LEN + 1] {
        let mut bytes = [SIGNAL; ANSWER_LEN + 1];
        bytes[..self.answer_left].copy_from_slice(&self.answer[ANSWER_LEN - self.answer_left..]);
        bytes
    }

    /// Notes that the program was sent the first `len` of its bytes.
    pub(crate) fn sent(&mut self, len: usize) {
        let of_answer = len.min(self.answer_left);
        self.answer_left -= of_answer;
        self.signal &= len == of_answer;
    }

    /// The state for the next fabric. The channel is not in it.
    pub(crate) fn to_words(self) -> [u32; CONTROL_WORDS] {
        let numbers = [self.gathered as u32, self.answer_left as u32, self.signal.into(), self.advertised];
        let texts = self.request.into_iter().chain(self.answer).collect::<Vec<_>>();
        let texts = texts.chunks_exact(4).map(|word| u32::from_le_bytes([0, 1, 2, 3].map(|at| word[at])));
        let mut words = [0; CONTROL_WORDS];
        words.iter_mut().zip(numbers.into_iter().chain(texts)).for_each(|(word, value)| *word = value);
        words
    }

    /// The state that [`Self::to_words`] has returned; `None` if it is not possible.
    pub(crate) fn from_words(words: [u32; CONTROL_WORDS]) -> Option<Self> {
        let [gathered, answer_left, signal, advertised, texts @ ..] = words;
        let mut texts = texts.into_iter().flat_map(u32::to_le_bytes);
        let mut control = Self {
            gathered: gathered as usize,
            answer_left: answer_left as usize,
            signal: signal != 0,
            advertised,
            ..Self::default()
        };
        control
            .request
            .iter_mut()
            .chain(&mut control.answer)
            .zip(&mut texts)
            .for_each(|(to, byte)| *to = byte);
        let is_possible = control.gathered <= REQUEST_LEN && control.answer_left <= ANSWER_LEN;
        is_possible.then_some(control)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_byte_after_the_request_gives_up() {
        let request = [GIVE_UP; REQUEST_LEN];
        for pieces in [&[REQUEST_LEN][..], &[1, 5, REQUEST_LEN - 6]] {
            let mut control = Control::default();
            let mut at = 0;
            for &len in pieces {
                let taken = control.take(&request[at..at + len], len);
                at += len;
                let is_complete = at == REQUEST_LEN;
                let expected = is_complete.then_some(request);
                assert_eq!(taken, Taken { request: expected, bell: false, gives_up: false });
            }
            for (value, gives_up) in [(0, false), (b'b', false), (GIVE_UP, true)] {
                assert_eq!(control.wanted(), 1);
                assert_eq!(control.take(&[value], 1), Taken { request: None, bell: true, gives_up });
            }
        }
    }
}
