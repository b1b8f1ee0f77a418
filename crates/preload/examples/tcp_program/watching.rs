//! Waits by many threads, of epoll instances that are watched themselves, and with long lists.
#![allow(unsafe_code, reason = "C functions and limits")]

use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use crate::calls::{answer, epoll, epoll_ctl, epoll_wait, fcntl, pipe, poll, recv, select_readable, write};
use crate::limits::allow;
use crate::{Scenario, pair};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("one_thread_gets_the_only_event", one_thread_gets_the_only_event),
    ("one_thread_gets_an_edge", one_thread_gets_an_edge),
    ("one_event_at_a_time", one_event_at_a_time),
    ("instances_are_watched", instances_are_watched),
    ("unused_entries_of_poll", unused_entries_of_poll),
    ("closed_entries_of_poll", closed_entries_of_poll),
    ("select_beyond_its_usual_size", select_beyond_its_usual_size),
];

const THREADS: usize = 4;
const ROUNDS: u32 = 2000;
/// Time after which a thread looks whether all rounds are over.
const LOOK: i32 = 20;

/// Has threads wait for a connection, on which one byte comes in each round. Returns the number of
/// events that they got, and of times that two threads had one at once.
fn count_events(events: i32, handle: impl Fn(i32, i32) + Sync) -> (u32, u32) {
    let (client, mut server) = pair();
    client.set_nonblocking(true).unwrap();
    let (instance, fd) = (epoll(), client.as_raw_fd());
    let instance = instance.as_raw_fd();
    epoll_ctl(instance, libc::EPOLL_CTL_ADD, fd, events, 0).unwrap();
    let (read, found, inside, together) =
        (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while read.load(SeqCst) < ROUNDS {
                    if epoll_wait(instance, LOOK).is_none() {
                        continue;
                    }
                    found.fetch_add(1, SeqCst);
                    together.fetch_add(u32::from(inside.fetch_add(1, SeqCst) > 0), SeqCst);
                    thread::yield_now();
                    let count = recv(fd, &mut [0; 1], 0).unwrap_or(0) as u32;
                    inside.fetch_sub(1, SeqCst);
                    handle(instance, fd);
                    read.fetch_add(count, SeqCst);
                }
            });
        }
        for round in 0..ROUNDS {
            server.write_all(b"x").unwrap();
            while read.load(SeqCst) <= round {
                thread::yield_now();
            }
        }
    });
    (found.load(SeqCst), together.load(SeqCst))
}

fn one_thread_gets_the_only_event() {
    let events = libc::EPOLLIN | libc::EPOLLONESHOT;
    let (found, together) = count_events(events, |instance, fd| {
        epoll_ctl(instance, libc::EPOLL_CTL_MOD, fd, events, 0).unwrap();
    });
    println!("{found} events, {together} at once");
}

fn one_thread_gets_an_edge() {
    let (found, together) = count_events(libc::EPOLLIN | libc::EPOLLET, |_, _| {});
    println!("{found} events, {together} at once");
}

/// Each call has room for one event, and three descriptors always have one: two connections, whose
/// numbers are both even or both odd, and a pipe.
fn one_event_at_a_time() {
    const CALLS: usize = 64;
    let (here, there) = (pair(), pair());
    let (reading, writing) = pipe();
    write(writing.as_raw_fd(), b"1").unwrap();
    for (name, receiving, sending) in [
        ("clients", [&here.0, &there.0], [&here.1, &there.1]),
        ("servers", [&here.1, &there.1], [&here.0, &there.0]),
    ] {
        let all = [receiving[0].as_raw_fd(), receiving[1].as_raw_fd(), reading.as_raw_fd()];
        assert_eq!((all[0] - all[1]) % 2, 0);
        let instance = epoll();
        for fd in all {
            epoll_ctl(instance.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN, fd as u64).unwrap();
        }
        for mut end in sending {
            end.write_all(b"1").unwrap();
        }
        for end in receiving {
            println!("{name}: {:#x}", poll(end.as_raw_fd(), libc::POLLIN, -1));
        }
        let mut found = [0; 3];
        for _ in 0..CALLS {
            let (_, data) = epoll_wait(instance.as_raw_fd(), -1).unwrap();
            found[all.iter().position(|fd| *fd as u64 == data).unwrap()] += 1;
        }
        println!("{name}: {}", found.iter().all(|count| *count >= CALLS / 8));
    }
}

/// An instance watches connections, and `poll`, `select` or another instance watch that one.
fn instances_are_watched() {
    for (way, is_nested_first) in [(0, true), (0, false), (1, false), (2, false)] {
        let (client, mut server) = pair();
        let (inner, outer) = (epoll(), epoll());
        let (inner, outer) = (inner.as_raw_fd(), outer.as_raw_fd());
        let nest = || epoll_ctl(outer, libc::EPOLL_CTL_ADD, inner, libc::EPOLLIN, 5).unwrap();
        if is_nested_first {
            nest();
        }
        epoll_ctl(inner, libc::EPOLL_CTL_ADD, client.as_raw_fd(), libc::EPOLLIN, 7).unwrap();
        // A call on the connection, and one of the instance.
        server.write_all(b"1").unwrap();
        println!("{way}, at first: {:x?}", epoll_wait(inner, -1));
        println!("read: {:?}", recv(client.as_raw_fd(), &mut [0; 8], 0));
        if way == 0 && !is_nested_first {
            nest();
        }
        let wait = |time| match way {
            0 => epoll_wait(outer, time).is_some_and(|event| event == (libc::EPOLLIN as u32, 5)),
            1 => poll(inner, libc::POLLIN, time) == libc::POLLIN,
            _ if time == 0 => select_readable(inner),
            _ => (0..1000).any(|_| {
                thread::sleep(Duration::from_millis(10));
                select_readable(inner)
            }),
        };
        println!("nothing: {}", wait(0));
        let late = thread::spawn(move || {
            thread::sleep(Duration::from_millis(30));
            server.write_all(b"later").unwrap();
            server
        });
        println!("later: {}", wait(10_000));
        println!("the inner one: {:x?}", epoll_wait(inner, 10_000));
        println!("read: {:?}", recv(client.as_raw_fd(), &mut [0; 8], 0));
        println!("nothing: {}", wait(0));
        drop(late.join().unwrap());
    }
}

/// As many entries as the kernel accepts, few of which are used.
fn unused_entries_of_poll() {
    const FILES: usize = 256;
    assert_eq!(allow(FILES as u64), FILES as u64);
    let (client, mut server) = pair();
    let unused = libc::pollfd { fd: -1, events: libc::POLLIN, revents: 1 };
    let mut entries = vec![unused; FILES];
    entries[FILES / 2].fd = client.as_raw_fd();
    let mut wait = |time| {
        // SAFETY: so many entries, all this frame's.
        let count = answer(unsafe { libc::poll(entries.as_mut_ptr(), FILES as u64, time) });
        let all: Vec<_> = (0..FILES).filter(|place| entries[*place].revents != 0).collect();
        println!("{count:?} {all:?}");
    };
    server.write_all(b"1").unwrap();
    wait(-1);
    println!("read: {:?}", recv(client.as_raw_fd(), &mut [0; 8], 0));
    wait(20);
    let late = thread::spawn(move || {
        thread::sleep(Duration::from_millis(30));
        server.write_all(b"later").unwrap();
        server
    });
    wait(-1);
    drop(late.join().unwrap());
}

/// A descriptor that was closed beside a connection that always has something.
fn closed_entries_of_poll() {
    let (client, mut server) = pair();
    server.write_all(b"1").unwrap();
    println!("bytes: {:#x}", poll(client.as_raw_fd(), libc::POLLIN, -1));
    for _ in 0..20 {
        let (reading, writing) = pipe();
        let mut all = [client.as_raw_fd(), writing.as_raw_fd(), reading.as_raw_fd()].map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        let mut wait = || {
            // SAFETY: three entries, all this frame's.
            let count = answer(unsafe { libc::poll(all.as_mut_ptr(), 3, -1) });
            (count, all.map(|one| one.revents))
        };
        let before: Vec<_> = (0..3).map(|_| wait()).collect();
        drop(reading);
        println!("{before:x?}, then {:x?}", wait());
    }
}

/// Bits beyond the usual size of a set.
fn select_beyond_its_usual_size() {
    const GREAT: i32 = 1500;
    let (client, mut server) = pair();
    if allow(4096) < 4096 {
        println!("not allowed");
        return;
    }
    let (reading, _writing) = pipe();
    let great = fcntl(reading.as_raw_fd(), libc::F_DUPFD_CLOEXEC, GREAT).unwrap();
    server.write_all(b"1").unwrap();
    println!("bytes: {:#x}", poll(client.as_raw_fd(), libc::POLLIN, -1));
    let (idle, _other) = pair();
    for _ in 0..3 {
        let mut set = [0u64; 32];
        for fd in [client.as_raw_fd(), idle.as_raw_fd(), great] {
            set[fd as usize / 64] |= 1 << (fd % 64);
        }
        let (mut time, none) = (libc::timeval { tv_sec: 0, tv_usec: 0 }, std::ptr::null_mut());
        // SAFETY: the set is this frame's and has more bits.
        let found =
            answer(unsafe { libc::select(GREAT + 1, set.as_mut_ptr().cast(), none, none, &raw mut time) });
        let has = |fd: i32| set[fd as usize / 64] & 1 << (fd % 64) != 0;
        println!("{found:?}: {} {} {}", has(client.as_raw_fd()), has(idle.as_raw_fd()), has(great));
    }
}
