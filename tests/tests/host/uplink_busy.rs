//! Uplinks that are so busy that the fabric's epoll sets do not watch their sockets.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use taut_tests::{Taut, eventually};
use taut_virtq::header::NetHeader;

use crate::uplink::{A, B, OUTSIDE, Rig, frame, next, send, vlan};

/// Returns the number of sockets that the fabric's epoll sets watch.
fn watched_sockets(taut: &Taut) -> usize {
    let process = format!("/proc/{}", taut.fabric_pid());
    let sets = fs::read_dir(format!("{process}/fdinfo")).unwrap();
    // A descriptor may be closed meanwhile.
    let sets = sets.filter_map(|set| fs::read_to_string(set.unwrap().path()).ok());
    let is_socket = |line: &&str| {
        let fd = line.strip_prefix("tfd:").and_then(|line| line.split_whitespace().next());
        let target = fd.and_then(|fd| fs::read_link(format!("{process}/fd/{fd}")).ok());
        target.is_some_and(|target| target.to_string_lossy().starts_with("socket:"))
    };
    sets.map(|set| set.lines().filter(is_socket).count()).sum()
}

/// Has a port send as many frames as it can. The uplink's socket is not watched then, but frames
/// from outside arrive; and it is watched again afterwards.
fn is_served_while_busy(options: &[&str]) {
    let Rig { taut, cable, mut a, mut b } = Rig::with(options);
    send(&mut a, &frame(OUTSIDE, A, &[], 1));
    assert_eq!(cable.receive(), frame(OUTSIDE, A, &[], 1));
    let calm = watched_sockets(&taut);
    let is_over = AtomicBool::new(false);
    let from_outside = |number| frame(B, OUTSIDE, &[vlan(10)], number);
    thread::scope(|scope| {
        scope.spawn(|| {
            let many = frame(OUTSIDE, A, &[], 2);
            while !is_over.load(Relaxed) {
                while a.send(&NetHeader::default(), &many) {}
                a.flush();
            }
        });
        eventually("a busy uplink is not watched", || (watched_sockets(&taut) < calm).then_some(()));
        for number in 0..10 {
            cable.send(&from_outside(number));
            assert_eq!(next(&mut b), frame(B, OUTSIDE, &[], number), "beside the many");
        }
        is_over.store(true, Relaxed);
    });
    eventually("a calm uplink is watched", || (watched_sockets(&taut) == calm).then_some(()));
    for number in 10..15 {
        // The worker sleeps by then.
        thread::sleep(Duration::from_millis(20));
        cable.send(&from_outside(number));
        assert_eq!(next(&mut b), frame(B, OUTSIDE, &[], number), "to a worker that sleeps");
    }
}

#[test]
fn a_busy_packet_socket_is_not_watched_until_its_worker_sleeps() {
    is_served_while_busy(&[]);
}

#[test]
fn a_busy_xdp_socket_is_not_watched_until_its_worker_sleeps() {
    is_served_while_busy(&["--backend", "xdp"]);
}
