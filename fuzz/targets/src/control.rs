//! Messages between `tautd` and the fabric, in both directions, with descriptors.
//!
//! Input: 1 byte for direction, form and number of descriptors, then the bytes. The length in front
//! of the body is right in most inputs.

use std::fmt::Debug;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde::Serialize;
use serde::de::DeserializeOwned;
use taut_api::fabric::channel::{MAX_FRAME, receive_within};
use taut_api::fabric::counters::MAX_PORTS;
use taut_api::fabric::message::Attachment;
use taut_api::fabric::session::SessionFd;
use taut_api::fabric::{FabricConfig, FromFabric, SessionRecord, ToFabric};
use taut_fabric::control::rig::{Validated, validate};

use crate::input::Input;
use crate::{Budget, Target};

/// This target. A frame is read into memory of its announced length.
pub const TARGET: Target =
    Target { name: "control", run, budget: Budget::of(100, 1 + MAX_FRAME / (1 << 20)) };

/// Longest input that the socket takes at once.
const MOST: usize = 64 << 10;
/// Time for a message. All bytes are there at once, so nothing waits.
const PATIENCE: Duration = Duration::from_secs(10);

fn run(data: &[u8]) {
    let mut input = Input(data);
    let bits = input.u8();
    let body = &input.0[..input.0.len().min(MOST)];
    let length = (body.len() as u32).to_le_bytes();
    let bytes = if bits & 0x80 == 0 { [&length[..], body].concat() } else { body.to_vec() };
    if bytes.is_empty() {
        return;
    }
    let descriptors = usize::from(bits >> 1 & 7);
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    let fds = [theirs.as_fd(); 7];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(7))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if descriptors > 0 {
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds[..descriptors])));
    }
    let sent = sendmsg(&theirs, &[IoSlice::new(&bytes)], &mut control, SendFlags::empty());
    assert_eq!(sent, Ok(bytes.len()));
    theirs.shutdown(Shutdown::Write).expect("a connected socket");
    if bits & 1 == 0 {
        if let Some(message) = received::<ToFabric>(&ours, descriptors) {
            to_fabric(&message);
        }
    } else if let Some(FromFabric::Session(record)) = received::<FromFabric>(&ours, descriptors) {
        check_record(&record);
    }
}

/// Receives a message, which can be sent on unchanged.
fn received<M>(socket: &UnixStream, descriptors: usize) -> Option<M>
where
    M: Serialize + DeserializeOwned + Debug + PartialEq,
{
    let (message, fds) = match receive_within::<M>(socket, PATIENCE) {
        Ok(received) => received.expect("a message, since bytes were sent"),
        Err(error) => {
            assert_ne!(error.kind(), std::io::ErrorKind::TimedOut);
            return None;
        }
    };
    assert_eq!(fds.len(), descriptors);
    let again = serde_json::to_vec(&message).expect("a message that was read can be written");
    assert!(again.len() <= MAX_FRAME);
    assert_eq!(serde_json::from_slice::<M>(&again).expect("and read"), message);
    Some(message)
}

fn to_fabric(message: &ToFabric) {
    match message {
        ToFabric::Configure(config) => check_config(config),
        ToFabric::Attach { via: Attachment::Session(record), .. } => check_record(record),
        _ => {}
    }
}

/// Each port is valid or refused with a reason. Valid ones have numbers of their own, in the range
/// of the counters file.
fn check_config(config: &FabricConfig) {
    let Validated { ports, sockets, refused } = validate(config);
    assert_eq!(ports.len() + sockets.len() + refused.len(), config.ports.len() + config.sockets.len());
    let mut numbers: Vec<_> = ports.into_iter().chain(sockets).collect();
    assert!(numbers.iter().all(|id| usize::from(id.0) < MAX_PORTS));
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), count, "a number is used twice");
    assert!(refused.iter().all(|(_, why)| !why.is_empty()));
}

/// Descriptors have one role each: the connection first, then memory, then those of the queues.
fn check_record(record: &SessionRecord) {
    let roles = record.descriptors();
    let flags = record.queues.iter().flat_map(|queue| [queue.kick, queue.call, queue.err]);
    let events = flags.filter(|is_there| *is_there).count();
    assert_eq!(roles.len(), 1 + record.memory.len() + events);
    assert_eq!(roles[0], SessionFd::Connection);
}
