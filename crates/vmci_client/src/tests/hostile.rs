//! Words in shared memory that contradict the protocol.

use std::io::{ErrorKind, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use taut_queue_pair::message::AttachAnswer;
use taut_queue_pair::{Channel, Status, Word};

use super::attach::Canned;
use super::fabric::Device;
use super::{NEVER, Random, USUAL};
use crate::{Attached, Interest, Ready};

const WAIT: Duration = Duration::from_millis(20);
/// Far above the time that a wait of [`WAIT`] takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The words that the fabric writes.
const WORDS: [Word; 5] = [Word::OutTail, Word::OutBytesWait, Word::InHead, Word::InRoomWait, Word::InEnd];

/// An attached end whose words the test writes.
struct Victim {
    attached: Attached,
    channel: Channel,
    _peer: UnixStream,
}

impl Victim {
    fn new(poll: Duration) -> Self {
        let device = Device::new();
        let (stream, peer) = UnixStream::pair().unwrap();
        let answer = AttachAnswer { status: Status::Attached, channel: 2, by_packets: 0 };
        let canned = Canned { bytes: answer.to_bytes().to_vec(), hangs_up: false };
        let attached = Attached::attach_by(&canned, stream.as_fd(), &device.options(poll)).unwrap();
        Self { attached, channel: device.region.channel(2).unwrap(), _peer: peer }
    }

    fn read(&self) -> Result<usize, ErrorKind> {
        let mut buffer = vec![0; 100_000];
        self.attached.read_until(&mut buffer, Instant::now() + WAIT).map_err(|error| error.kind())
    }

    fn write(&self) -> Result<usize, ErrorKind> {
        self.attached.write_until(&vec![1; 100_000], Instant::now() + WAIT).map_err(|error| error.kind())
    }
}

#[test]
fn a_position_out_of_the_ring_ends_both_directions() {
    for (word, values) in [(Word::InHead, [65_537, u32::MAX, 1 << 31]), (Word::OutTail, [1, 65_537, 1 << 31])]
    {
        for value in values {
            let victim = Victim::new(USUAL);
            victim.channel.store(word, value);
            if word == Word::InHead {
                assert_eq!(victim.read(), Err(ErrorKind::InvalidData), "{value}");
            } else {
                assert_eq!(victim.write(), Err(ErrorKind::InvalidData), "{value}");
            }
            // Even if the word is right again.
            victim.channel.store(word, 0);
            assert_eq!(victim.read(), Err(ErrorKind::InvalidData));
            assert_eq!(victim.write(), Err(ErrorKind::InvalidData));
            assert!(victim.attached.shutdown_write().is_err());
            let ready = victim.attached.ready();
            assert!(ready.readable && ready.writable);
            let error = victim.attached.try_read(&mut [0; 1]).unwrap_err();
            assert!(error.to_string().contains("not possible"), "{error}");
        }
    }
}

#[test]
fn an_end_word_without_a_meaning_is_an_error_for_reader_and_writer() {
    let victim = Victim::new(USUAL);
    victim.channel.store(Word::InEnd, 77);
    assert_eq!(victim.read(), Err(ErrorKind::InvalidData));
    let victim = Victim::new(USUAL);
    victim.channel.store(Word::InEnd, 77);
    assert_eq!(victim.write(), Err(ErrorKind::InvalidData));
}

#[test]
fn waits_end_when_a_word_becomes_hostile_and_a_signal_comes() {
    let victim = Victim::new(NEVER);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let deadline = Instant::now() + Duration::from_millis(300);
            victim.attached.read_until(&mut [0; 8], deadline).map_err(|error| error.kind())
        });
        thread::sleep(Duration::from_millis(20));
        victim.channel.store(Word::InHead, 1 << 30);
        assert_eq!(reader.join().unwrap(), Err(ErrorKind::InvalidData));
    });
}

#[test]
fn a_fault_that_one_thread_finds_ends_the_wait_of_another() {
    let victim = Victim::new(NEVER);
    while victim.attached.try_write(&[1; 4096]).is_ok() {}
    let begin = Instant::now();
    thread::scope(|scope| {
        let writer = scope.spawn(|| victim.attached.write_until(&[1; 8], begin + PATIENCE));
        thread::sleep(WAIT);
        victim.channel.store(Word::InHead, 1 << 30);
        assert_eq!(victim.attached.try_read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(writer.join().unwrap().unwrap_err().kind(), ErrorKind::InvalidData);
        assert!(begin.elapsed() < PATIENCE / 2);
    });
}

/// Whatever the words say, calls return before long and never panic.
#[test]
fn random_words_never_hang_and_never_panic() {
    let mut random = Random(4711);
    for round in 0..60 {
        let victim = Victim::new(if round % 2 == 0 { NEVER } else { USUAL });
        let is_over = AtomicBool::new(false);
        let seed = random.next() | 1;
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Random(seed);
                while !is_over.load(Ordering::Relaxed) {
                    let word = WORDS[random.next() as usize % WORDS.len()];
                    // Small steps are the more dangerous ones: they are possible for a while.
                    let value = match random.next() % 3 {
                        0 => random.next() as u32,
                        1 => random.next() as u32 % 131_072,
                        _ => victim.channel.load(word).wrapping_add(random.next() as u32 % 4096),
                    };
                    // Ends at once in most rounds otherwise.
                    if word != Word::InEnd || random.next().is_multiple_of(64) {
                        victim.channel.store(word, value);
                    }
                    thread::yield_now();
                }
            });
            let begin = Instant::now();
            for _ in 0..8 {
                let _ = victim.read();
                let _ = victim.write();
                let _ = victim.attached.arm(Interest::BOTH);
                let _ = victim.attached.disarm(Interest::BOTH);
                let _ = victim.attached.try_read(&mut [0; 64]);
                let _ = victim.attached.try_write(&[0; 64]);
                let _ = victim.attached.ready();
            }
            let _ = victim.attached.shutdown_write();
            assert!(begin.elapsed() < PATIENCE);
            is_over.store(true, Ordering::Relaxed);
        });
    }
}

/// Another direction than the one that is waited for may be the one that was overwritten.
#[test]
fn a_call_that_wakes_up_finds_that_own_positions_were_overwritten() {
    for word in [Word::OutHead, Word::InTail, Word::OutEnd] {
        for by in 0..3 {
            let victim = Victim::new(USUAL);
            while victim.attached.try_write(&[1; 4096]).is_ok() {}
            let timed_out = Err(ErrorKind::TimedOut);
            assert_eq!((victim.read(), victim.write()), (timed_out, timed_out));
            assert!(!victim.attached.arm(Interest::BOTH).any());
            victim.channel.store(word, victim.channel.load(word) ^ 1);
            let ready = match by {
                0 => victim.read().unwrap_err(),
                1 => victim.write().unwrap_err(),
                _ if victim.attached.disarm(Interest::BOTH) == (Ready { readable: true, writable: true }) => {
                    victim.read().unwrap_err()
                }
                _ => panic!("{word} is not found at the end of a wait"),
            };
            assert_eq!(ready, ErrorKind::InvalidData, "{word}");
            let error = victim.attached.try_read(&mut [0; 1]).unwrap_err().to_string();
            assert!(error.contains(&word.to_string()), "{error}");
        }
    }
}

/// The next announcement repairs the number. An earlier owner of the channel may have written it.
#[test]
fn an_overwritten_number_of_a_wait_is_announced_anew() {
    let victim = Victim::new(USUAL);
    while victim.attached.try_write(&[1; 4096]).is_ok() {}
    for word in [Word::OutRoomWait, Word::InBytesWait] {
        for found in [0, 1, 77, u32::MAX] {
            victim.channel.store(word, found);
            assert!(!victim.attached.arm(Interest::BOTH).any());
            let announced = victim.channel.load(word);
            assert!(!announced.is_multiple_of(2), "{word} {announced}");
            assert!(!victim.attached.disarm(Interest::BOTH).any());
        }
    }
}

/// The channel may be another connection's by then.
#[test]
fn a_program_that_has_lost_its_channel_announces_nothing() {
    let victim = Victim::new(NEVER);
    while victim.attached.try_write(&[1; 4096]).is_ok() {}
    victim.channel.store(Word::InHead, 1 << 30);
    assert_eq!(victim.read(), Err(ErrorKind::InvalidData));
    for word in [Word::OutRoomWait, Word::InBytesWait] {
        victim.channel.store(word, 8);
    }
    let _ = (victim.read(), victim.write(), victim.attached.arm(Interest::BOTH));
    let _ = victim.attached.disarm(Interest::BOTH);
    assert_eq!([Word::OutRoomWait, Word::InBytesWait].map(|word| victim.channel.load(word)), [8, 8]);
}

/// Calls that do not sleep never read the words that only the guest writes.
#[test]
fn own_words_that_others_overwrite_do_not_matter_while_there_are_bytes_and_room() {
    let victim = Victim::new(USUAL);
    for word in [Word::OutHead, Word::InTail, Word::OutRoomWait, Word::InBytesWait, Word::OutEnd] {
        victim.channel.store(word, 0x1234_5678);
    }
    assert_eq!(victim.write(), Ok(65_536));
    victim.channel.store(Word::InHead, 5);
    assert_eq!(victim.read(), Ok(5));
    assert_eq!(victim.channel.load(Word::InTail), 5);
}

#[test]
fn control_bytes_of_any_number_are_drained() {
    let (fabric, [a, b]) = super::fabric::Fabric::start(0);
    let (a, b) = (fabric.attach(0, &a, NEVER).unwrap(), fabric.attach(1, &b, NEVER).unwrap());
    // The fabric sends signals only when it must, so this one is a wake-up for nothing.
    let error = a.read_until(&mut [0; 8], Instant::now() + WAIT).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    b.try_write(b"x").unwrap();
    let mut byte = [0];
    (&a).read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"x");
    assert!(!a.disarm(Interest::READABLE).readable);
}
