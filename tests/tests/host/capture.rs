//! Captures and mirrors of ports: the test is the guests.

use std::io::{BufRead as _, BufReader, Read as _};
use std::ops::Range;
use std::process::Stdio;
use std::time::{Duration, Instant};

use taut_tests::{Capture, RawPort, Taut, eventually, kill_9, long_tcp};
use taut_virtq::header::NetHeader;

const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
const C: [u8; 6] = [2, 0, 0, 0, 0, 0xc];
/// Type of frames that nobody answers.
const TYPE: [u8; 2] = [0x88, 0xb5];
/// Most captures at one time.
const MOST: usize = 16;
/// Frames that are under way at one time.
const BURST: usize = 100;
/// Longest wait for a frame.
const LONGEST: Duration = Duration::from_secs(60);

/// Two ports on a port group.
struct Rig {
    taut: Taut,
    a: RawPort,
    b: RawPort,
}

fn frame(to: [u8; 6], from: [u8; 6], number: u32, len: usize) -> Vec<u8> {
    let mut frame = [&to[..], &from, &TYPE, &number.to_be_bytes()].concat();
    frame.resize(len, number as u8);
    frame
}

impl Rig {
    fn new() -> Self {
        let taut = Taut::start().with_lan();
        let a = RawPort::attach(&taut, "a", "lan", A);
        let b = RawPort::attach(&taut, "b", "lan", B);
        Self { taut, a, b }
    }

    /// Sends a frame from port a.
    fn send(&mut self, header: &NetHeader, frame: &[u8]) {
        assert!(self.a.send(header, frame), "there is room for it");
        self.a.flush();
    }

    /// Returns the next frame that comes to port b.
    fn receive(&mut self) -> Vec<u8> {
        let end = Instant::now() + LONGEST;
        loop {
            if let Some(seen) = self.b.receive() {
                return seen.to_vec();
            }
            assert!(Instant::now() < end, "no frame comes");
            self.b.flush();
            self.b.await_frame(Duration::from_millis(50));
        }
    }

    /// Sends a frame with this number from port a to port b, where it must come.
    fn pass(&mut self, number: u32) {
        self.stream(number..number + 1, |_| 60);
    }

    /// Sends frames with these numbers and lengths from port a to port b, where all must come in
    /// order.
    fn stream(&mut self, numbers: Range<u32>, len: impl Fn(u32) -> usize) {
        for first in numbers.clone().step_by(BURST) {
            let burst = first..numbers.end.min(first + BURST as u32);
            for number in burst.clone() {
                let sent = frame(B, A, number, len(number));
                assert!(self.a.send(&NetHeader::default(), &sent), "there is room for it");
            }
            self.a.flush();
            for number in burst {
                assert!(self.receive() == frame(B, A, number, len(number)), "frame {number}");
            }
            self.b.flush();
        }
    }
}

#[test]
fn a_stream_of_frames_is_captured_whole_and_in_order_at_both_ends() {
    const COUNT: u32 = 20_000;
    const PART: u32 = 2000;
    let mut rig = Rig::new();
    // The switch remembers where frames go before the captures begin.
    rig.pass(0);
    let count = COUNT.to_string();
    let sender = Capture::start(&rig.taut, "a", "a.pcapng", &["--count", &count]);
    let options = ["--count", &count, "--direction", "rx"];
    let receiver = Capture::start(&rig.taut, "external/b", "b.pcapng", &options);
    let len = |number: u32| 60 + number as usize % 1400;
    // A capture keeps frames for a reader that is late, but not all 15 MB of them.
    for first in (0..COUNT).step_by(PART as usize) {
        rig.stream(first..first + PART, len);
        eventually("both captures have these frames", || {
            let has = |capture: &Capture| capture.read().frames.len() >= (first + PART) as usize;
            (has(&sender) && has(&receiver)).then_some(())
        });
    }
    for (capture, is_sent, owner) in [(sender, true, "external/a"), (receiver, false, "external/b")] {
        let (success, said, captured) = capture.wait();
        assert!(success && said.contains("20000 frames captured, 0 lost"), "{said}");
        assert_eq!((captured.comment.as_str(), captured.snaplen), (owner, 65_600));
        assert!(captured.name.starts_with("port "), "{}", captured.name);
        assert_eq!(captured.numbers, Some((u64::from(COUNT), 0)));
        assert_eq!(captured.frames.len(), COUNT as usize);
        let mut last = 0;
        for (number, seen) in (0..).zip(&captured.frames) {
            assert!(seen.bytes == frame(B, A, number, len(number)), "frame {number}");
            assert_eq!((seen.is_sent, seen.lost, &seen.comment), (is_sent, 0, &None));
            assert_eq!(seen.len as usize, seen.bytes.len());
            assert!(seen.at_ns >= last, "frame {number} is earlier than the one before it");
            last = seen.at_ns;
        }
    }
}

#[test]
fn a_dropped_frame_has_its_reason_and_a_long_one_is_whole() {
    let mut rig = Rig::new();
    let options = ["--snaplen", "1000", "--direction", "tx"];
    let capture = Capture::start(&rig.taut, "a", "a.pcapng", &options);
    let forged = frame(B, [2, 0, 0, 0, 0, 0x66], 1, 60);
    rig.send(&NetHeader::default(), &forged);
    let (header, long) = long_tcp(B, A, 3000, 1000);
    rig.send(&header, &long);
    eventually("both are captured", || (capture.read().frames.len() == 2).then_some(()));
    capture.interrupt();
    let (success, said, captured) = capture.wait();
    assert!(success && said.contains("2 frames captured, 0 lost"), "{said}");
    let [first, second] = &captured.frames[..] else { panic!("{captured:?}") };
    assert_eq!((&first.bytes, first.comment.as_deref()), (&forged, Some("drop: forged-transmit")));
    assert_eq!((second.len as usize, &second.bytes[..]), (long.len(), &long[..1000]));
    assert!(first.is_sent && second.is_sent && second.comment.is_none());
    assert_eq!(captured.numbers, Some((2, 0)));
}

#[test]
fn lines_tell_of_frames_without_a_file() {
    let mut rig = Rig::new();
    for (format, expected) in [
        ("table", " rx 02:00:00:00:00:0a > 02:00:00:00:00:0b, type 0x88b5, 60 bytes\n"),
        ("json", "\"source\":\"02:00:00:00:00:0a\""),
    ] {
        let mut command = rig.taut.command();
        command.args(["-o", format, "capture", "b", "--count", "1"]);
        let mut program = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(program.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        assert!(line.contains("capturing external/b (port "), "{line}");
        rig.pass(1);
        let mut printed = String::new();
        program.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        stderr.read_to_string(&mut line).unwrap();
        assert!(program.wait().unwrap().success(), "{line}");
        assert!(printed.contains(expected) && printed.lines().count() == 1, "{printed}");
    }
    let audit = rig.taut.ok(["audit"]);
    assert!(audit.contains("GET /v1/ports/") && audit.contains("/capture"), "{audit}");
}

#[test]
fn captures_end_with_their_programs_and_a_slow_one_delays_nobody() {
    const COUNT: u32 = 8000;
    let mut rig = Rig::new();
    let slow = Capture::start(&rig.taut, "a", "slow.pcapng", &[]);
    let start = |at: usize| Capture::start(&rig.taut, "b", &format!("{at}.pcapng"), &[]);
    let mut others: Vec<_> = (1..MOST).map(start).collect();
    let said = rig.taut.refused(["capture", "b", "--count", "1"]);
    assert!(said.contains("16 captures run already"), "{said}");
    others.remove(0).kill();
    // The capture fails for one of two reasons: there are too many, or the device is full.
    let full = eventually("there is room for another capture", || {
        let said = rig.taut.refused(["capture", "b", "-w", "/dev/full"]);
        (!said.contains("captures run already")).then_some(said)
    });
    assert!(full.contains("cannot be written to /dev/full"), "{full}");
    drop(others);

    slow.suspend();
    rig.stream(0..COUNT, |_| 1500);
    slow.resume();
    eventually("it has read what there was room for", || {
        // This frame tells how many were lost before it, if there is room for it.
        rig.pass(COUNT);
        let captured = slow.read();
        captured.frames.last().is_some_and(|last| last.bytes.len() == 60).then_some(())
    });
    slow.interrupt();
    let (success, said, captured) = slow.wait();
    assert!(success, "{said}");
    let (seen, lost) = captured.numbers.unwrap();
    let told: u64 = captured.frames.iter().map(|frame| frame.lost).sum();
    assert!(lost > 0 && lost == told && seen >= u64::from(COUNT), "{seen} frames, {lost} and {told} lost");
    assert_eq!(captured.frames.len() as u64, seen - lost);
}

#[test]
fn a_capture_tells_why_it_has_ended() {
    let mut rig = Rig::new();
    let said = rig.taut.refused(["capture", "external/nobody"]);
    assert!(said.contains("there is no port `external/nobody`") && said.contains("taut port list"), "{said}");
    let said = rig.taut.refused(["capture", "a", "--snaplen", "0"]);
    assert!(said.contains("--snaplen"), "{said}");

    let capture = Capture::start(&rig.taut, "a", "fabric.pcapng", &[]);
    rig.pass(1);
    let killed = rig.taut.fabric_pid();
    kill_9(killed);
    let (success, said, captured) = capture.wait();
    assert!(!success && said.contains("another one has taken over\nhint: "), "{said}");
    assert!(captured.numbers.is_some(), "the file has an end nevertheless");
    eventually("another fabric runs", || (rig.taut.fabric_pid() != killed).then_some(()));
    rig.pass(2);

    let capture = Capture::start(&rig.taut, "b", "port.pcapng", &[]);
    rig.taut.ok(["port", "detach", "b"]);
    let (success, said, _) = capture.wait();
    assert!(!success && said.contains("the port is gone") && said.contains("\nhint: "), "{said}");

    let capture = Capture::start(&rig.taut, "a", "daemon.pcapng", &[]);
    rig.taut.kill_daemon();
    let (success, said, captured) = capture.wait();
    assert!(!success && said.contains("closed the connection"), "{said}");
    assert!(captured.numbers.is_some());
    rig.taut.restart_daemon();
}

/// Returns the frames that have come to a port, and those that come soon.
fn taken(port: &mut RawPort) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for _ in 0..2 {
        while let Some(seen) = port.receive() {
            frames.push(seen.to_vec());
        }
        port.flush();
        port.await_frame(Duration::from_millis(20));
    }
    frames
}

#[test]
fn a_mirror_has_copies_of_the_frames_of_its_sources_and_no_others() {
    let mut rig = Rig::new();
    rig.taut.ok(["portgroup", "create", "apart", "--vswitch", "sw", "--vlan", "7"]);
    let mut c = RawPort::attach(&rig.taut, "c", "apart", C);
    let set = |rig: &Rig, session: &str| rig.taut.ok(["vswitch", "set", "sw", "--mirror", session]);
    let said = set(&rig, "ids:from=external/b,to=external/c");
    assert!(said.contains("mirrors ids:from=external/b,to=external/c"), "{said}");
    eventually("copies come", || {
        rig.pass(0);
        (!taken(&mut c).is_empty()).then_some(())
    });
    for first in (0..1000).step_by(BURST) {
        let numbers = first..first + BURST as u32;
        rig.stream(numbers.clone(), |_| 1500);
        let expected: Vec<_> = numbers.map(|number| frame(B, A, number, 1500)).collect();
        assert!(taken(&mut c) == expected, "all copies, in order, from {first}");
    }
    // A frame that port b does not get is not copied.
    rig.send(&NetHeader::default(), &frame(A, [2, 0, 0, 0, 0, 0x66], 1, 60));
    rig.send(&NetHeader::default(), &frame([2, 0, 0, 0, 0, 0x77], A, 1, 60));
    assert_eq!(taken(&mut c), Vec::<Vec<u8>>::new());
    set(&rig, "ids:off");
    eventually("no copies come", || {
        rig.pass(1);
        taken(&mut c).is_empty().then_some(())
    });
    for (session, reason) in [
        ("ids:from=external/b,to=external/b", "external/b is named twice"),
        ("ids:from=external/b,to=uplink/eth1", "gets no copies"),
        ("ids:from=b,to=external/c", "`b` is no owner of a port"),
    ] {
        let refused = rig.taut.refused(["vswitch", "set", "sw", "--mirror", session]);
        assert!(refused.contains(reason), "{refused}");
    }
}
