//! Requests to the kernel over netlink: network interfaces ([`Links`], [`Interface`]) and what the
//! host uses them for, what they pass on to the host ([`ingress`]), and their cards ([`Ethtool`]).
//!
//! The library `neli` builds and reads the messages. A [`Netlink`] has one request under way at a
//! time and waits for its answer, so that it needs neither a thread nor an async runtime.

pub(crate) mod ethtool;
pub mod ingress;
mod interface;
mod links;
mod patience;
mod uses;

use std::fmt::Debug;
use std::io;

use neli::attr::Attribute as _;
use neli::consts::nl::{NlType, NlmF, NlmsgerrAttr};
use neli::consts::socket::NlFamily;
use neli::err::{Nlmsgerr, SocketError};
use neli::nl::{NlPayload, Nlmsghdr, NlmsghdrBuilder};
use neli::socket::synchronous::NlSocketHandle;
use neli::utils::Groups;
use neli::{FromBytesWithInput, Size, ToBytes};

pub use ethtool::Ethtool;
pub use interface::Interface;
pub use links::Links;
use patience::{PATIENCE, limit_waits};

/// A socket of one netlink family, in the network namespace of the thread that opened it.
struct Netlink {
    socket: NlSocketHandle,
    /// Number of the latest request; the answer carries the same number.
    sequence: u32,
}

impl Netlink {
    fn open(family: NlFamily) -> io::Result<Self> {
        let socket = NlSocketHandle::connect(family, None, Groups::empty()).map_err(error_of)?;
        limit_waits(&socket)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Lets the kernel explain its refusals in words.
    fn explain_refusals(&self) -> io::Result<()> {
        self.socket.enable_ext_ack(true).map_err(error_of)
    }

    /// Sends a request and waits for the kernel's answer.
    ///
    /// Returns none for a bare acknowledgement, which the kernel sends for requests with
    /// [`NlmF::ACK`]. A request must have either that flag or an answer, but not both.
    fn request<T, P>(&mut self, kind: T, flags: NlmF, payload: P) -> io::Result<Option<P>>
    where
        T: NlType + Debug,
        P: Size + ToBytes + FromBytesWithInput<Input = usize> + Clone + Debug,
    {
        self.send(kind, flags, payload)?;
        loop {
            if let Some(answer) = self.receive::<T, P>()?.into_iter().next() {
                return answer;
            }
        }
    }

    /// Asks for a list, and waits until it is complete.
    fn list<T, P>(&mut self, kind: T, payload: P) -> io::Result<Vec<P>>
    where
        T: NlType + Debug,
        P: Size + ToBytes + FromBytesWithInput<Input = usize> + Clone + Debug,
    {
        self.send(kind, NlmF::DUMP, payload)?;
        let mut list = Vec::new();
        loop {
            for answer in self.receive::<T, P>()? {
                match answer? {
                    Some(entry) => list.push(entry),
                    // The message that ends the list.
                    None => return Ok(list),
                }
            }
        }
    }

    /// Reads messages, and returns those that answer the latest request: none for one without a
    /// payload, which acknowledges a request or ends a list.
    fn receive<T, P>(&self) -> io::Result<Vec<io::Result<Option<P>>>>
    where
        T: NlType + Debug,
        P: Size + FromBytesWithInput<Input = usize> + Clone + Debug,
    {
        let (messages, _) = self.socket.recv::<T, P>().map_err(error_of)?;
        let answer = |message: Result<Nlmsghdr<T, P>, SocketError>| match message {
            Err(error) => Some(Err(error_of(error))),
            // The answer to an earlier request whose caller gave up on an error.
            Ok(message) if *message.nl_seq() != self.sequence => None,
            Ok(message) => Some(match message.nl_payload() {
                NlPayload::Err(error) => Err(refusal(error)),
                NlPayload::Payload(payload) => Ok(Some(payload.clone())),
                _ => Ok(None),
            }),
        };
        Ok(messages.filter_map(answer).collect())
    }

    fn send<T, P>(&mut self, kind: T, flags: NlmF, payload: P) -> io::Result<()>
    where
        T: NlType + Debug,
        P: Size + ToBytes + Debug,
    {
        self.sequence = self.sequence.wrapping_add(1);
        let request = NlmsghdrBuilder::default()
            .nl_type(kind)
            .nl_flags(NlmF::REQUEST | flags)
            .nl_seq(self.sequence)
            .nl_payload(NlPayload::Payload(payload))
            .build()
            .map_err(io::Error::other)?;
        self.socket.send(&request).map_err(error_of)
    }
}

/// Returns the kernel's error, in its own words if it has any. These replace the error's number;
/// its kind remains, which is `Unsupported` for `EOPNOTSUPP`.
fn refusal<M>(error: &Nlmsgerr<M>) -> io::Error {
    let number = io::Error::from_raw_os_error(-*error.error());
    let attributes = error.ext_ack().get_attr_handle();
    let Some(words) = attributes.get_attribute(NlmsgerrAttr::Msg) else { return number };
    let words: &[u8] = words.payload().as_ref();
    let words = String::from_utf8_lossy(words.strip_suffix(&[0]).unwrap_or(words));
    let kind = if is_unsupported(&number) { io::ErrorKind::Unsupported } else { number.kind() };
    io::Error::new(kind, format!("{words} ({number})"))
}

/// Returns whether the kernel says that a driver does not have what it was asked for.
fn is_unsupported(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported || error.raw_os_error() == Some(nix::libc::EOPNOTSUPP)
}

/// Keeps the kernel's error number where there is one.
fn error_of(error: SocketError) -> io::Error {
    match error {
        SocketError::Io(cause) if cause.kind() == io::ErrorKind::WouldBlock => {
            io::Error::new(io::ErrorKind::TimedOut, format!("the kernel did not answer within {PATIENCE:?}"))
        }
        SocketError::Io(cause) => {
            cause.raw_os_error().map_or_else(|| cause.kind().into(), io::Error::from_raw_os_error)
        }
        other => io::Error::new(io::ErrorKind::InvalidData, other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use neli::consts::rtnl::Rtm;
    use neli::rtnl::Ifinfomsg;

    use super::*;

    #[test]
    fn an_answer_that_does_not_come_is_not_waited_for_without_end() {
        let netlink = Netlink::open(NlFamily::Route).unwrap();
        let begun = Instant::now();
        let error = netlink.receive::<Rtm, Ifinfomsg>().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() >= PATIENCE && begun.elapsed() < 4 * PATIENCE);
    }
}
