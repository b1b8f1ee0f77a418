//! A port on a vSwitch whose uplinks lead to this program.

use std::time::Duration;

use taut_tests::{Cable, RawPort, Taut, eventually};
use taut_virtq::header::NetHeader;

pub(crate) const PORT: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
pub(crate) const OUTSIDE: [u8; 6] = [2, 0, 0, 0, 0, 0x99];
pub(crate) const ALL: [u8; 6] = [0xff; 6];
/// Type of frames that nobody answers.
pub(crate) const TYPE: [u8; 2] = [0x88, 0xb5];
/// Longest time for a change of the uplink.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// A port on a vSwitch with several uplinks.
pub(crate) struct Rig {
    pub(crate) taut: Taut,
    pub(crate) cables: Vec<Cable>,
    pub(crate) port: RawPort,
}

impl Rig {
    /// Makes a card with a cable for each uplink.
    pub(crate) fn new(uplinks: usize) -> Self {
        Self::of(Taut::start(), uplinks)
    }

    /// Does the same at a daemon that has just started.
    pub(crate) fn of(taut: Taut, uplinks: usize) -> Self {
        let taut = taut.with_lan();
        let cables: Vec<_> = (0..uplinks).map(|_| Cable::plug()).collect();
        for cable in &cables {
            taut.ok(["uplink", "add", "sw", &cable.card]);
        }
        let port = RawPort::attach(&taut, "port", "lan", PORT);
        Self { taut, cables, port }
    }

    /// Changes the vSwitch.
    pub(crate) fn set(&self, words: &[&str]) {
        self.taut.ok(["vswitch", "set", "sw"].into_iter().chain(words.iter().copied()));
    }

    /// Sends a frame from the port.
    pub(crate) fn send(&mut self, frame: &[u8]) {
        assert!(self.port.send(&NetHeader::default(), frame), "the fabric takes the port's frames");
        self.port.flush();
    }

    /// Returns the numbers of the port's frames that an uplink has sent.
    pub(crate) fn sent(&self, uplink: usize) -> Vec<u32> {
        let is_ours = |frame: &[u8]| frame[6..12] == PORT && frame[12..14] == TYPE;
        let next = || self.cables[uplink].receive_if(Duration::ZERO, is_ours);
        std::iter::from_fn(next).map(|frame| number(&frame)).collect()
    }

    /// Returns the numbers of the frames that the port has received.
    pub(crate) fn received(&mut self) -> Vec<u32> {
        let mut numbers = Vec::new();
        while let Some(frame) = self.port.receive() {
            if frame[12..14] == TYPE {
                numbers.push(number(frame));
            }
        }
        self.port.flush();
        numbers
    }

    /// Returns the uplink by which the port sends, once it receives nothing at its former one.
    pub(crate) fn own_uplink(&mut self) -> usize {
        std::thread::sleep(Duration::from_millis(1500));
        for uplink in 0..self.cables.len() {
            self.sent(uplink);
        }
        self.send(&frame(OUTSIDE, PORT, 0));
        eventually("the port's frame leaves by an uplink", || {
            (0..self.cables.len()).find(|&uplink| !self.sent(uplink).is_empty())
        })
    }

    /// Returns the names of the cards, separated by commas.
    pub(crate) fn cards(&self) -> String {
        let cards: Vec<_> = self.cables.iter().map(|cable| cable.card.as_str()).collect();
        cards.join(",")
    }
}

/// Returns a frame with a number.
pub(crate) fn frame(to: [u8; 6], from: [u8; 6], number: u32) -> Vec<u8> {
    let mut frame = [&to[..], &from, &TYPE, &number.to_be_bytes()].concat();
    frame.resize(64, 0);
    frame
}

/// Returns the number of a frame.
pub(crate) fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes([frame[14], frame[15], frame[16], frame[17]])
}
