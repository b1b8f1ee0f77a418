//! Tests of accepts that must not wait.

use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::AtomicUsize;
use std::thread;

use super::*;

fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

fn flags(listener: &TcpListener) -> (bool, i32) {
    let flags = fcntl_getfl(listener).unwrap();
    (flags.contains(OFlags::NONBLOCK), signal_number(listener.as_raw_fd()).unwrap())
}

#[test]
fn a_socket_is_non_blocking_only_during_its_accept() {
    let listener = listener();
    let fd = listener.as_raw_fd();
    assert_eq!(without_waiting(fd, || Ok(())), Err(Errno::AGAIN), "nobody is there");
    let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    without_waiting(fd, || {
        assert_eq!(flags(&listener), (true, MARK));
        Ok(())
    })
    .unwrap();
    assert_eq!(flags(&listener), (false, 0));
}

#[test]
fn the_flag_of_a_process_that_has_ended_is_removed() {
    let listener = listener();
    let fd = listener.as_raw_fd();
    set_signal_number(fd, MARK).unwrap();
    set_non_blocking(listener.as_fd(), true).unwrap();
    assert_eq!(is_non_blocking(fd), Ok(false));
    assert_eq!(flags(&listener), (false, 0));
    listener.set_nonblocking(true).unwrap();
    assert_eq!(is_non_blocking(fd), Ok(true), "that of the program stays");
}

#[test]
fn a_signal_number_of_the_program_stays() {
    let listener = listener();
    let fd = listener.as_raw_fd();
    set_signal_number(fd, 10).unwrap();
    let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    without_waiting(fd, || Ok(())).unwrap();
    assert_eq!(flags(&listener), (false, 10));
}

#[test]
fn one_thread_has_the_turn() {
    let inside = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    in_turn(|| {
                        assert_eq!(inside.fetch_add(1, Relaxed), 0);
                        thread::yield_now();
                        inside.fetch_sub(1, Relaxed);
                    });
                }
            });
        }
    });
    in_turn(|| in_turn(|| ()));
}

#[test]
fn the_turn_of_a_thread_that_has_gone_ends() {
    thread::spawn(|| std::mem::forget(Turn::take())).join().unwrap();
    in_turn(|| ());
}
