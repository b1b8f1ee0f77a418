//! The agent on a port whose kernel notices the host's coming and going when the test decides.

use std::collections::VecDeque;

use taut_bench::agent;
use taut_bench::agent::protocol::{Kind, Outcome, Reply};
use taut_bench::kernel::Kernel;

use super::*;

/// Events that the kernel notices, one for each read, write or wait.
#[derive(Clone, Copy)]
enum Learns {
    Nothing,
    HostIsThere(bool),
    Bytes(&'static str),
}
use Learns::{Bytes, HostIsThere, Nothing};

/// A port like that of Linux' `virtio_console`. When all entries are used up, it is unplugged.
struct Virtual(Mutex<State>);

struct State {
    there: bool,
    received: VecDeque<u8>,
    sent: Vec<u8>,
    learns: VecDeque<Learns>,
    unplugged: bool,
}

impl Virtual {
    /// A port without a host.
    fn port(learns: &[Learns], patience: Duration) -> Port<Self> {
        let learns = learns.iter().copied().collect();
        let state =
            State { there: false, received: VecDeque::new(), sent: Vec::new(), learns, unplugged: false };
        Port::new(Self(Mutex::new(state)), patience)
    }
}

impl State {
    fn learn(&mut self) {
        match self.learns.pop_front() {
            Some(Nothing) => {}
            Some(HostIsThere(there)) => self.there = there,
            Some(Bytes(bytes)) => self.received.extend(bytes.as_bytes()),
            None => self.unplugged = true,
        }
    }
}

impl Device for Virtual {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.0.lock().unwrap();
        if state.unplugged {
            return Err(io::Error::other("unplugged"));
        }
        if state.received.is_empty() && !state.there {
            state.learn();
            return Ok(0);
        }
        if state.received.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.received.read(buffer)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.lock().unwrap();
        if state.unplugged {
            return Err(io::Error::other("unplugged"));
        }
        if !state.there {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.sent.extend(bytes);
        Ok(bytes.len())
    }

    fn poll(&self, _: PollFlags, _: Option<Duration>) -> io::Result<PollFlags> {
        let mut state = self.0.lock().unwrap();
        state.learn();
        Ok(if state.there { PollFlags::OUT } else { PollFlags::HUP | PollFlags::IN })
    }
}

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(3600);

/// Returns the ids of the calls that the agent answered, and whether it considered the host gone.
fn answered(learns: &[Learns], patience: Duration) -> (Vec<Option<u64>>, bool) {
    let port = Virtual::port(learns, patience);
    let ended = agent::serve(&port, &port, &Kernel::new(Kind::Guest)).is_ok();
    let sent = std::mem::take(&mut port.device.0.lock().unwrap().sent);
    let replies = String::from_utf8(sent).unwrap();
    let id = |line: &str| {
        let reply: Reply = serde_json::from_str(line).unwrap();
        assert!(matches!(reply.outcome, Outcome::Done(_)), "{line}");
        reply.id
    };
    (replies.lines().map(id).collect(), ended)
}

const HELLO: Learns = Bytes("\n{\"id\":7,\"request\":\"hello\"}\n");

#[test]
fn a_call_that_comes_before_its_host_is_noticed_is_answered() {
    let learns = [HELLO, Nothing, Nothing, HostIsThere(true)];
    assert_eq!(answered(&learns, LONG), (vec![Some(7)], false));
    // Without patience, replies are lost.
    let (replies, gone) = answered(&learns, Duration::ZERO);
    assert!(replies.is_empty() && gone);
}

#[test]
fn a_predecessor_s_late_hang_up_does_not_end_the_conversation() {
    let learns = [
        HostIsThere(true),
        HELLO,
        Bytes("{\"id\":8,\"requ"),
        HostIsThere(false),
        Nothing,
        HostIsThere(true),
        Bytes("est\":\"rest\"}\n"),
    ];
    assert_eq!(answered(&learns, LONG), (vec![Some(7), Some(8)], false));
}

#[test]
fn an_absent_host_counts_as_gone_after_a_while() {
    let port = Virtual::port(&[Nothing; 8], Duration::from_millis(1));
    assert_eq!((&port).read(&mut [0; 4]).unwrap(), 0);
    assert_eq!((&port).write(b"late").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    let port = Virtual::port(&[Nothing, HostIsThere(true)], LONG);
    port.wait_for_host().unwrap();
    assert_eq!((&port).write(b"yes").unwrap(), 3);
}
