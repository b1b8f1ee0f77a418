//! Tests of the file of a listener's Unix socket.

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Barrier;
use std::thread;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};

use super::entrance::unix;
use super::*;

const BACKLOG: c_int = 16;

/// A folder for socket files, and the path of the VM's socket.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vm.sock");
    (folder, path)
}

fn is_taken(result: &Result<(OwnedFd, u32), Stays>) -> bool {
    matches!(result, Err(Stays::Taken("its Unix socket", 7)))
}

#[test]
fn a_program_between_bind_and_listen_keeps_its_file() {
    let (_folder, path) = folder();
    let file = path.with_file_name("vm.sock_7");
    let first = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    bind(&first, &SocketAddrUnix::new(&file).unwrap()).unwrap();
    assert!(is_taken(&unix(&path, 7)), "it does not listen yet");
    listen(&first, BACKLOG).unwrap();
    assert!(is_taken(&unix(&path, 7)), "it does");
    let first = UnixListener::from(first);
    first.set_nonblocking(true).unwrap();
    assert!(first.accept().is_err(), "looking whether it is there is no connection");
    UnixStream::connect(file).unwrap();
    first.accept().unwrap();
}

#[test]
fn a_left_over_file_is_taken_by_one_program() {
    for _ in 0..50 {
        let (_folder, path) = folder();
        let file = path.with_file_name("vm.sock_7");
        drop(UnixListener::bind(&file).unwrap());
        let begun = Barrier::new(4);
        let program = || {
            begun.wait();
            unix(&path, 7)
        };
        let results: Vec<_> = thread::scope(|scope| {
            let programs: Vec<_> = (0..4).map(|_| scope.spawn(program)).collect();
            programs.into_iter().map(|program| program.join().unwrap()).collect()
        });
        let (got, others): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        assert_eq!(got.len(), 1);
        assert!(others.iter().all(is_taken));
        listen(&got[0].as_ref().unwrap().0, BACKLOG).unwrap();
        UnixStream::connect(file).unwrap();
    }
}

#[test]
fn a_file_that_is_not_a_socket_stays() {
    let (_folder, path) = folder();
    let file = path.with_file_name("vm.sock_7");
    std::fs::write(&file, "precious").unwrap();
    assert!(is_taken(&unix(&path, 7)));
    assert_eq!(std::fs::read_to_string(file).unwrap(), "precious");
}

/// Another user may have the lock of the folder.
#[test]
fn a_lock_does_not_hold_up_a_listener() {
    let (folder, path) = folder();
    drop(UnixListener::bind(path.with_file_name("vm.sock_7")).unwrap());
    let lock = std::fs::File::open(folder.path()).unwrap();
    lock.lock().unwrap();
    assert!(is_taken(&unix(&path, 7)));
    lock.unlock().unwrap();
    assert!(unix(&path, 7).is_ok());
}

/// A thread gets the VMCI socket for a listener that another thread has closed meanwhile.
#[test]
fn a_listener_that_has_ended_gets_no_socket() {
    let (_folder, path) = folder();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (fd, bound) = (tcp.as_raw_fd(), tcp.local_addr().unwrap());
    let listener = Listener {
        cookie: sockopt::socket_cookie(&tcp).unwrap(),
        vmci: None,
        port: 0,
        backlog: BACKLOG,
        armed: false,
        non_blocking: false,
        retry: 0,
    };
    let entrance = Entrance::Unix(path.clone(), Some(7));
    assert_eq!(give(fd, listener, bound, &entrance), Ok(()));
    assert!(!TABLE.is_held(fd));
    unix(&path, 7).expect("nobody has the port");
}
