//! One port: a front end that connects whenever its link is down, and the driver ends of its rings.

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

/// Buffers are as long as the longest frame and its header.
const BUFFER: u32 = 2048;
/// Frames under way at most: a ring takes them twice, so that what is doubled does not push others out.
const UNDER_WAY: u64 = 100;
/// After so long without any frame those under way have been lost.
const GIVE_UP: Duration = Duration::from_secs(5);
/// Frames sent in one turn.
const TURN: usize = 4;

/// What a port's driver takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Driver {
    pub(super) event_idx: bool,
    pub(super) packed: bool,
    /// Sleeps until it is interrupted, as a guest does; otherwise it looks all the time.
    pub(super) interrupted: bool,
}

/// A link that is up.
struct Card {
    rx: RxDriver,
    tx: TxDriver,
    kicks: [Event; 2],
    /// Raised when frames have come.
    call: Event,
    socket: OwnedFd,
    /// Ends with this value.
    _session: Frontend,
}

/// A port and what came of its frames.
pub(super) struct Port {
    number: usize,
    peer: usize,
    driver: Driver,
    card: Option<Card>,
    cards: Receiver<Card>,
    /// Told when another link is wanted.
    wanted: Sender<()>,
    sent: u64,
    last_frame: Instant,
    /// Longest time without a frame since [`Port::begin_silence`].
    pub(super) silence: Duration,
    pub(super) tally: Tally,
    /// How often the link went down.
    pub(super) downs: u64,
    buffer: Vec<u8>,
}

impl Port {
    /// A port whose link is coming up. The switch is connected to, or listened for.
    pub(super) fn new(number: usize, socket: &Path, listen: bool, driver: Driver, ring: u16) -> Result<Self> {
        let listener = listen.then(|| {
            // Gone is what it should be; anything else shows at once.
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

    /// The socket, to be watched for its end.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.card.as_ref().map(|card| card.socket.as_fd())
    }

    /// The switch has hung up.
    pub(super) fn go_down(&mut self) -> Result<()> {
        self.card = None;
        self.downs += 1;
        Ok(self.wanted.send(())?)
    }

    /// Takes up a link that has come up.
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

    /// From now on the longest silence is looked for, the present one included.
    pub(super) fn begin_silence(&mut self) {
        self.silence = Duration::ZERO;
    }

    /// Has a frame come since?
    pub(super) fn has_heard_since(&self, then: Instant) -> bool {
        self.last_frame > then
    }

    /// The longest silence, that which lasts included.
    pub(super) fn longest_silence(&self, now: Instant) -> Duration {
        self.silence.max(now.saturating_duration_since(self.last_frame))
    }

    /// Takes what has come.
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

    /// One above the highest number received.
    pub(super) fn heard(&self) -> u64 {
        self.tally.next()
    }

    /// Sends a few more, of which the other port has received those below `heard`. Tells from which number on it may still
    /// expect frames, if it should give others up.
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

    /// Frames sent.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// How long nothing has come.
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
        // The first look at the rings, for a switch that waits for it.
        kicks.iter().for_each(Event::raise);
        Ok(Self { rx, tx, kicks, call, socket, _session: session })
    }
}
