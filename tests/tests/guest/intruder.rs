//! Frames of an attacker inside a private network: random, forged, VLAN-hopping, foreign ARP.

use taut_virtq::header::{self, NetHeader};

const IPV4: [u8; 2] = [0x08, 0x00];
const ARP: [u8; 2] = [0x08, 0x06];
const IPV6: [u8; 2] = [0x86, 0xdd];
const TAGS: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xa8]];

/// One sender. The same seed gives the same frames.
#[derive(Debug)]
pub(crate) struct Intruder {
    state: u64,
    own: [u8; 6],
    known: Vec<[u8; 6]>,
    header: NetHeader,
    frame: Vec<u8>,
    ready: bool,
}

impl Intruder {
    /// Makes a sender with its configured address and other addresses that it knows.
    pub(crate) fn new(seed: u64, own: [u8; 6], known: Vec<[u8; 6]>) -> Self {
        let header = NetHeader::default();
        Self { state: seed, own, known, header, frame: Vec::new(), ready: false }
    }

    /// Returns the next frame, and the same one again until [`Self::sent`].
    pub(crate) fn frame(&mut self) -> (&NetHeader, &[u8]) {
        if !self.ready {
            self.make();
            self.ready = true;
        }
        (&self.header, &self.frame)
    }

    pub(crate) fn sent(&mut self) {
        self.ready = false;
    }

    /// Returns the next number of SplitMix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn push_random(&mut self, len: usize) {
        for _ in 0..len.div_ceil(8) {
            let bytes = self.next().to_le_bytes();
            self.frame.extend_from_slice(&bytes);
        }
        let excess = len.next_multiple_of(8) - len;
        self.frame.truncate(self.frame.len() - excess);
    }

    fn make(&mut self) {
        self.frame.clear();
        self.header = NetHeader::default();
        if self.one_in(16) {
            // Random bytes of any length that fits.
            let len = self.below(1600);
            self.push_random(len);
        } else {
            let to = self.destination();
            let from = self.source();
            self.frame.extend_from_slice(&to);
            self.frame.extend_from_slice(&from);
            self.tags();
            match self.below(8) {
                0..4 => self.ip(),
                4..6 => self.arp(from),
                6 => {
                    self.frame.extend_from_slice(&IPV6);
                    let len = self.below(200);
                    self.push_random(len);
                }
                _ => {
                    let len = 2 + self.below(1500);
                    self.push_random(len);
                }
            }
        }
        if self.one_in(8) {
            self.offloads();
        }
    }

    fn destination(&mut self) -> [u8; 6] {
        match self.below(8) {
            0 => [0xff; 6],
            1 => [0x01, 0x80, 0xc2, 0, 0, self.below(34) as u8],
            2 => [0x01, 0x00, 0x5e, 0, 0, self.below(256) as u8],
            3 => self.random_mac(),
            _ => self.known_mac(),
        }
    }

    fn source(&mut self) -> [u8; 6] {
        match self.below(8) {
            0 => self.random_mac(),
            1 | 2 => self.known_mac(),
            _ => self.own,
        }
    }

    fn known_mac(&mut self) -> [u8; 6] {
        let index = self.below(self.known.len());
        self.known[index]
    }

    fn random_mac(&mut self) -> [u8; 6] {
        let bytes = self.next().to_le_bytes();
        std::array::from_fn(|at| bytes[at])
    }

    /// Adds up to three tags: neighbouring VLANs, the own one, priorities, invalid ones.
    fn tags(&mut self) {
        let count = [0, 0, 0, 1, 1, 2, 2, 3][self.below(8)];
        for _ in 0..count {
            let kind = TAGS[usize::from(self.one_in(4))];
            let vlan = [0, 10, 20, 4094, 4095, self.below(4096) as u16][self.below(6)];
            let tci = vlan | (self.below(16) as u16) << 12;
            self.frame.extend_from_slice(&kind);
            self.frame.extend_from_slice(&tci.to_be_bytes());
        }
    }

    fn address(&mut self) -> [u8; 4] {
        match self.below(8) {
            0 => [10, 72, 0, 9],
            1 => [10, 72, 0, 1],
            2 => [10, 73, 0, 1],
            3 => [10, 73, 0, 10],
            4 => [10, 72, 0, 255],
            5 => [224, 0, 0, self.below(256) as u8],
            6 => [10, 73, 0, self.below(256) as u8],
            _ => (self.next() as u32).to_be_bytes(),
        }
    }

    /// Adds an IPv4 packet with a correct checksum, so that a router has to decide about it.
    fn ip(&mut self) {
        let (from, to) = (self.address(), self.address());
        let most = if self.one_in(8) { 1400 } else { 64 };
        let payload = 8 + self.below(most);
        let fragment = if self.one_in(8) { self.next() as u16 } else { 0 };
        let protocol = [1, 1, 6, 17, 2, 4, 47, 41][self.below(8)];
        self.frame.extend_from_slice(&IPV4);
        let start = self.frame.len();
        self.frame.extend_from_slice(&[0x45, 0]);
        self.frame.extend_from_slice(&((20 + payload) as u16).to_be_bytes());
        self.push_random(2);
        self.frame.extend_from_slice(&fragment.to_be_bytes());
        let life = [64, 1, 2, 255][self.below(4)];
        self.frame.extend_from_slice(&[life, protocol, 0, 0]);
        self.frame.extend_from_slice(&from);
        self.frame.extend_from_slice(&to);
        let sum = checksum(&self.frame[start..]);
        self.frame[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
        let body = self.frame.len();
        self.push_random(payload);
        if protocol == 1 {
            // ICMP echo request, echo reply, or error.
            self.frame[body] = [8, 0, 3, 5][self.below(4)];
            self.frame[body + 1..body + 4].fill(0);
            let sum = checksum(&self.frame[body..]);
            self.frame[body + 2..body + 4].copy_from_slice(&sum.to_be_bytes());
        }
    }

    fn arp(&mut self, from: [u8; 6]) {
        let claimed = if self.one_in(2) { from } else { self.known_mac() };
        let (sender, target) = (self.address(), self.address());
        let operation = 1 + self.below(2) as u8;
        self.frame.extend_from_slice(&ARP);
        self.frame.extend_from_slice(&[0, 1, 8, 0, 6, 4, 0, operation]);
        self.frame.extend_from_slice(&claimed);
        self.frame.extend_from_slice(&sender);
        let to = self.known_mac();
        self.frame.extend_from_slice(&to);
        self.frame.extend_from_slice(&target);
        self.frame.resize(60.max(self.frame.len()), 0);
    }

    fn offloads(&mut self) {
        let long = self.frame.len() as u16;
        self.header = NetHeader {
            flags: self.below(4) as u8,
            gso_type: [header::GSO_NONE, header::GSO_TCPV4, header::GSO_TCPV6, header::GSO_UDP_L4, 0x81]
                [self.below(5)],
            hdr_len: self.below(200) as u16,
            gso_size: self.below(1500) as u16,
            csum_start: self.below(usize::from(long) + 8) as u16,
            csum_offset: [6, 16, self.below(2000) as u16][self.below(3)],
            num_buffers: self.next() as u16,
        };
    }
}

fn checksum(bytes: &[u8]) -> u16 {
    let sum = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum::<u32>();
    let folded = (sum >> 16) + (sum & 0xffff);
    !((folded >> 16) + folded) as u16
}
