//! Records (`SOCK_SEQPACKET`) to receivers that read late. Linux ends a connection whose receiver
//! holds one packet for each 576 bytes of its buffer.

use std::collections::VecDeque;
use std::time::Duration;

use taut_api::fabric::counters::SocketWord;
use taut_virtq::socket_header::{CREDIT_REQUEST, CREDIT_UPDATE, RW, SEQ_EOM, SEQPACKET, SocketHeader};

use super::rig::*;

/// Packets that Linux holds of a connection with [`ALLOC`] bytes of buffer.
const MOST: usize = ALLOC as usize / 576;

fn of_records(header: SocketHeader) -> SocketHeader {
    SocketHeader { kind: SEQPACKET, ..header }
}

#[test]
fn short_records_wait_for_a_reader_that_is_late() {
    const COUNT: usize = 3000;
    let all = [&[1][..], &[20], &[300], &[1000], &[2000, 1, 1, 1], &[100, 9000, 5, 2000, 1]];
    for (lens, most) in all.into_iter().flat_map(|lens| [(lens, ALLOC), (lens, 32 << 10)]) {
        let mut rig = rig(&[&["d"], &["d"]], 4096);
        let (a, mut b) = rig.connect_as(SEQPACKET, 0, 1, 5000);
        let update = |own| SocketHeader { buf_alloc: most, ..of_records(rig.header(own, CREDIT_UPDATE)) };
        let (mut header_of_b, record_of_a) = (update(b), of_records(rig.header(a, RW)));
        assert!(rig.drivers[1].send(header_of_b, &[]));
        let (mut sent, mut got, mut worst, mut record) = (0, 0, 0, Vec::new());
        // Lengths of the packets that the receiver holds, and whether a record ends with them.
        let mut held: VecDeque<(u32, bool)> = VecDeque::new();
        while got < COUNT {
            while sent < COUNT && rig.drivers[0].outstanding() < 60 {
                let header = SocketHeader { flags: SEQ_EOM, ..record_of_a };
                assert!(rig.drivers[0].send(header, &pattern(sent, lens[sent % lens.len()])));
                sent += 1;
            }
            rig.settle();
            rig.drivers[0].inbox.clear();
            let before = held.len();
            while let Some((header, bytes)) = rig.drivers[1].inbox.pop_front() {
                if header.op == RW {
                    held.push_back((bytes.len() as u32, header.flags == SEQ_EOM));
                    record.extend(bytes);
                } else {
                    assert_eq!(header.op, CREDIT_UPDATE);
                }
                if header.flags == SEQ_EOM {
                    assert!(record == pattern(got, lens[got % lens.len()]), "{lens:?}: record {got}");
                    record.clear();
                    got += 1;
                }
            }
            worst = worst.max(held.len());
            // The program reads a record when no more come.
            if before == held.len() {
                let packets = 1 + held.iter().position(|(_, ends)| *ends).expect("a record is there");
                b.taken += held.drain(..packets).map(|(len, _)| len).sum::<u32>();
                header_of_b.fwd_cnt = b.taken;
                assert!(rig.drivers[1].send(header_of_b, &[]));
            }
        }
        assert!(worst <= most as usize / 576, "{lens:?}, {most}: {worst} packets unread");
        assert_eq!(rig.count(1, SocketWord::Resets), 0);
    }
}

#[test]
fn the_short_end_of_a_long_record_waits_for_nobody() {
    let mut rig = rig(&[&["d"], &["d"]], 1000);
    let (a, _) = rig.connect_as(SEQPACKET, 0, 1, 5000);
    for (len, flags) in [(64 << 10, 0), (64 << 10, 0), (64 << 10, 0), (10, SEQ_EOM)] {
        let header = SocketHeader { flags, ..of_records(rig.header(a, RW)) };
        assert!(rig.drivers[0].send(header, &pattern(0, len)));
        rig.settle();
    }
    let (mut packets, mut bytes, mut last) = (0, 0, 0);
    for (header, payload) in rig.drivers[1].inbox.drain(..).filter(|(header, _)| header.op == RW) {
        (packets, bytes, last) = (packets + 1, bytes + payload.len(), header.flags);
    }
    assert!(packets > 128, "{packets} packets");
    assert_eq!((bytes, last), ((192 << 10) + 10, SEQ_EOM));
}

/// An end as Linux has it. Its records and its credit are in one queue in front of the ring, and
/// each record that its program reads adds news of credit.
struct LinuxEnd {
    own: Own,
    queue: VecDeque<(SocketHeader, Vec<u8>)>,
    /// Lengths of the records that have arrived and that the program has not read.
    unread: VecDeque<u32>,
    /// Records that have arrived.
    got: usize,
}

impl LinuxEnd {
    /// An end whose program has sent `count` records.
    fn new(rig: &Rig, own: Own, count: usize) -> Self {
        let header = SocketHeader { flags: SEQ_EOM, ..of_records(rig.header(own, RW)) };
        let queue = (0..count).map(|at| (header, record(own.guest, at))).collect();
        Self { own, queue, unread: VecDeque::new(), got: 0 }
    }

    /// Fills the ring from the queue.
    fn send(&mut self, rig: &mut Rig) {
        while let Some((header, bytes)) = self.queue.front()
            && rig.drivers[self.own.guest].send(*header, bytes)
        {
            self.queue.pop_front();
        }
    }

    /// Takes in what has arrived from the other guest.
    fn receive(&mut self, rig: &mut Rig) {
        while let Some((header, bytes)) = rig.drivers[self.own.guest].inbox.pop_front() {
            match header.op {
                RW => {
                    assert!(header.flags == SEQ_EOM && bytes == record(1 - self.own.guest, self.got));
                    self.unread.push_back(bytes.len() as u32);
                    self.got += 1;
                }
                CREDIT_REQUEST => self.tell(rig),
                op => assert_eq!(op, CREDIT_UPDATE),
            }
        }
    }

    /// Has the program read all records that are there.
    fn read(&mut self, rig: &Rig) {
        while let Some(len) = self.unread.pop_front() {
            self.own.taken += len;
            self.tell(rig);
        }
    }

    fn tell(&mut self, rig: &Rig) {
        self.queue.push_back((of_records(rig.header(self.own, CREDIT_UPDATE)), Vec::new()));
    }
}

/// The record with this number that a guest sends.
fn record(guest: usize, number: usize) -> Vec<u8> {
    pattern(number + guest, 1 + number % 16)
}

#[test]
fn short_records_pass_both_ways_although_credit_is_behind_them_in_the_rings() {
    const COUNT: usize = 6000;
    for replaced in [false, true] {
        let mut rig = rig(&[&["d"], &["d"]], 4096);
        let (a, b) = rig.connect_as(SEQPACKET, 0, 1, 5000);
        let mut ends = [a, b].map(|own| LinuxEnd::new(&rig, own, COUNT));
        let mut worst = 0;
        for turn in 0..1000 {
            for end in &mut ends {
                end.send(&mut rig);
            }
            rig.settle();
            rig.check();
            for end in &mut ends {
                end.receive(&mut rig);
                worst = worst.max(end.unread.len());
                // Both programs begin to read when everything is full.
                if turn > 200 {
                    end.read(&rig);
                }
            }
            if turn == 150 {
                assert!(ends.iter().all(|end| end.queue.is_empty()), "the rings are blocked");
                if replaced {
                    let streams = rig.stop_switch();
                    rig.replace_switch(streams);
                }
            }
            rig.now += Duration::from_millis(1);
        }
        assert_eq!(ends.each_ref().map(|end| end.got), [COUNT; 2]);
        assert!(ends.iter().all(|end| end.queue.is_empty()));
        assert_eq!([0, 1].map(|guest| rig.drivers[guest].outstanding()), [0; 2]);
        assert!(worst < MOST, "{worst} packets unread");
        assert_eq!(rig.count(0, SocketWord::Resets) + rig.count(1, SocketWord::Resets), 0);
    }
}

#[test]
fn short_records_do_not_wait_where_they_would_block_their_ring() {
    let mut rig = rig(&[&["d"], &["d"], &["d"]], 4096);
    let (records, _) = rig.connect_as(SEQPACKET, 0, 1, 5000);
    let (bytes, mut reader) = rig.connect(0, 2, 5001);
    // Connections that rest. With one more, records to their guest are no longer copied.
    for port in 0..47 {
        rig.connect_as(SEQPACKET, 2, 1, 6000 + port);
    }
    let send = |rig: &mut Rig, count: usize| {
        let header = SocketHeader { flags: SEQ_EOM, ..of_records(rig.header(records, RW)) };
        for _ in 0..count {
            assert!(rig.drivers[0].send(header, b"short"), "the ring is full");
        }
        rig.settle();
        rig.ops(1).into_iter().filter(|op| *op == RW).count()
    };
    assert_eq!(send(&mut rig, 60) + send(&mut rig, 60) + send(&mut rig, 50), 128);
    rig.connect_as(SEQPACKET, 2, 1, 7000);
    // They wait in the ring, not for long enough to be copied.
    assert_eq!(rig.drivers[0].outstanding(), 170 - 128);
    rig.now += Duration::from_millis(2);
    rig.settle();
    assert_eq!(rig.ops(1).len(), 170 - 128);
    assert_eq!(send(&mut rig, 60), 60);
    assert_eq!(rig.drivers[0].outstanding(), 0);
    rig.write(bytes, b"others pass");
    rig.settle();
    assert_eq!(rig.read(&mut reader), b"others pass");
}
