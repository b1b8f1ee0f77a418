//! Frames at a given rate to a guest that waits for interrupts, to compare moderation schemes (spec
//! row VN-11).
//!
//! One thread drives two ports of a switch. It sends a frame with a time stamp whenever one is due,
//! and receives as a driver with NAPI does: an interrupt makes it poll until nothing is left, then
//! it asks for interrupts again. If the next frame is not due soon, it sleeps until then or until
//! an interrupt.

use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use quanta::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use taut_virtq::driver::{Ram, RxDriver, TxDriver};
use taut_virtq::features;
use taut_virtq::header::NetHeader;
use vhost::vhost_user::Frontend;

use crate::front_end::{self, Event, Link, Wanted, socket};
use crate::measure::latencies::Latencies;
use crate::measure::raw;

/// Bytes of a frame.
const SIZE: usize = 60;
/// Offset of the time stamp, behind the Ethernet header.
const STAMP: usize = 14;
/// EtherType for experiments (IEEE 802).
const EXPERIMENTAL: [u8; 2] = [0x88, 0xb5];
const RX_BUFFER: u32 = 2048;
const TX_BUFFER: u32 = 128;
/// Most frames that are received, or sent late, in one go.
const BUDGET: usize = 64;
/// Time that sleeping and waking up takes: a frame that is due sooner is waited for.
const AWAKE: Duration = Duration::from_micros(40);
/// Time to wait for frames under way.
const LATE: Duration = Duration::from_millis(100);
/// Time that the first frame may take to arrive.
const PATIENCE: Duration = Duration::from_secs(10);

/// The ports of a measurement.
#[derive(Debug, Clone)]
pub struct PacedOptions {
    /// Sockets on which the switch connects: the sender's and the receiver's.
    pub sockets: [PathBuf; 2],
    /// Entries of each ring.
    pub entries: u16,
    /// Ask for packed rings.
    pub packed: bool,
    /// CPU of the generator.
    pub cpu: Option<usize>,
}

/// Results of one measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Paced {
    /// Frames per second that were due.
    pub rate: u32,
    /// Frames per second that were sent: fewer if this CPU or the switch could not keep up.
    pub sent_per_s: f64,
    /// Frames that did not arrive.
    pub lost: u64,
    /// Interrupts per second.
    pub interrupts_per_s: f64,
    /// Kicks per second that the switch asked of the sender.
    pub kicks_per_s: f64,
    /// Median time from just before a frame is made available until it is received.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p99_9_us: f64,
}

/// Listening sockets. The switch has to be told of them before [`Listening::connect`].
#[derive(Debug)]
pub struct Listening {
    listeners: [UnixListener; 2],
    options: PacedOptions,
}

/// The two connected ports.
pub struct Line {
    sender: Port,
    receiver: Port,
    /// The receiver polls and asks for no interrupts.
    polling: bool,
    frame: Vec<u8>,
    received: Vec<u8>,
    clock: Clock,
}

/// One port.
struct Port {
    tx: TxDriver,
    rx: RxDriver,
    tx_kick: Event,
    rx_kick: Event,
    /// Interrupt of the receive queue.
    call: Event,
    _session: Frontend,
}

/// Counts of one measurement.
#[derive(Debug, Default)]
struct Tally {
    sent: u64,
    received: u64,
    interrupts: u64,
    kicks: u64,
    latencies: Latencies,
}

impl Listening {
    /// Listens on both sockets.
    pub fn new(options: PacedOptions) -> Result<Self> {
        let [sender, receiver] = &options.sockets;
        let listeners = [socket::listen(sender)?, socket::listen(receiver)?];
        Ok(Self { listeners, options })
    }

    /// Waits for the switch, and until a frame gets from the first port to the second. `addresses`
    /// are their MACs.
    pub fn connect(self, addresses: [[u8; 6]; 2]) -> Result<Line> {
        if let Some(cpu) = self.options.cpu {
            raw::pin(cpu).with_context(|| format!("cannot run on CPU {cpu}"))?;
        }
        // Timers are less exact if the kernel refuses this.
        let _ = rustix::thread::set_current_timer_slack(Some(std::num::NonZeroU64::MIN));
        let [sender, receiver] = &self.listeners;
        let [from, to] = addresses;
        let mut frame = [&to[..], &from[..], &EXPERIMENTAL].concat();
        frame.resize(SIZE, 0);
        let mut line = Line {
            sender: Port::new(sender, &self.options)?,
            receiver: Port::new(receiver, &self.options)?,
            polling: true,
            frame,
            received: Vec::new(),
            clock: Clock::new(),
        };
        line.greet()?;
        Ok(line)
    }
}

impl Port {
    fn new(listener: &UnixListener, options: &PacedOptions) -> Result<Self> {
        let buffers = u64::from(options.entries) * u64::from(RX_BUFFER + TX_BUFFER);
        let ram = Ram::new((buffers + (2 << 20)).next_multiple_of(2 << 20)).context("no memory")?;
        let packed = if options.packed { features::RING_PACKED } else { 0 };
        let wanted =
            Wanted { features: features::EVENT_IDX | packed, entries: [options.entries; 2], ram, config: 0 };
        let mut made = None;
        let session = front_end::connect(socket::accept(listener)?, wanted, |link| {
            let Link { mut ram, features, rx, tx, .. } = link;
            let little = "the memory is too small for the buffers";
            let mut rx_driver = RxDriver::new(&mut ram, rx.layout, features, RX_BUFFER)?.context(little)?;
            let mut tx_driver = TxDriver::new(&mut ram, tx.layout, features, TX_BUFFER)?.context(little)?;
            rx_driver.ring().publish();
            // Sent buffers are reclaimed when room is needed.
            tx_driver.ring().suspend_interrupts();
            made = Some((tx_driver, rx_driver, tx.kick, rx.kick, rx.call));
            Ok(())
        })?;
        let (tx, rx, tx_kick, rx_kick, call) = made.context("nothing was set up")?;
        Ok(Self { tx, rx, tx_kick, rx_kick, call, _session: session })
    }
}

impl Line {
    /// Sends `rate` frames per second for `duration`, and counts what arrives.
    pub fn measure(&mut self, rate: u32, duration: Duration) -> Result<Paced> {
        if rate == 0 {
            bail!("no frame is due within the duration: use a higher rate");
        }
        let interval = Duration::from_secs(1).as_nanos() as f64 / f64::from(rate);
        let mut tally = Tally::default();
        self.receiver.call.take();
        let begun = self.clock.now();
        let mut now = begun;
        while now - begun < duration {
            let due = ((now - begun).as_nanos() as f64 / interval) as u64 + 1;
            self.send(due.saturating_sub(tally.sent).min(BUDGET as u64), &mut tally)?;
            self.receive(&mut tally)?;
            now = self.clock.now();
            let next = Duration::from_nanos((tally.sent as f64 * interval) as u64).min(duration);
            let pause = next.saturating_sub(now - begun);
            if !self.polling && pause > 2 * AWAKE {
                self.sleep(pause.saturating_sub(AWAKE))?;
                now = self.clock.now();
            }
        }
        let seconds = (now - begun).as_secs_f64();
        while tally.received < tally.sent && now - begun < duration + LATE {
            self.receive(&mut tally)?;
            now = self.clock.now();
        }
        tally.interrupts += self.receiver.call.take();
        Ok(Paced {
            rate,
            sent_per_s: tally.sent as f64 / seconds,
            lost: tally.sent - tally.received,
            interrupts_per_s: tally.interrupts as f64 / seconds,
            kicks_per_s: tally.kicks as f64 / seconds,
            p50_us: tally.latencies.quantile_us(0.5),
            p99_us: tally.latencies.quantile_us(0.99),
            p99_9_us: tally.latencies.quantile_us(0.999),
        })
    }

    /// Sends up to `count` frames, as far as there is room.
    fn send(&mut self, count: u64, tally: &mut Tally) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let Port { tx, tx_kick, .. } = &mut self.sender;
        for _ in 0..count {
            if !tx.has_room(SIZE) {
                tx.reclaim()?;
            }
            let stamp = self.clock.raw();
            self.frame[STAMP..STAMP + 8].copy_from_slice(&stamp.to_le_bytes());
            if !tx.send(&NetHeader::default(), &self.frame) {
                break;
            }
            tally.sent += 1;
        }
        tx.ring().publish();
        if tx.ring().needs_kick() {
            tx_kick.raise();
            tally.kicks += 1;
        }
        Ok(())
    }

    /// Handles an interrupt, if there is one, and receives frames after it or while polling.
    fn receive(&mut self, tally: &mut Tally) -> Result<()> {
        let Port { rx, rx_kick, call, .. } = &mut self.receiver;
        if !self.polling {
            let interrupts = call.take();
            if interrupts == 0 {
                return Ok(());
            }
            tally.interrupts += interrupts;
            self.polling = true;
            rx.ring().suspend_interrupts();
        }
        let mut emptied = false;
        for _ in 0..BUDGET {
            if rx.receive(&mut self.received)?.is_none() {
                emptied = true;
                break;
            }
            let Some(stamp) = self.received.get(STAMP..STAMP + 8).filter(|_| self.received.len() == SIZE)
            else {
                bail!("a frame of {} bytes arrived that was not sent", self.received.len());
            };
            let stamp = u64::from_le_bytes(stamp.try_into().expect("eight bytes"));
            tally.latencies.record(self.clock.delta(stamp, self.clock.raw()));
            tally.received += 1;
        }
        rx.ring().publish();
        if rx.ring().needs_kick() {
            rx_kick.raise();
        }
        self.polling = !emptied || rx.ring().arm_interrupts();
        Ok(())
    }

    /// Sleeps until an interrupt, at most for `time`.
    fn sleep(&self, time: Duration) -> Result<()> {
        let timeout = Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() };
        poll(&mut [PollFd::new(&self.receiver.call.as_fd(), PollFlags::IN)], Some(&timeout))?;
        Ok(())
    }

    /// Sends frames until one arrives, then waits for the rest.
    fn greet(&mut self) -> Result<()> {
        let mut tally = Tally::default();
        let begun = self.clock.now();
        while tally.received == 0 {
            if self.clock.now() - begun > PATIENCE {
                bail!("no frame gets from the first port to the second: they need one port group");
            }
            self.send(1, &mut tally)?;
            std::thread::sleep(Duration::from_millis(1));
            self.polling = true;
            self.receive(&mut tally)?;
        }
        std::thread::sleep(LATE);
        self.polling = true;
        while self.polling {
            self.receive(&mut tally)?;
        }
        Ok(())
    }
}
