//! Attaching, and every reason why an end is not attached.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket};
use taut_queue_pair::Status;
use taut_queue_pair::message::{AttachAnswer, AttachRequest, REQUEST_LEN};

use super::USUAL;
use super::fabric::{Device, Fabric};
use crate::control::Transport;
use crate::{Attached, NotAttached, Options};

const REQUEST: AttachRequest = AttachRequest { own_port: 1, peer_cid: 3, peer_port: 2 };

/// A fabric that answers with these bytes, each after a pause, and then hangs up or not.
#[derive(Clone)]
pub(super) struct Canned {
    pub(super) bytes: Vec<u8>,
    pub(super) hangs_up: bool,
}

impl Transport for Canned {
    fn request(&self, _stream: BorrowedFd<'_>) -> Result<AttachRequest, NotAttached> {
        Ok(REQUEST)
    }

    fn dial(&self, _until: Instant) -> Result<OwnedFd, Errno> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let Self { bytes, hangs_up } = self.clone();
        thread::spawn(move || {
            let mut request = [0; REQUEST_LEN];
            theirs.read_exact(&mut request).unwrap();
            assert_eq!(AttachRequest::from_bytes(&request).unwrap(), REQUEST);
            for part in bytes.chunks(5) {
                let _ = theirs.write_all(part);
                thread::yield_now();
            }
            if !hangs_up {
                let _ = theirs.read(&mut [0; 1]);
            }
        });
        Ok(ours.into())
    }
}

fn attach(answer: &[u8], hangs_up: bool, patience: Duration) -> Result<Attached, NotAttached> {
    let device = Device::new();
    let (stream, _peer) = UnixStream::pair().unwrap();
    let canned = Canned { bytes: answer.to_vec(), hangs_up };
    let options = Options { patience, ..device.options(USUAL) };
    Attached::attach_by(&canned, stream.as_fd(), &options)
}

fn refused(answer: &[u8]) -> NotAttached {
    attach(answer, false, Duration::from_secs(60)).unwrap_err()
}

#[test]
fn an_answer_in_pieces_attaches() {
    let answer = AttachAnswer { status: Status::Attached, channel: 7, by_packets: 1 << 40 };
    let attached = attach(&answer.to_bytes(), false, Duration::from_secs(60)).unwrap();
    assert_eq!((attached.channel(), attached.by_packets()), (7, 1 << 40));
}

#[test]
fn each_refusal_is_told() {
    for status in Status::ALL.into_iter().filter(|status| *status != Status::Attached) {
        let reason = refused(&AttachAnswer::refusal(status).to_bytes());
        assert!(matches!(reason, NotAttached::Declined(told) if told == status), "{reason:?}");
        assert!(!reason.is_unclear());
        assert!(!reason.to_string().is_empty() && !reason.hint().is_empty());
    }
}

#[test]
fn answers_without_a_meaning_are_refused() {
    let mut answer = AttachAnswer::refusal(Status::NoRegion).to_bytes();
    answer[4] = 99;
    assert!(matches!(refused(&answer), NotAttached::Answer(_)));
    answer[0] = 2;
    assert!(matches!(refused(&answer), NotAttached::Answer(_)));
    let far = AttachAnswer { status: Status::Attached, channel: 1_000_000, by_packets: 0 };
    assert!(matches!(refused(&far.to_bytes()), NotAttached::NoChannel { channel: 1_000_000, .. }));
}

#[test]
fn a_host_that_does_not_answer_is_not_waited_for_long() {
    let patience = Duration::from_millis(30);
    for part in [0, 31] {
        let begin = Instant::now();
        let answer = AttachAnswer::refusal(Status::Full).to_bytes();
        let reason = attach(&answer[..part], false, patience).unwrap_err();
        assert!(matches!(reason, NotAttached::Unanswered(limit) if limit == patience), "{reason:?}");
        assert!(reason.is_unclear());
        assert!(begin.elapsed() >= patience && begin.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn a_host_that_hangs_up_has_no_service() {
    for part in [0, 31] {
        let answer = AttachAnswer::refusal(Status::Full).to_bytes();
        let reason = attach(&answer[..part], true, Duration::from_secs(60)).unwrap_err();
        assert!(matches!(reason, NotAttached::NoService(_)), "{reason:?}");
    }
}

#[test]
fn without_a_device_nobody_is_asked() {
    struct Unreachable;
    impl Transport for Unreachable {
        fn request(&self, _stream: BorrowedFd<'_>) -> Result<AttachRequest, NotAttached> {
            Ok(REQUEST)
        }
        fn dial(&self, _until: Instant) -> Result<OwnedFd, Errno> {
            panic!("the fabric is asked although there is no device")
        }
    }
    let (stream, _peer) = UnixStream::pair().unwrap();
    let options = Options { device: Some("/nonexistent/dax0.0".into()), ..Options::default() };
    let reason = Attached::attach_by(&Unreachable, stream.as_fd(), &options).unwrap_err();
    assert!(matches!(reason, NotAttached::NoDevice));
}

#[test]
fn only_connected_stream_sockets_of_af_vsock_are_attached() {
    let (stream, _peer) = UnixStream::pair().unwrap();
    let reason = Attached::attach(&stream, &Options::default()).unwrap_err();
    assert!(matches!(reason, NotAttached::NotAStream(None)), "{reason:?}");
    let file = tempfile::tempfile().unwrap();
    assert!(matches!(Attached::attach(&file, &Options::default()), Err(NotAttached::NotAStream(None))));
    // The kernel of the machine may not know the family.
    if let Ok(vsock) = socket(AddressFamily::VSOCK, SocketType::STREAM, None) {
        let reason = Attached::attach(&vsock, &Options::default()).unwrap_err();
        assert!(matches!(reason, NotAttached::NotAStream(Some(_))), "{reason:?}");
    }
}

#[test]
fn the_service_of_this_machine_is_asked_with_a_limit() {
    let begin = Instant::now();
    // Without a device for vsock the address cannot be reached; with one, nothing listens there.
    let _ = crate::control::Vsock.dial(begin + Duration::from_millis(100));
    assert!(begin.elapsed() < Duration::from_secs(60));
}

#[test]
fn an_end_is_attached_once_and_its_socket_stays_open_with_the_handle() {
    let (fabric, [a, b]) = Fabric::start(0);
    let attached = fabric.attach(0, &a, USUAL).unwrap();
    let reason = fabric.attach(0, &a, USUAL).unwrap_err();
    assert!(matches!(reason, NotAttached::Declined(Status::AttachedAlready)), "{reason:?}");
    drop(a);
    (&attached).write_all(b"open").unwrap();
    let mut got = [0; 4];
    (&b).read_exact(&mut got).unwrap();
    assert_eq!(&got, b"open");
    // Everything that was written arrives, and then the end.
    (&attached).write_all(b"more").unwrap();
    attached.close();
    let mut rest = String::new();
    (&b).read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "more");
}
