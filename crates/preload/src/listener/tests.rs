//! Tests of the file of a listener's Unix socket.

use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Barrier;
use std::thread;

use super::*;

const BACKLOG: c_int = 16;

/// A folder for socket files, and the path of the VM's socket.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vm.sock");
    (folder, path)
}

fn is_taken(result: &Result<(OwnedFd, u32), Stays>) -> bool {
    matches!(result, Err(Stays::Failed("its Unix socket", Errno::ADDRINUSE)))
}

#[test]
fn a_program_between_bind_and_listen_keeps_its_file() {
    let (_folder, path) = folder();
    let file = path.with_file_name("vm.sock_7");
    let first = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    bind(&first, &SocketAddrUnix::new(&file).unwrap()).unwrap();
    assert!(is_taken(&unix(&path, 7, BACKLOG)), "it does not listen yet");
    listen(&first, BACKLOG).unwrap();
    assert!(is_taken(&unix(&path, 7, BACKLOG)), "it does");
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
            unix(&path, 7, BACKLOG)
        };
        let results: Vec<_> = thread::scope(|scope| {
            let programs: Vec<_> = (0..4).map(|_| scope.spawn(program)).collect();
            programs.into_iter().map(|program| program.join().unwrap()).collect()
        });
        let (got, others): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        assert_eq!(got.len(), 1);
        assert!(others.iter().all(is_taken));
        UnixStream::connect(file).unwrap();
    }
}

#[test]
fn a_file_that_is_not_a_socket_stays() {
    let (_folder, path) = folder();
    let file = path.with_file_name("vm.sock_7");
    std::fs::write(&file, "precious").unwrap();
    assert!(is_taken(&unix(&path, 7, BACKLOG)));
    assert_eq!(std::fs::read_to_string(file).unwrap(), "precious");
}
