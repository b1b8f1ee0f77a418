//! A network card of the host whose cable ends at a test: a TAP device.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{Errno, read, write};
use rustix::ioctl::{Setter, ioctl, opcode};

/// Longest wait for a frame that has to come.
const LONGEST: Duration = Duration::from_secs(10);

/// A card, and the other end of its cable. The card disappears with it.
#[derive(Debug)]
pub struct Cable {
    /// Name of the card.
    pub card: String,
    /// Ethernet address of the card.
    mac: [u8; 6],
    device: OwnedFd,
    /// A virtio-net header precedes each frame.
    has_header: bool,
}

/// Length of that header.
const HEADER: usize = 10;

/// `struct ifreq` of <linux/if.h>, as `TUNSETIFF` reads it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Request {
    name: [u8; 16],
    flags: i16,
    rest: [u8; 22],
}

/// `IFF_TAP | IFF_NO_PI`: whole frames, without anything before them. The kernel does all offloads,
/// so frames are as on a wire.
const FRAMES: i16 = 0x1002;
/// `IFF_VNET_HDR`: a virtio-net header precedes each frame.
const WITH_HEADER: i16 = 0x4000;
const TUNSETIFF: rustix::ioctl::Opcode = opcode::write::<i32>(b'T', 202);

impl Cable {
    /// Makes a card that is down.
    ///
    /// # Panics
    /// If the kernel makes none.
    pub fn plug() -> Self {
        Self::plug_with(false)
    }

    /// Makes a card that is down, and to which frames can be sent that have yet to be segmented.
    ///
    /// # Panics
    /// If the kernel makes none.
    pub fn plug_segmenting() -> Self {
        Self::plug_with(true)
    }

    fn plug_with(has_header: bool) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let card = format!("tt{:x}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let device = File::options().read(true).write(true).open("/dev/net/tun").expect("TAP devices");
        let device = OwnedFd::from(device);
        let mut name = [0; 16];
        name[..card.len()].copy_from_slice(card.as_bytes());
        let flags = if has_header { FRAMES | WITH_HEADER } else { FRAMES };
        let request = Request { name, flags, rest: [0; 22] };
        // SAFETY: the driver reads a `struct ifreq` of 40 bytes for this opcode, which `Request`
        // is.
        let made = unsafe { ioctl(&device, Setter::<TUNSETIFF, Request>::new(request)) };
        made.expect("a new TAP device");
        fcntl_setfl(&device, OFlags::NONBLOCK).expect("the flags can be set");
        let address = std::fs::read_to_string(format!("/sys/class/net/{card}/address")).expect("its address");
        let octets: Vec<u8> =
            address.trim().split(':').map(|octet| u8::from_str_radix(octet, 16).expect("hex")).collect();
        Self { card, mac: octets.try_into().expect("six octets"), device, has_header }
    }

    /// Sends a frame to the card, which must be up.
    pub fn send(&self, frame: &[u8]) {
        self.send_segmenting([0; HEADER], frame);
    }

    /// Sends a frame with a virtio-net header to a card that takes one.
    pub fn send_segmenting(&self, header: [u8; HEADER], frame: &[u8]) {
        let header = if self.has_header { &header[..] } else { &[] };
        write(&self.device, &[header, frame].concat()).expect("the card is up");
    }

    /// Returns the next frame from the card that the host itself has not sent; `None` if there is
    /// none within `limit`.
    pub fn receive_within(&self, limit: Duration) -> Option<Vec<u8>> {
        self.receive_if(limit, |frame| frame[6..12] != self.mac)
    }

    /// Returns the next frame from the card for which `is_wanted` holds; `None` if there is none
    /// within `limit`.
    pub fn receive_if(&self, limit: Duration, is_wanted: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        let end = Instant::now() + limit;
        let mut frame = vec![0; 70_000];
        let begin = if self.has_header { HEADER } else { 0 };
        loop {
            match read(&self.device, &mut frame[..]) {
                Ok(len) if is_wanted(&frame[begin..len]) => return Some(frame[begin..len].to_vec()),
                // Unwanted frames may come for ever.
                Ok(_) if Instant::now() < end => continue,
                Ok(_) => return None,
                Err(Errno::AGAIN) => {}
                Err(error) => panic!("the card cannot be read: {error}"),
            }
            let left = end.checked_duration_since(Instant::now())?;
            let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
            // An interrupted wait is tried again.
            let _ = poll(&mut [PollFd::new(&self.device, PollFlags::IN)], Some(&left));
        }
    }

    /// Calls `each` with every frame that has come from the card, which is written to `space`
    /// meanwhile.
    ///
    /// # Panics
    /// If the card cannot be read.
    pub fn take_each(&self, space: &mut [u8], mut each: impl FnMut(&[u8])) {
        let begin = if self.has_header { HEADER } else { 0 };
        loop {
            match read(&self.device, &mut *space) {
                Ok(len) => each(&space[begin..len]),
                Err(Errno::AGAIN) => return,
                Err(error) => panic!("the card cannot be read: {error}"),
            }
        }
    }

    /// Takes all frames that have come from the card.
    pub fn drain(&self) {
        while self.receive_if(Duration::ZERO, |_| true).is_some() {}
    }

    /// Returns the next frame from the card.
    ///
    /// # Panics
    /// If none comes.
    pub fn receive(&self) -> Vec<u8> {
        self.receive_within(LONGEST).expect("a frame comes")
    }

    /// Returns the answer of a station to a frame, if that is an ARP question for its address.
    pub fn answer_of(frame: &[u8], ip: [u8; 4], station: [u8; 6]) -> Option<Vec<u8>> {
        let is_question =
            frame.len() >= 42 && frame[12..14] == [8, 6] && frame[20..22] == [0, 1] && frame[38..42] == ip;
        let answer = || {
            let asker = &frame[22..32];
            [&frame[6..12], &station, &frame[12..20], &[0, 2], &station, &ip, asker].concat()
        };
        is_question.then(answer)
    }

    /// Returns what the host says of the card: all its properties, filters and addresses.
    pub fn state(&self) -> String {
        Self::state_of(&self.card)
    }

    /// Returns the number of those for which the card is promiscuous, as `ip` shows it.
    ///
    /// # Panics
    /// If there is no such card.
    pub fn promiscuity(&self) -> u32 {
        let output = Command::new("ip").args(["-d", "link", "show", "dev", &self.card]).output();
        let text = String::from_utf8_lossy(&output.expect("iproute2 can be run").stdout).into_owned();
        let count =
            text.split_once("promiscuity ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        count.expect("the card is there")
    }

    /// Returns what the host says of a card that has this name now, without what changes by itself:
    /// timers of a bridge, whether an address is still checked for duplicates, and the count of
    /// sockets for which the card is promiscuous, which a socket leaves when its last descriptor is
    /// closed ([`Self::promiscuity`]).
    pub fn state_of(card: &str) -> String {
        let say = |program: &str, words: &str| {
            let output = Command::new(program).args(words.split_whitespace()).args(["dev", card]).output();
            String::from_utf8_lossy(&output.expect("iproute2 can be run").stdout).into_owned()
        };
        let all = [
            say("ip", "-d link show"),
            say("ip", "addr show"),
            say("tc", "qdisc show"),
            say("tc", "filter show ingress"),
            say("tc", "filter show egress"),
        ]
        .concat();
        let is_timer = |word: &&str| word.contains('.') && word.parse::<f64>().is_ok();
        let mut lasting = Vec::new();
        let mut words = all.split_whitespace();
        while let Some(word) = words.next() {
            if word == "promiscuity" {
                words.next();
            } else if !is_timer(&word) && word != "tentative" {
                lasting.push(word);
            }
        }
        lasting.join(" ")
    }
}

/// Runs `ip` with these words.
///
/// # Panics
/// If it fails.
pub fn ip(words: &str) {
    let done = Command::new("ip").args(words.split_whitespace()).status().expect("iproute2 can be run");
    assert!(done.success(), "ip {words}");
}
