//! No wake-up is lost, and none is superfluous.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::ioctl_fionread;
use taut_queue_pair::memory::Copying;
use taut_queue_pair::{Ends, Geometry, Memory, Region, Role, Word};

use super::fabric::Fabric;
use super::{NEVER, USUAL};
use crate::Attached;
use crate::link::Link;
use crate::receive::Receiver;
use crate::send::Sender;

/// Returns every byte.
fn echo(end: &Attached) {
    let (mut end, mut byte) = (end, [0]);
    while end.read(&mut byte).unwrap() > 0 {
        end.write_all(&byte).unwrap();
    }
}

fn ping(end: &Attached, rounds: u32) {
    let mut end = end;
    for round in 0..rounds {
        end.write_all(&[round as u8]).unwrap();
        let mut byte = [0];
        end.read_exact(&mut byte).unwrap();
        assert_eq!(byte[0], round as u8);
    }
    end.shutdown_write().unwrap();
}

fn ping_pong(looks: u32, poll: [Duration; 2], rounds: u32) -> (u64, u64) {
    let (fabric, [a, b]) = Fabric::start(looks);
    let (first, second) = (fabric.attach(0, &a, poll[0]).unwrap(), fabric.attach(1, &b, poll[1]).unwrap());
    thread::scope(|scope| {
        scope.spawn(|| echo(&second));
        ping(&first, rounds);
    });
    let sum = |count: [u64; 2]| count.into_iter().sum();
    let bells = fabric.counts.each_ref().map(|count| count.bells.load(Ordering::Relaxed));
    let signals = fabric.counts.each_ref().map(|count| count.signals.load(Ordering::Relaxed));
    (sum(bells), sum(signals))
}

#[test]
fn ping_pongs_of_programs_that_sleep_at_once() {
    let (bells, signals) = ping_pong(0, [NEVER; 2], 100_000);
    // Two bytes a round, each with one bell and one signal at most; two ends of the stream.
    assert!(bells <= 200_004 && signals <= 200_004, "{bells} bells, {signals} signals");
}

#[test]
fn blocking_calls_leave_some_signals_unread_and_notice_an_end_behind_them() {
    let (mut fabric, [a, b]) = Fabric::start(0);
    let (first, second) = (fabric.attach(0, &a, NEVER).unwrap(), fabric.attach(1, &b, NEVER).unwrap());
    let ping = || {
        (&first).write_all(&[7]).unwrap();
        (&first).read_exact(&mut [0]).unwrap();
        ioctl_fionread(&first).unwrap()
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut byte = [0];
            while (&second).read(&mut byte).is_ok_and(|count| count > 0) && (&second).write_all(&byte).is_ok()
            {
            }
        });
        let most = (0..200).map(|_| ping()).max().unwrap();
        assert!((10..=128).contains(&most), "{most} unread signals");
        while ping() == 0 {}
        let reader = scope.spawn(|| (&first).read(&mut [0]).map_err(|error| error.kind()));
        thread::sleep(Duration::from_millis(20));
        fabric.kill();
        assert_eq!(reader.join().unwrap(), Err(ErrorKind::ConnectionReset));
    });
}

#[test]
fn ping_pongs_of_programs_that_look_first() {
    ping_pong(0, [USUAL; 2], 30_000);
    ping_pong(0, [USUAL, NEVER], 10_000);
}

#[test]
fn ping_pongs_with_a_fabric_that_looks_by_itself() {
    let (bells, _) = ping_pong(8, [USUAL; 2], 3_000);
    assert!(bells < 6_000, "{bells} bells although the fabric looks by itself");
}

/// Signals do not say which ring has changed. Two threads sleep for one ring each.
#[test]
fn a_reader_and_a_writer_of_one_handle_do_not_rob_each_other() {
    const BULK: usize = 8 << 20;
    let (fabric, [a, b]) = Fabric::start(0);
    let (a, b) = (fabric.attach(0, &a, NEVER).unwrap(), fabric.attach(1, &b, NEVER).unwrap());
    thread::scope(|scope| {
        // From a to b in bulk, with a writer that sleeps often since the reader is slow.
        scope.spawn(|| {
            (&a).write_all(&vec![5; BULK]).unwrap();
            a.shutdown_write().unwrap();
        });
        scope.spawn(|| {
            let mut buffer = [0; 3000];
            let mut got = 0;
            loop {
                let count = (&b).read(&mut buffer).unwrap();
                assert!(buffer[..count].iter().all(|byte| *byte == 5));
                got += count;
                if count == 0 {
                    break;
                }
            }
            assert_eq!(got, BULK);
        });
        // From b to a byte by byte, with a reader that sleeps for each.
        scope.spawn(|| {
            for number in 0..20_000u32 {
                (&b).write_all(&[number as u8]).unwrap();
                if number.is_multiple_of(64) {
                    thread::yield_now();
                }
            }
            b.shutdown_write().unwrap();
        });
        let mut got = Vec::new();
        let mut byte = [0];
        while (&a).read(&mut byte).unwrap() > 0 {
            got.push(byte[0]);
        }
        assert!(got.iter().zip(0u32..).all(|(byte, number)| *byte == number as u8));
        assert_eq!(got.len(), 20_000);
    });
}

/// Several threads read from one handle and write to one handle.
#[test]
fn threads_that_share_a_direction_all_wake_up() {
    const THREADS: u64 = 3;
    const EACH: u64 = 4_000;
    let (fabric, [a, b]) = Fabric::start(0);
    let (a, b) = (fabric.attach(0, &a, NEVER).unwrap(), fabric.attach(1, &b, NEVER).unwrap());
    let total: u64 = thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        (&a).write_all(&[1; 100]).unwrap();
                    }
                })
            })
            .collect();
        let readers: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let (mut buffer, mut got) = ([0; 333], 0);
                    loop {
                        match (&b).read(&mut buffer).unwrap() as u64 {
                            0 => return got,
                            count => got += count,
                        }
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        a.shutdown_write().unwrap();
        readers.into_iter().map(|reader| reader.join().unwrap()).sum()
    });
    assert_eq!(total, THREADS * EACH * 100);
}

#[test]
fn a_reader_that_runs_gets_no_signals() {
    let (fabric, [a, b]) = Fabric::start(0);
    let (a, b) = (fabric.attach(0, &a, USUAL).unwrap(), fabric.attach(1, &b, USUAL).unwrap());
    // It slept once, and runs since then.
    thread::scope(|scope| {
        let reader = scope.spawn(|| (&a).read_exact(&mut [0]));
        thread::sleep(Duration::from_millis(20));
        (&b).write_all(&[1]).unwrap();
        reader.join().unwrap().unwrap();
    });
    let before = fabric.counts[0].signals.load(Ordering::Relaxed);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..1000 {
                (&b).write_all(&[2; 64]).unwrap();
            }
            is_over.store(true, Ordering::Release);
        });
        let mut got = 0;
        while got < 64_000 {
            got += a.try_read(&mut [0; 512]).unwrap_or(0);
            thread::yield_now();
        }
    });
    assert_eq!(fabric.counts[0].signals.load(Ordering::Relaxed), before);
}

/// A ring that is read in small pieces: its room is announced at half, not piece by piece.
#[test]
fn room_is_signalled_when_half_of_the_ring_is_free() {
    let (fabric, [a, b]) = Fabric::start(0);
    let (a, b) = (fabric.attach(0, &a, USUAL).unwrap(), fabric.attach(1, &b, USUAL).unwrap());
    // Fills both rings; the fabric waits for room then.
    let mut left = 2 * 65_536;
    while left > 0 {
        left -= (&a).write(&vec![3; left]).unwrap();
    }
    thread::sleep(Duration::from_millis(20));
    let bells = || fabric.counts[1].bells.load(Ordering::Relaxed);
    let before = bells();
    for _ in 0..31 {
        (&b).read_exact(&mut [0; 1024]).unwrap();
    }
    thread::sleep(Duration::from_millis(20));
    assert_eq!(bells(), before, "less than half is free");
    (&b).read_exact(&mut [0; 1024]).unwrap();
    let mut rest = vec![0; 2 * 65_536 - 32 * 1024];
    (&b).read_exact(&mut rest).unwrap();
    assert!(rest.iter().all(|byte| *byte == 3));
    assert!(bells() > before);
}

/// Another thread may sleep for the wait that is announced already.
#[test]
fn a_wait_that_is_announced_is_not_withdrawn_for_another_one() {
    let geometry = Geometry::of(4 << 20).unwrap();
    let memory = Arc::new(Memory::anonymous(geometry.end() as usize).unwrap());
    let channel = Region::new(memory, geometry).unwrap().channel(0).unwrap();
    let Ends { mut producer, consumer } = Ends::new(&channel, Role::Guest, Copying::Library);
    let full = vec![0; producer.size() as usize];
    assert_eq!(producer.write(&full), Ok(full.len()));
    let [(control, _fabric), (stream, _peer)] = [0; 2].map(|_| UnixStream::pair().unwrap());
    let link = Link::new(control.into(), stream.into());
    let (sender, receiver) = (Sender::new(producer, NEVER), Receiver::new(consumer, 0, NEVER));
    let announce = || assert!(!receiver.arm(&link) && !sender.arm(&link));
    announce();
    let end = Instant::now() + Duration::from_secs(1);
    let found = thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let words = [Word::InBytesWait, Word::OutRoomWait];
            let withdrawn = || words.into_iter().find(|&word| channel.load(word).is_multiple_of(2));
            while Instant::now() < end {
                if let Some(word) = (0..10_000).find_map(|_| withdrawn()) {
                    return Some(word);
                }
            }
            None
        });
        while !looks.is_finished() {
            announce();
        }
        looks.join().unwrap()
    });
    assert_eq!(found, None);
}
