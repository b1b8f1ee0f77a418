//! One port: a front end that reconnects whenever its link is down, and the driver ends of its
//! rings.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use taut_virtq::driver::{Ram, RxDriver, TxDriver};
use taut_virtq::features;
use taut_virtq::header::NetHeader;
use vhost::vhost_user::Frontend;

use super::frame;
use super::tally::Tally;
use crate::front_end::{self, Event, Wanted};

/// Bytes of a buffer: room for the longest frame and its header.
const BUFFER: u32 = 2048;
/// Most frames under way. A ring has room for twice as many, so that repeated frames do not
/// displace others.
const UNDER_WAY: u64 = 100;
/// Silence after which the frames under way count as lost.
const GIVE_UP: Duration = Duration::from_secs(5);
/// Frames sent in one visit.
const TURN: usize = 4;

/// Features of a port's driver.
#[derive(Debug, Clone, Copy)]
pub(super) struct Driver {
    pub(super) event_idx: bool,
    pub(super) packed: bool,
    /// Sleep until an interrupt, as a guest does; otherwise poll all the time.
    pub(super) interrupted: bool,
}

/// The queues of a link that is up.
struct Card {
    rx: RxDriver,
    tx: TxDriver,
    kicks: [Event; 2],
    /// Raised by the switch when frames have arrived.
    call: Event,
    socket: OwnedFd,
    /// The session ends when this is dropped.
    _session: Frontend,
}

/// A port with counts of its frames.
pub(super) struct Port {
    number: usize,
    peer: usize,
    driver: Driver,
    card: Option<Card>,
    cards: Receiver<Card>,
    /// Asks the connecting thread for another link.
    wanted: Sender<()>,
    sent: u64,
    last_frame: Instant,
    /// Longest time without a frame since [`Port::begin_silence`].
    pub(super) silence: Duration,
    pub(super) tally: Tally,
    /// Number of times that the link went down.
    pub(super) downs: u64,
    buffer: Vec<u8>,
}

impl Port {
    /// Creates a port whose link is coming up, by connecting to the switch or listening for it.
    pub(super) fn new(number: usize, socket: &Path, listen: bool, driver: Driver, ring: u16) -> Result<Self> {
        let listener = listen.then(|| {
            // The file may be absent; any other problem shows in bind.
            let _ = std::fs::remove_file(socket);
            UnixListener::bind(socket).with_context(|| format!("cannot listen on {}", socket.display()))
        });
        let listener = listener.transpose()?;
        let (sender, cards) = channel();
        let (wanted, wishes) = channel();
        wanted.send(())?;
        let socket = socket.to_owned();
        std::thread::spawn(move || {
            while wishes.recv().is_ok() {
                let card = loop {
                    let stream = match &listener {
                        Some(listener) => listener.accept().map(|(stream, _)| stream),
                        None => UnixStream::connect(&socket),
                    };
                    let card = stream.map_err(Into::into).and_then(|stream| Card::new(stream, driver, ring));
                    match card {
                        Ok(card) => break card,
                        Err(_) => std::thread::sleep(Duration::from_millis(1)),
                    }
                };
                if sender.send(card).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            number,
            peer: number ^ 1,
            driver,
            card: None,
            cards,
            wanted,
            sent: 0,
            last_frame: Instant::now(),
            silence: Duration::ZERO,
            tally: Tally::new(),
            downs: 0,
            buffer: Vec::new(),
        })
    }

    pub(super) fn is_up(&self) -> bool {
        self.card.is_some()
    }

    /// Returns the session's socket, to watch for a hang-up.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.card.as_ref().map(|card| card.socket.as_fd())
    }

    /// Drops the link after the switch has hung up, and asks for another one.
    pub(super) fn go_down(&mut self) -> Result<()> {
        self.card = None;
        self.downs += 1;
        Ok(self.wanted.send(())?)
    }

    /// Uses a link that has come up.
    pub(super) fn come_up(&mut self) -> Result<()> {
        if self.card.is_none() {
            match self.cards.try_recv() {
                Ok(card) => self.card = Some(card),
                Err(TryRecvError::Empty) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Restarts the search for the longest silence. The present silence counts.
    pub(super) fn begin_silence(&mut self) {
        self.silence = Duration::ZERO;
    }

    /// Returns whether a frame has arrived since `then`.
    pub(super) fn has_heard_since(&self, then: Instant) -> bool {
        self.last_frame > then
    }

    /// Returns the longest silence. The present silence counts.
    pub(super) fn longest_silence(&self, now: Instant) -> Duration {
        self.silence.max(now.saturating_duration_since(self.last_frame))
    }

    /// Receives everything that has arrived.
    pub(super) fn receive(&mut self, now: Instant) -> Result<()> {
        let Some(card) = &mut self.card else { return Ok(()) };
        if self.driver.interrupted && card.call.take() == 0 {
            return Ok(());
        }
        loop {
            let mut any = false;
            while card.rx.receive(&mut self.buffer)?.is_some() {
                self.tally.arrived(frame::read(&self.buffer, self.peer));
                any = true;
            }
            if any {
                self.silence = self.silence.max(now.saturating_duration_since(self.last_frame));
                self.last_frame = now;
                card.rx.ring().publish();
                if card.rx.ring().needs_kick() {
                    card.kicks[0].raise();
                }
            }
            if !self.driver.interrupted || !card.rx.ring().arm_interrupts() {
                return Ok(());
            }
        }
    }

    /// Returns one more than the highest number received.
    pub(super) fn heard(&self) -> u64 {
        self.tally.next()
    }

    /// Sends a few more frames, given that the other port has received those below `heard`. Returns
    /// the first number that may still arrive, if the other port should give up earlier ones.
    pub(super) fn send(&mut self, heard: u64, peer_silent_for: Duration) -> Result<Option<u64>> {
        let Some(card) = &mut self.card else { return Ok(None) };
        card.tx.reclaim()?;
        let mut given_up = None;
        let mut room = (heard + UNDER_WAY).saturating_sub(self.sent);
        if room == 0 && peer_silent_for > GIVE_UP {
            given_up = Some(self.sent);
            room = UNDER_WAY;
        }
        for _ in 0..TURN.min(room as usize) {
            frame::write(&mut self.buffer, self.number, self.peer, self.sent);
            if !card.tx.send(&NetHeader::default(), &self.buffer) {
                break;
            }
            self.sent += 1;
        }
        card.tx.ring().publish();
        if card.tx.ring().needs_kick() {
            card.kicks[1].raise();
        }
        Ok(given_up)
    }

    /// Returns the number of frames sent.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the time since the last frame.
    pub(super) fn silent_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.last_frame)
    }
}

impl Card {
    fn new(stream: UnixStream, driver: Driver, ring: u16) -> Result<Self> {
        let little = "the memory is too small for the buffers";
        let socket = stream.as_fd().try_clone_to_owned()?;
        let memory = (u64::from(ring) * 2 * u64::from(BUFFER) + (1 << 18)).next_multiple_of(1 << 21);
        let asked = [(driver.event_idx, features::EVENT_IDX), (driver.packed, features::RING_PACKED)];
        let asked = asked.iter().filter(|(wanted, _)| *wanted).map(|(_, bit)| bit).sum::<u64>();
        let wanted = Wanted {
            features: asked | features::NET_MRG_RXBUF,
            entries: [ring; 2],
            ram: Ram::new(memory)?,
            config: 0,
        };
        let mut made = None;
        let session = front_end::connect(stream, wanted, |mut link| {
            let mut rx =
                RxDriver::new(&mut link.ram, link.rx.layout, link.features, BUFFER)?.context(little)?;
            let mut tx =
                TxDriver::new(&mut link.ram, link.tx.layout, link.features, BUFFER)?.context(little)?;
            rx.ring().publish();
            tx.ring().suspend_interrupts();
            if driver.interrupted {
                rx.ring().arm_interrupts();
            } else {
                rx.ring().suspend_interrupts();
            }
            made = Some((rx, tx, [link.rx.kick, link.tx.kick], link.rx.call));
            Ok(())
        })?;
        let (rx, tx, kicks, call) = made.context("nothing was set up")?;
        // A first kick, for a switch that waits for one before it reads the rings.
        kicks.iter().for_each(Event::raise);
        Ok(Self { rx, tx, kicks, call, socket, _session: session })
    }
}
