//! Honest ports beside the one under attack: they exchange frames all the time, and measure.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use taut_virtq::header::NetHeader;

use crate::{RawPort, Taut};

/// Addresses of the two neighbours, and of the port without offloads.
const MACS: [[u8; 6]; 3] = [[2, 0x66, 0, 0, 1, 1], [2, 0x66, 0, 0, 1, 2], [2, 0x66, 0, 0, 1, 3]];
/// Type of their frames: one for local experiments (IEEE 802).
const TYPE: [u8; 2] = [0x88, 0xb5];
const LEN: usize = 64;
/// Pause between two frames.
const PAUSE: Duration = Duration::from_micros(200);
/// Time after which a frame is lost.
const LOST: Duration = Duration::from_secs(5);

/// Ports that exchange frames.
#[derive(Debug)]
pub struct Neighbours {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
    thread: Option<JoinHandle<()>>,
}

/// Delays of frames between the neighbours, from before the send until receipt, by one clock.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Delay of each frame that arrived.
    pub delays: Vec<Duration>,
    /// Number of frames that did not arrive.
    pub lost: u64,
}

impl Seen {
    /// The longest delay.
    pub fn longest(&self) -> Duration {
        self.delays.iter().copied().max().unwrap_or_default()
    }
}

impl Neighbours {
    /// Attaches the ports and lets two of them send.
    pub fn start(taut: &Taut, portgroup: &str) -> Self {
        let a = RawPort::attach(taut, "neighbour-a", portgroup, MACS[0]);
        let b = RawPort::attach(taut, "neighbour-b", portgroup, MACS[1]);
        let sink = RawPort::attach_plain(taut, "sink", portgroup, MACS[2]);
        let (stop, seen) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Seen>>::default());
        let (stopped, noted) = (Arc::clone(&stop), Arc::clone(&seen));
        let thread = std::thread::spawn(move || exchange([a, b], sink, &stopped, &noted));
        Self { stop, seen, thread: Some(thread) }
    }

    /// Address of the port that accepts no offloads.
    pub fn sink() -> [u8; 6] {
        MACS[2]
    }

    /// Takes what was seen since the last call.
    pub fn take(&self) -> Seen {
        std::mem::take(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Sends a frame from one to the other, waits for it, and sends one back.
fn exchange(mut ports: [RawPort; 2], mut sink: RawPort, stop: &AtomicBool, seen: &Mutex<Seen>) {
    let mut number = 0_u64;
    while !stop.load(Relaxed) {
        while sink.receive().is_some() {}
        sink.flush();
        let [from, to] = &mut ports;
        number += 1;
        let frame = frame(from.mac, to.mac, number);
        let sent = Instant::now();
        while !from.send(&NetHeader::default(), &frame) && sent.elapsed() < LOST {
            std::thread::yield_now();
        }
        from.flush();
        let arrived = arrives(to, &frame, sent);
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        match arrived {
            Some(delay) => seen.delays.push(delay),
            None => seen.lost += 1,
        }
        drop(seen);
        ports.reverse();
        std::thread::sleep(PAUSE);
    }
}

/// Waits for a frame among those of others. Returns its delay.
fn arrives(at: &mut RawPort, frame: &[u8], sent: Instant) -> Option<Duration> {
    loop {
        while let Some(got) = at.receive() {
            if got == frame {
                let delay = sent.elapsed();
                at.flush();
                return Some(delay);
            }
        }
        at.flush();
        let left = LOST.checked_sub(sent.elapsed())?;
        at.await_frame(left);
    }
}

fn frame(from: [u8; 6], to: [u8; 6], number: u64) -> Vec<u8> {
    let mut frame = [&to[..], &from, &TYPE, &number.to_be_bytes()].concat();
    frame.resize(LEN, 0);
    frame
}
