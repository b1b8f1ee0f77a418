//! A carrier between Unix sockets, which stand in for streams of `AF_VSOCK`.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixListener;

use rustix::io::write;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair, sockopt};

use super::super::frame::{hello, length};
use super::super::slots;
use super::*;
use crate::hidden::hide;

/// A carrier that runs in the thread of the test, and the program's end of its pair.
struct Bench {
    carrier: Carrier,
    program: OwnedFd,
}

impl Bench {
    fn new() -> Self {
        let listener = UnixListener::bind_addr(&unused()).unwrap();
        listener.set_nonblocking(true).unwrap();
        Self::with_listener(listener.as_raw_fd())
    }

    fn with_listener(listener: RawFd) -> Self {
        let (program, carrier_end) = super::super::pair().unwrap();
        let carrier_end = hide(carrier_end.as_raw_fd(), true).unwrap();
        let slot = slots::claim(sockopt::socket_cookie(&program).unwrap(), carrier_end).unwrap();
        assert!(slot.bind(1, hide(listener, true).unwrap()));
        Self { carrier: Carrier::new(slot), program }
    }

    /// Adds a stream with the socket of this machine at port 5. Returns its other end.
    fn peer(&mut self, cid: u32) -> OwnedFd {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
        let peer = Peer::accepted(self.carrier.slot, &ours, cid, Instant::now()).unwrap();
        self.carrier.peers.push(peer);
        assert_eq!(write(&theirs, &hello(5)), Ok(8));
        theirs
    }

    /// Lets the carrier work; something has to happen, so that it does not wait for ever.
    fn run(&mut self, times: usize) {
        for _ in 0..times {
            self.carrier.run_once().unwrap();
        }
    }

    /// The next datagram of the program, and the machine that it comes from.
    fn next(&mut self) -> Option<(u32, Vec<u8>)> {
        let mut room = vec![0; HEADER + MAX_DATAGRAM];
        let (_, count) = recv(&self.program, &mut room[..], RecvFlags::DONTWAIT).ok()?;
        let (from, datagram) = room[..count].split_first_chunk().unwrap();
        Some((Address::from_bytes(*from).cid, datagram.to_vec()))
    }

    /// Sends a datagram as the program does.
    fn send(&self, cid: u32, datagram: &[u8]) {
        let mut message = Address { cid, port: 5 }.to_bytes().to_vec();
        message.extend(datagram);
        assert_eq!(send(&self.program, &message, SendFlags::DONTWAIT), Ok(message.len()));
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let slot = self.carrier.slot;
        self.carrier.peers.clear();
        unhide(slot.listener());
        unhide(slot.carrier_end());
        slot.release();
    }
}

/// The address of a listener of its own.
fn unused() -> std::os::unix::net::SocketAddr {
    use std::os::linux::net::SocketAddrExt as _;
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("taut-carrier-{}-{number}", std::process::id());
    std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap()
}

/// Datagrams on a stream.
fn stream(datagrams: &[&[u8]]) -> Vec<u8> {
    datagrams.iter().flat_map(|datagram| [&length(datagram.len())[..], datagram].concat()).collect()
}

#[test]
fn a_peer_that_floods_does_not_keep_out_another() {
    let mut bench = Bench::new();
    let (flood, other) = (bench.peer(3), bench.peer(4));
    let much = stream(&vec![&[3; 100][..]; 50]);
    let mut pending = Vec::new();
    let flood_more = |pending: &mut Vec<u8>| {
        loop {
            if pending.is_empty() {
                pending.extend(&much);
            }
            let Ok(count) = write(&flood, pending) else { return };
            pending.drain(..count);
        }
    };
    flood_more(&mut pending);
    bench.run(1);
    assert!(bench.carrier.is_full);
    assert_eq!(write(&other, &stream(&[&[4]])), Ok(5));
    // The program takes all that is there, each time.
    let mut taken = 0;
    for _ in 0..100 {
        while let Some((from, datagram)) = bench.next() {
            if from == 4 {
                assert_eq!(datagram, [4]);
                // The queue of the program may be full once with the flood.
                assert!(taken < 2000, "{taken} of the flood came first");
                return;
            }
            assert_eq!((from, &datagram[..]), (3, &[3; 100][..]));
            taken += 1;
        }
        flood_more(&mut pending);
        bench.run(1);
    }
    panic!("only the flood arrives: {taken}");
}

#[test]
fn peers_of_a_slow_program_take_turns() {
    let mut bench = Bench::new();
    let peers = [bench.peer(3), bench.peer(4), bench.peer(5)];
    for peer in &peers {
        let all = stream(&vec![&[0; 10][..]; 3000]);
        assert!(write(peer, &all).unwrap() > all.len() / 2);
    }
    bench.run(2);
    assert!(bench.carrier.is_full);
    // What is there from before the turns.
    while bench.next().is_some() {}
    let mut counts = [0; 3];
    for _ in 0..9 {
        bench.run(1);
        while let Some((from, _)) = bench.next() {
            counts[from as usize - 3] += 1;
        }
    }
    assert!(counts.iter().all(|count| *count > 300), "{counts:?}");
}

#[test]
fn what_a_peer_has_sent_before_it_closed_arrives_after_a_reply() {
    let mut bench = Bench::new();
    let peer = bench.peer(3);
    // More than one receive takes.
    let burst: Vec<Vec<u8>> = (0..40_u8).map(|index| vec![index; 4000]).collect();
    let bytes = stream(&burst.iter().map(Vec::as_slice).collect::<Vec<_>>());
    assert_eq!(write(&peer, &bytes), Ok(bytes.len()));
    bench.run(1);
    let mut arrived = vec![bench.next().unwrap()];
    drop(peer);
    // The carrier sends the reply in the same turn in which it takes it.
    bench.send(3, b"reply");
    for _ in 0..10 {
        bench.run(usize::from(!bench.carrier.peers.is_empty()));
        arrived.extend(std::iter::from_fn(|| bench.next()));
    }
    assert_eq!(arrived, burst.into_iter().map(|datagram| (3, datagram)).collect::<Vec<_>>());
    assert_eq!((bench.carrier.lost, bench.carrier.peers.len()), (1, 0));
}

#[test]
fn no_datagram_is_given_to_a_peer_that_takes_none() {
    let mut bench = Bench::new();
    let peer = bench.peer(3);
    bench.run(1);
    drop(peer);
    let now = Instant::now();
    let to = Address { cid: 3, port: 5 };
    bench.carrier.carry(to, b"lost".to_vec(), now);
    bench.carrier.flush_all(now);
    assert_eq!(bench.carrier.lost, 1);
    // The next one needs another stream.
    bench.carrier.carry(to, b"another".to_vec(), now);
    assert!(!bench.carrier.peers[0].has_waiting());
}

#[test]
fn room_is_used_before_most_of_the_queue_is_free() {
    let mut bench = Bench::new();
    let peer = bench.peer(3);
    let all = stream(&vec![&[7; 10][..]; 4000]);
    assert!(write(&peer, &all).unwrap() > all.len() / 2);
    bench.run(1);
    assert!(bench.carrier.is_full);
    let mut in_queue = 0;
    let count = bench.carrier.peers[0].inbox.count();
    // Half a second of ten datagrams a second.
    for _ in 0..5 {
        assert!(bench.next().is_some());
        in_queue += 1;
    }
    let began = Instant::now();
    bench.run(1);
    assert!(began.elapsed() < RETRY * 10);
    let delivered = count - bench.carrier.peers[0].inbox.count();
    assert!(delivered > 0 && delivered <= in_queue + 1, "{delivered} of {in_queue}");
}

#[test]
fn a_listener_that_cannot_accept_takes_no_cpu_time() {
    // It is readable, but accepting fails.
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None).unwrap();
    assert_eq!(write(&theirs, b"readable"), Ok(8));
    let mut bench = Bench::with_listener(ours.as_raw_fd());
    let began = Instant::now();
    let mut turns = 0;
    while began.elapsed() < RETRY * 4 {
        bench.run(1);
        turns += 1;
    }
    assert!((2..=20).contains(&turns), "{turns} turns");
    // Datagrams go on meanwhile.
    let peer = bench.peer(3);
    assert_eq!(write(&peer, &stream(&[b"here"])), Ok(8));
    bench.run(2);
    assert_eq!(bench.next(), Some((3, b"here".to_vec())));
}

#[test]
fn a_datagram_that_does_not_fit_is_counted() {
    let mut bench = Bench::new();
    let peer = bench.peer(3);
    let carrier_end = at(bench.carrier.slot.carrier_end()).unwrap();
    sockopt::set_socket_send_buffer_size(carrier_end, 8192).unwrap();
    let bytes = stream(&[&vec![1; 30_000], b"short"]);
    assert_eq!(write(&peer, &bytes), Ok(bytes.len()));
    bench.run(1);
    assert_eq!(bench.next(), Some((3, b"short".to_vec())));
    assert_eq!(bench.carrier.lost, 1);
}

#[test]
fn datagrams_of_a_stream_that_is_ended_are_counted() {
    let mut bench = Bench::new();
    let peer = bench.peer(3);
    let all = stream(&vec![&[7; 10][..]; 1000]);
    assert_eq!(write(&peer, &all), Ok(all.len()));
    bench.run(1);
    let arrived = std::iter::from_fn(|| bench.next()).count() as u64;
    bench.carrier.forget(0);
    assert_eq!(bench.carrier.lost + arrived, 1000);
    assert!(bench.carrier.lost > 0);
}

#[test]
fn a_descriptor_that_the_program_has_closed_is_not_used() {
    let mut bench = Bench::new();
    let peers = [bench.peer(3), bench.peer(4)];
    bench.run(1);
    // By a system call, and something else gets the number.
    let fd = bench.carrier.peers[0].fd();
    let (other, end) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    crate::sys::replace(fd, other.as_raw_fd(), true).unwrap();
    assert_eq!(write(&end, &stream(&[b"secret"])), Ok(10));
    assert_eq!(write(&peers[1], &stream(&[b"known"])), Ok(9));
    bench.run(1);
    assert_eq!(bench.next(), Some((4, b"known".to_vec())));
    assert_eq!(bench.next(), None);
    assert_eq!(bench.carrier.peers.len(), 1);
    // It is not closed, either.
    assert!(at(fd).and_then(sockopt::socket_cookie).is_ok());
    crate::sys::close(fd).unwrap();
    // Without the program's end there is nothing to do.
    let carrier_end = bench.carrier.slot.carrier_end();
    crate::sys::replace(carrier_end, other.as_raw_fd(), true).unwrap();
    assert_eq!(bench.carrier.run_once(), Err(Errno::BADF));
    // Before the number is closed, since then another test may get it.
    drop(bench);
    crate::sys::close(carrier_end).unwrap();
}
