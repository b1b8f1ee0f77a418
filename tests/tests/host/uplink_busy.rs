//! Uplinks that are so busy that the fabric's epoll sets do not watch their sockets.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use taut_tests::{RawPort, Taut, eventually};
use taut_virtq::header::NetHeader;

use crate::uplink::{A, B, OUTSIDE, Rig, frame, next, send, vlan};

/// Returns the number of sockets that the fabric's epoll sets watch for frames, rather than for
/// room to send.
fn watched_sockets(taut: &Taut) -> usize {
    /// `EPOLLIN`.
    const IN: u32 = 1;
    let process = format!("/proc/{}", taut.fabric_pid());
    let sets = fs::read_dir(format!("{process}/fdinfo")).unwrap();
    // A descriptor may be closed meanwhile.
    let sets = sets.filter_map(|set| fs::read_to_string(set.unwrap().path()).ok());
    // "tfd: 5 events: 1d data: …", with the events in hexadecimal digits.
    let is_counted = |line: &&str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let ["tfd:", fd, "events:", events, ..] = words[..] else { return false };
        let target = fs::read_link(format!("{process}/fd/{fd}"));
        let is_socket = target.is_ok_and(|target| target.to_string_lossy().starts_with("socket:"));
        is_socket && u32::from_str_radix(events, 16).is_ok_and(|events| events & IN != 0)
    };
    sets.map(|set| set.lines().filter(is_counted).count()).sum()
}

/// Has a port send as many frames as it can while `during` runs, also if that panics.
fn flooded(a: &mut RawPort, during: impl FnOnce()) {
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = End(&is_over);
        scope.spawn(|| {
            let many = frame(OUTSIDE, A, &[], 2);
            while !is_over.load(Relaxed) {
                while a.send(&NetHeader::default(), &many) {}
                a.flush();
            }
        });
        during();
    });
}

fn from_outside(rig_b: &mut RawPort, cable: &taut_tests::Cable, number: u8, when: &str) {
    cable.send(&frame(B, OUTSIDE, &[vlan(10)], number));
    assert_eq!(next(rig_b), frame(B, OUTSIDE, &[], number), "{when}");
}

/// The socket of a busy uplink is not watched, and frames from outside arrive nevertheless. It is
/// watched again when the worker sleeps.
fn is_watched_again(options: &[&str]) {
    let Rig { taut, cable, mut a, mut b } = Rig::with(options);
    send(&mut a, &frame(OUTSIDE, A, &[], 1));
    assert_eq!(cable.receive(), frame(OUTSIDE, A, &[], 1));
    let calm = watched_sockets(&taut);
    flooded(&mut a, || {
        eventually("a busy uplink is not watched", || (watched_sockets(&taut) < calm).then_some(()));
        (0..10).for_each(|number| from_outside(&mut b, &cable, number, "beside the many"));
    });
    eventually("a calm uplink is watched", || (watched_sockets(&taut) == calm).then_some(()));
    for number in 10..15 {
        // The worker sleeps by then.
        thread::sleep(Duration::from_millis(20));
        from_outside(&mut b, &cable, number, "to a worker that sleeps");
    }
}

#[test]
fn a_busy_packet_socket_is_not_watched_until_its_worker_sleeps() {
    is_watched_again(&[]);
}

#[test]
fn a_busy_xdp_socket_is_not_watched_until_its_worker_sleeps() {
    is_watched_again(&["--backend", "xdp"]);
}

/// A worker that never sleeps looks at the uplink itself: no event tells of its frames.
fn is_looked_at(options: &[&str]) {
    let Rig { taut, cable, mut a, mut b } = Rig::on(Taut::start_with(&["--fabric-mode", "polling"]), options);
    let calm = watched_sockets(&taut);
    flooded(&mut a, || {
        eventually("a busy uplink is not watched", || (watched_sockets(&taut) < calm).then_some(()));
    });
    for number in 0..10 {
        // The worker has given up polling the card by then.
        thread::sleep(Duration::from_millis(5));
        from_outside(&mut b, &cable, number, "to a worker that looks");
    }
    assert!(watched_sockets(&taut) < calm, "the worker has not slept");
}

#[test]
fn a_packet_socket_is_served_without_a_watch() {
    is_looked_at(&[]);
}

#[test]
fn an_xdp_socket_is_served_without_a_watch() {
    is_looked_at(&["--backend", "xdp"]);
}
