use std::collections::VecDeque;

use rustix::io::Errno;

use super::buffer::{AT_ONCE as FIRST, Buffer, CORKED, ROOM, Rules, SHORT, SMALL, Step};
use crate::sys::Pieces;

/// A kernel that takes what it is told to.
#[derive(Default)]
struct Kernel {
    /// All bytes so far, and the sizes of the sends.
    taken: Vec<u8>,
    sends: Vec<usize>,
    /// Results of the next sends: a number of bytes at most, or an error. Then it takes everything.
    next: VecDeque<Result<usize, Errno>>,
}

impl Kernel {
    fn send(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        let count = self.next.pop_front().unwrap_or(Ok(usize::MAX))?.min(bytes.len());
        self.taken.extend_from_slice(&bytes[..count]);
        self.sends.push(count);
        Ok(count)
    }
}

const NAGLE: Rules = Rules { gathers: true, holds: false, time: SHORT };
const HELD: Rules = Rules { holds: true, time: CORKED, ..NAGLE };
const AT_ONCE: Rules = Rules { gathers: false, ..NAGLE };
/// Some time at which a connection that has never sent is idle.
const NOW: u64 = 10 * SHORT;

#[allow(unsafe_code, reason = "made from a slice")]
fn with_pieces<T>(bytes: &[u8], work: impl FnOnce(&Pieces<'_>) -> T) -> T {
    let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: the bytes outlive the call.
    let pieces = unsafe { Pieces::new(&raw const part, 1) };
    work(&pieces.unwrap())
}

fn write_rest(
    buffer: &mut Buffer,
    kernel: &mut Kernel,
    bytes: &[u8],
    done: usize,
    rules: Rules,
    now: u64,
) -> Step {
    with_pieces(bytes, |pieces| buffer.write(pieces, done, rules, &|| now, &mut |bytes| kernel.send(bytes)))
}

/// Writes as the program does: what goes to the kernel alone is sent there.
fn write(buffer: &mut Buffer, kernel: &mut Kernel, bytes: &[u8], rules: Rules, now: u64) -> Step {
    let step = write_rest(buffer, kernel, bytes, 0, rules, now);
    if step == Step::Kernel {
        kernel.taken.extend_from_slice(bytes);
        kernel.sends.push(bytes.len());
    }
    step
}

fn flush(buffer: &mut Buffer, kernel: &mut Kernel, now: u64) -> Result<bool, Errno> {
    buffer.flush(&|| now, &mut |bytes| kernel.send(bytes))
}

/// A connection that has sent so much in a row that the next write waits.
fn busy(now: u64) -> (Buffer, Kernel) {
    let (mut buffer, mut kernel) = (Buffer::new(), Kernel::default());
    while write(&mut buffer, &mut kernel, b".", NAGLE, now) == Step::Kernel {
        assert!(kernel.sends.len() <= 2 * FIRST as usize);
    }
    assert_eq!(flush(&mut buffer, &mut kernel, now), Ok(true));
    (kernel.taken, kernel.sends) = (Vec::new(), Vec::new());
    (buffer, kernel)
}

#[test]
fn the_first_writes_go_at_once_and_the_next_ones_wait() {
    let (mut buffer, mut kernel) = (Buffer::new(), Kernel::default());
    // The clock was not read for the first half, so the connection may be idle at the second.
    for count in 0..2 * FIRST {
        assert_eq!(write(&mut buffer, &mut kernel, b"a", NAGLE, NOW), Step::Kernel, "{count}");
    }
    assert_eq!(write(&mut buffer, &mut kernel, b"b", NAGLE, NOW + 1), Step::Taken);
    assert_eq!(buffer.until, NOW + 1 + SHORT);
    assert_eq!(write(&mut buffer, &mut kernel, b"c", NAGLE, NOW + 2), Step::Taken);
    assert_eq!(buffer.until, NOW + 1 + SHORT, "the oldest byte counts");
    assert_eq!(kernel.taken, b"aaaaaaaa");
    assert_eq!(flush(&mut buffer, &mut kernel, NOW + 3), Ok(true));
    assert_eq!((kernel.taken.as_slice(), kernel.sends.last()), (&b"aaaaaaaabc"[..], Some(&2)));
    assert_eq!(write(&mut buffer, &mut kernel, b"d", NAGLE, NOW + 4), Step::Taken, "not idle yet");
    assert_eq!(flush(&mut buffer, &mut kernel, NOW + 5), Ok(true));
    assert_eq!(write(&mut buffer, &mut kernel, b"e", NAGLE, NOW + 5 + SHORT), Step::Kernel, "idle");
}

#[test]
fn an_answer_lets_the_next_request_go_at_once() {
    let (mut buffer, mut kernel) = busy(NOW);
    for turn in 0..3 {
        buffer.answered();
        for part in 0..FIRST {
            let step = write(&mut buffer, &mut kernel, b"q", NAGLE, NOW);
            assert_eq!(step, Step::Kernel, "{turn} {part}");
        }
        assert_eq!(write(&mut buffer, &mut kernel, b"q", NAGLE, NOW), Step::Taken, "{turn}");
        assert_eq!(flush(&mut buffer, &mut kernel, NOW), Ok(true));
    }
}

#[test]
fn a_slow_writer_never_waits() {
    let (mut buffer, mut kernel) = (Buffer::new(), Kernel::default());
    for count in 0..10 * u64::from(FIRST) {
        assert_eq!(write(&mut buffer, &mut kernel, b"s", NAGLE, NOW + count * SHORT), Step::Kernel);
    }
}

#[test]
fn a_write_that_may_not_wait_goes_behind_the_bytes() {
    let (mut buffer, mut kernel) = busy(NOW);
    assert_eq!(write(&mut buffer, &mut kernel, b"b", NAGLE, NOW), Step::Taken);
    assert_eq!(write(&mut buffer, &mut kernel, b"c", AT_ONCE, NOW), Step::Kernel);
    let large = vec![b'L'; SMALL + 1];
    assert_eq!(write(&mut buffer, &mut kernel, b"d", NAGLE, NOW), Step::Taken);
    assert_eq!(write(&mut buffer, &mut kernel, &large, NAGLE, NOW), Step::Kernel);
    assert_eq!(kernel.taken, [&b"bcd"[..], &large].concat());
    assert_eq!(kernel.sends, [1, 1, 1, SMALL + 1]);
}

#[test]
fn a_corked_connection_holds_even_the_first_write() {
    let (mut buffer, mut kernel) = (Buffer::new(), Kernel::default());
    assert_eq!(write(&mut buffer, &mut kernel, b"a", HELD, NOW), Step::Taken);
    assert_eq!((buffer.until, buffer.corked), (NOW + CORKED, true));
    let more = Rules { time: SHORT, ..HELD };
    assert_eq!(flush(&mut buffer, &mut kernel, NOW), Ok(true));
    assert_eq!(write(&mut buffer, &mut kernel, b"b", more, NOW + CORKED), Step::Taken);
    assert_eq!((buffer.until, buffer.corked), (NOW + CORKED + SHORT, false));
}

#[test]
fn a_full_buffer_is_sent() {
    let (mut buffer, mut kernel) = (Buffer::new(), Kernel::default());
    let piece = vec![b'p'; 1000];
    for _ in 0..40 {
        assert_eq!(write(&mut buffer, &mut kernel, &piece, HELD, NOW), Step::Taken);
    }
    assert_eq!(kernel.sends, [ROOM, ROOM]);
    assert_eq!(flush(&mut buffer, &mut kernel, NOW), Ok(true));
    assert_eq!(kernel.taken.len(), 40_000);
}

#[test]
fn a_peer_that_takes_nothing_stops_the_writer() {
    let (mut buffer, mut kernel) = (Buffer::new(), Kernel::default());
    let all: Vec<u8> = (0..ROOM + 3000).map(|place| (place / 7) as u8).collect();
    let mut accepted = 0;
    for piece in all.chunks(1000) {
        kernel.next = VecDeque::from([Err(Errno::AGAIN)]);
        match write(&mut buffer, &mut kernel, piece, HELD, NOW) {
            Step::Taken => accepted += piece.len(),
            Step::Full(count) => {
                accepted += count;
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((accepted, kernel.taken.len()), (ROOM, 0), "as much as there is room for");
    kernel.next = VecDeque::from([Err(Errno::AGAIN)]);
    assert_eq!(write(&mut buffer, &mut kernel, &all[ROOM..=ROOM], HELD, NOW), Step::Full(0));
    // The peer takes a part. Then there is room for that much.
    kernel.next = VecDeque::from([Ok(100), Err(Errno::INTR), Err(Errno::AGAIN)]);
    assert_eq!(flush(&mut buffer, &mut kernel, NOW), Ok(false));
    kernel.next = VecDeque::from([Err(Errno::AGAIN)]);
    assert_eq!(write(&mut buffer, &mut kernel, &all[ROOM..ROOM + 500], HELD, NOW), Step::Full(100));
    let rest = write_rest(&mut buffer, &mut kernel, &all[ROOM..ROOM + 500], 100, AT_ONCE, NOW);
    assert_eq!(rest, Step::Taken, "a write that began to wait goes on so");
    assert_eq!(flush(&mut buffer, &mut kernel, NOW), Ok(true));
    assert_eq!(kernel.taken, all[..ROOM + 500]);
}

#[test]
fn pauses_between_attempts_grow() {
    let (mut buffer, mut kernel) = (Buffer::new(), Kernel::default());
    write(&mut buffer, &mut kernel, b"x", HELD, NOW);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        kernel.next = VecDeque::from([Err(Errno::AGAIN)]);
        buffer.flush_behind(&|| NOW, &mut |bytes| kernel.send(bytes));
        pauses.push((buffer.until - NOW) / 1_000_000);
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
}

#[test]
fn the_next_write_learns_of_an_error() {
    for error in [Errno::PIPE, Errno::CONNRESET, Errno::TIMEDOUT] {
        let (mut buffer, mut kernel) = (Buffer::new(), Kernel::default());
        write(&mut buffer, &mut kernel, b"lost", HELD, NOW);
        kernel.next = VecDeque::from([Err(error)]);
        buffer.flush_behind(&|| NOW, &mut |bytes| kernel.send(bytes));
        assert!(buffer.is_empty());
        assert!(buffer.lost);
        assert_eq!(write(&mut buffer, &mut kernel, b"a", NAGLE, NOW), Step::Failed(error));
        for _ in 0..2 {
            assert_eq!(write(&mut buffer, &mut kernel, b"b", NAGLE, NOW), Step::Failed(Errno::PIPE));
        }
        assert_eq!(kernel.taken, b"", "nothing goes behind the hole");
        // A write that meets the error itself.
        let (mut buffer, mut kernel) = (Buffer::new(), Kernel::default());
        write(&mut buffer, &mut kernel, b"lost", HELD, NOW);
        kernel.next = VecDeque::from([Err(error)]);
        assert_eq!(write(&mut buffer, &mut kernel, b"a", AT_ONCE, NOW), Step::Failed(error));
        assert!(buffer.lost);
        assert_eq!(write(&mut buffer, &mut kernel, b"b", NAGLE, NOW), Step::Failed(Errno::PIPE));
        assert_eq!(kernel.taken, b"");
    }
}

#[test]
fn a_lack_of_memory_loses_nothing() {
    for error in [Errno::NOMEM, Errno::NOBUFS] {
        let (mut buffer, mut kernel) = (Buffer::new(), Kernel::default());
        write(&mut buffer, &mut kernel, b"kept ", HELD, NOW);
        kernel.next = VecDeque::from([Err(error), Err(error)]);
        buffer.flush_behind(&|| NOW, &mut |bytes| kernel.send(bytes));
        assert!(!buffer.is_empty() && !buffer.lost);
        assert_eq!(write(&mut buffer, &mut kernel, b"late", AT_ONCE, NOW), Step::Full(0));
        assert_eq!(write(&mut buffer, &mut kernel, b"late", AT_ONCE, NOW), Step::Kernel);
        assert_eq!(kernel.taken, b"kept late");
    }
}

#[test]
fn nothing_is_written_behind_the_end() {
    let (mut buffer, mut kernel) = (Buffer::new(), Kernel::default());
    write(&mut buffer, &mut kernel, b"x", HELD, NOW);
    buffer.shuts = true;
    assert_eq!(write(&mut buffer, &mut kernel, b"y", NAGLE, NOW), Step::Failed(Errno::PIPE));
    assert_eq!(flush(&mut buffer, &mut kernel, NOW), Ok(true));
    assert_eq!(kernel.taken, b"x");
}

/// One operation of the program, the helper or the kernel.
#[derive(Debug, Clone)]
enum Act {
    Write(usize, Rules),
    Flush,
    Takes(usize),
    TakesNothing,
    Time(u64),
    Answer,
}

fn act() -> impl proptest::strategy::Strategy<Value = Act> {
    use proptest::prelude::*;
    prop_oneof![
        4 => (0..SMALL + 2000, prop_oneof![Just(NAGLE), Just(HELD), Just(AT_ONCE)])
            .prop_map(|(len, rules)| Act::Write(len, rules)),
        2 => (0..300usize, Just(NAGLE)).prop_map(|(len, rules)| Act::Write(len, rules)),
        1 => Just(Act::Flush),
        1 => (1..20_000usize).prop_map(Act::Takes),
        1 => Just(Act::TakesNothing),
        1 => (0..2 * SHORT).prop_map(Act::Time),
        1 => Just(Act::Answer),
    ]
}

proptest::proptest! {
    /// The kernel gets exactly the bytes that were taken, in order.
    #[test]
    fn bytes_stay_in_order(acts in proptest::collection::vec(act(), 0..60)) {
        let (mut buffer, mut kernel, mut now) = (Buffer::new(), Kernel::default(), NOW);
        let mut accepted: Vec<u8> = Vec::new();
        for act in acts {
            match act {
                Act::Write(len, rules) => {
                    let first = accepted.len();
                    let bytes: Vec<u8> = (first..first + len).map(|place| (place % 251) as u8).collect();
                    match write(&mut buffer, &mut kernel, &bytes, rules, now) {
                        Step::Kernel => {
                            assert_eq!(kernel.taken.len(), first + len);
                            accepted.extend(bytes);
                        }
                        Step::Taken => accepted.extend(bytes),
                        Step::Full(count) => accepted.extend(&bytes[..count]),
                        Step::Failed(error) => panic!("{error}"),
                    }
                }
                Act::Flush => buffer.flush_behind(&|| now, &mut |bytes| kernel.send(bytes)),
                Act::Takes(count) => kernel.next.push_back(Ok(count)),
                Act::TakesNothing => kernel.next.push_back(Err(Errno::AGAIN)),
                Act::Time(time) => now += time,
                Act::Answer => buffer.answered(),
            }
            assert!(accepted.len() - kernel.taken.len() <= ROOM);
        }
        kernel.next.clear();
        assert_eq!(flush(&mut buffer, &mut kernel, now), Ok(true));
        assert_eq!(kernel.taken, accepted);
    }
}
