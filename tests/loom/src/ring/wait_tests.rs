//! A ring of one byte: its producer waits for room, its consumer for bytes, and each signals the
//! other.

use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::{Acquire, Release};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::wait::{Signaller, Waiter};

/// The way of a signal, as a connection that an end reads.
struct Bell {
    signals: Mutex<u32>,
    rung: Condvar,
}

impl Bell {
    fn new() -> Self {
        Self { signals: Mutex::new(0), rung: Condvar::new() }
    }

    fn ring(&self) {
        *self.signals.lock().unwrap() += 1;
        self.rung.notify_one();
    }

    /// Sleeps until there was a signal. Loom reports a deadlock if none comes.
    fn sleep(&self) {
        let mut signals = self.signals.lock().unwrap();
        while *signals == 0 {
            signals = self.rung.wait(signals).unwrap();
        }
        *signals = 0;
    }
}

/// The words of a ring, and the ways to both ends.
struct Ring {
    head: AtomicU32,
    tail: AtomicU32,
    bytes_wait: AtomicU32,
    room_wait: AtomicU32,
    to_consumer: Bell,
    to_producer: Bell,
}

impl Ring {
    fn new() -> Self {
        let word = || AtomicU32::new(0);
        Self {
            head: word(),
            tail: word(),
            bytes_wait: word(),
            room_wait: word(),
            to_consumer: Bell::new(),
            to_producer: Bell::new(),
        }
    }
}

/// Writes bytes, each as soon as there is room. Returns the number of signals.
fn produce(ring: &Ring, bytes: u32, mut signaller: Signaller) -> u32 {
    let (mut waiter, mut signals) = (Waiter::new(0), 0);
    for head in 0..bytes {
        let is_full = || ring.tail.load(Acquire) != head;
        while is_full() {
            waiter.wait(&ring.room_wait);
            if is_full() {
                ring.to_producer.sleep();
            }
            waiter.stop(&ring.room_wait);
        }
        ring.head.store(head + 1, Release);
        if signaller.must_signal(&ring.bytes_wait) {
            signals += 1;
            ring.to_consumer.ring();
        }
    }
    signals
}

/// Reads bytes, each as soon as it is there. Returns the number of announcements.
fn consume(ring: &Ring, bytes: u32) -> u32 {
    let (mut waiter, mut signaller) = (Waiter::new(0), Signaller::new());
    let mut announced = 0;
    for tail in 0..bytes {
        let is_empty = || ring.head.load(Acquire) == tail;
        while is_empty() {
            waiter.wait(&ring.bytes_wait);
            announced += 1;
            if is_empty() {
                ring.to_consumer.sleep();
            }
            waiter.stop(&ring.bytes_wait);
        }
        ring.tail.store(tail + 1, Release);
        if signaller.must_signal(&ring.room_wait) {
            ring.to_producer.ring();
        }
    }
    announced
}

fn exchanged(bytes: u32) {
    let mut builder = loom::model::Builder::new();
    // Enough for every known kind of lost signal, and bounded in time.
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let ring = Arc::new(Ring::new());
        let own = Arc::clone(&ring);
        let consuming = thread::spawn(move || consume(&own, bytes));
        let signals = produce(&ring, bytes, Signaller::new());
        assert!(signals <= consuming.join().unwrap(), "more signals than announcements");
    });
}

#[test]
fn no_end_sleeps_over_a_byte() {
    exchanged(1);
}

#[test]
fn no_end_sleeps_over_bytes_or_room() {
    exchanged(2);
}
