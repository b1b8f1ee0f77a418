//! The server's side of one measurement's connection; see [`taut_bench::wire`].

use taut_bench::wire::pattern::Checked;
use taut_bench::wire::{OPENING_LENGTH, Opening};

use super::Next;
use super::server::Served;
use crate::machine::Socket;

/// State of a conversation.
pub(crate) enum Conversation {
    /// Bytes of the opening so far.
    Opening { bytes: [u8; OPENING_LENGTH], len: usize },
    /// Bytes missing of the current request, and bytes of responses still to send.
    RequestResponse { request: usize, response: usize, missing: usize, owed: usize },
    /// Bytes read so far, and their check if the stream is checked.
    Stream { receive: usize, total: u64, checked: Option<Checked> },
}

impl Default for Conversation {
    fn default() -> Self {
        Self::Opening { bytes: [0; OPENING_LENGTH], len: 0 }
    }
}

impl Served for Conversation {
    fn poll(&mut self, socket: &mut Socket<'_>) -> Next {
        let mut progress = Next::Idle;
        loop {
            let step = match self {
                Self::Opening { bytes, len } => match read_opening(socket, bytes, len) {
                    Ok(Some(Opening::RequestResponse { request, response })) => {
                        let (request, response) = (request as usize, response as usize);
                        *self = Self::RequestResponse { request, response, missing: request, owed: 0 };
                        true
                    }
                    Ok(Some(Opening::Stream { receive, check })) => {
                        let checked = check.then(Checked::default);
                        if checked.is_none() {
                            socket.only_counts();
                        }
                        *self = Self::Stream { receive: receive as usize, total: 0, checked };
                        true
                    }
                    Ok(None) => false,
                    Err(NotAnOpening) => return Next::Done,
                },
                Self::RequestResponse { request, response, missing, owed } => {
                    let sent = socket.send_any(*owed);
                    *owed -= sent;
                    let received = skip(socket, *missing);
                    *missing -= received;
                    if *missing == 0 {
                        (*missing, *owed) = (*request, *owed + *response);
                    }
                    sent + received > 0
                }
                Self::Stream { receive, total, checked } => {
                    let received = take(socket, *receive, |piece| {
                        if let Some(checked) = checked {
                            checked.came(piece);
                        }
                    });
                    *total += received as u64;
                    if received == 0 && !socket.may_receive() && socket.may_send() {
                        // These are the first bytes: there is room for the whole number, or the
                        // machine has none at all.
                        let confirmed = checked.map_or(*total, |checked| checked.right());
                        return if socket.send(&confirmed.to_be_bytes()) > 0 { Next::Done } else { progress };
                    }
                    received > 0
                }
            };
            if !step {
                break;
            }
            progress = Next::Again;
        }
        if socket.may_receive() { progress } else { Next::Done }
    }
}

struct NotAnOpening;

fn read_opening(
    socket: &mut Socket<'_>,
    bytes: &mut [u8; OPENING_LENGTH],
    len: &mut usize,
) -> Result<Option<Opening>, NotAnOpening> {
    *len += socket.receive(&mut bytes[*len..]);
    if *len < OPENING_LENGTH {
        return Ok(None);
    }
    Opening::decode(*bytes).map(Some).ok_or(NotAnOpening)
}

/// Removes up to `len` bytes that have arrived. Returns how many.
pub(super) fn skip(socket: &mut Socket<'_>, len: usize) -> usize {
    take(socket, len, |_| ())
}

/// Like [`skip`], and passes the bytes to `look`.
fn take(socket: &mut Socket<'_>, len: usize, mut look: impl FnMut(&[u8])) -> usize {
    let mut received = 0;
    while received < len {
        match socket.take(len - received, &mut look) {
            0 => break,
            count => received += count,
        }
    }
    received
}
