//! Both ends in threads of their own that sleep until they are signalled.

use std::sync::mpsc::{Receiver, Sender, channel as bells};
use std::time::Duration;

use super::super::{Consumer, End, Producer};
use super::{channel, ends, stream};

/// Bytes of the stream.
const BYTES: u64 = 300_000;
/// Time after which a thread that was not signalled fails.
const PATIENCE: Duration = Duration::from_secs(30);

fn sleep(bell: &Receiver<()>) {
    bell.recv_timeout(PATIENCE).expect("a thread sleeps over its work");
}

/// Sends the stream, in writes of up to `most` bytes.
fn send(mut producer: Producer, most: u64, signal: &Sender<()>, bell: &Receiver<()>) {
    let mut sent = 0;
    while sent < BYTES {
        let count = most.min(BYTES - sent) as usize;
        let written = producer.write(&stream(sent, count)).unwrap();
        sent += written as u64;
        if producer.publish() && producer.must_signal() {
            let _ = signal.send(());
        }
        if written == 0 {
            producer.wait();
            if producer.room().unwrap() == 0 {
                sleep(bell);
            }
            producer.stop_waiting();
        }
    }
    producer.finish(End::Finished);
    if producer.must_signal() {
        let _ = signal.send(());
    }
}

/// Receives the stream until its end, in reads of up to `most` bytes. Signals room only if half of
/// the ring is free.
fn receive(mut consumer: Consumer, most: usize, signal: &Sender<()>, bell: &Receiver<()>) {
    let (mut got, mut out) = (0, vec![0; most]);
    loop {
        let look = consumer.look().unwrap();
        let count = consumer.read(&mut out).unwrap();
        assert_eq!(out[..count], stream(got, count));
        got += count as u64;
        let half = consumer.size() / 2;
        if consumer.publish() && consumer.free().unwrap() >= half && consumer.must_signal() {
            let _ = signal.send(());
        }
        if count > 0 {
            continue;
        }
        if look.end == End::Finished {
            break;
        }
        consumer.wait();
        let again = consumer.look().unwrap();
        if again.bytes == 0 && again.end == End::Open {
            sleep(bell);
        }
        consumer.stop_waiting();
    }
    assert_eq!(got, BYTES);
}

fn exchange(ring_len: u32, written: u64, read: usize) {
    let (producer, consumer) = ends(&channel(ring_len, u32::MAX - 1000));
    let (to_consumer, consumers) = bells();
    let (to_producer, producers) = bells();
    std::thread::scope(|scope| {
        scope.spawn(move || send(producer, written, &to_consumer, &producers));
        scope.spawn(move || receive(consumer, read, &to_producer, &consumers));
    });
}

#[test]
fn no_thread_sleeps_over_bytes_or_room() {
    exchange(64, 50, 50);
    exchange(64, 1000, 7);
    exchange(256, 13, 1000);
    exchange(4096, 3000, 3000);
}
