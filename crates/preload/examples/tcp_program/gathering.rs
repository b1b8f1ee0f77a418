//! Small writes, which the library may gather (`TAUT_VMCI_GATHER=1`). They arrive whatever the
//! program does after them, in order, and as soon as somebody waits for an answer.

mod full_peers;

use std::io::{IoSlice, Read, Seek, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::calls::{
    End, WRITTEN, become_true, block, dup, dup2, epoll, epoll_ctl, epoll_wait, exit, exit_at_fault,
    getsockopt, in_child, in_vfork_child, poll, recv, select_readable, send, sendfile, sendmmsg, sendmsg,
    setsockopt, start_child, start_thread_that_ends, wait_child, write, write_by_dprintf, write_by_stream,
    write_in_handler, write_unreadable,
};
use crate::{Scenario, listener, pair};

pub(crate) use full_peers::{replaced, spawns};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("request_in_two_writes", request_in_two_writes),
    ("bytes_arrive_without_another_call", bytes_arrive_without_another_call),
    ("order_of_all_kinds_of_writes", order_of_all_kinds_of_writes),
    ("order_of_processes", order_of_processes),
    ("order_of_threads_and_duplicates", order_of_threads_and_duplicates),
    ("handler_writes_between", handler_writes_between),
    ("delay_is_turned_off", delay_is_turned_off),
    ("corked", corked),
    ("closed_after_small_writes", closed_after_small_writes),
    ("ends_after_small_writes", ends_after_small_writes),
    ("peer_does_not_read", full_peers::peer_does_not_read),
    ("peer_does_not_read_for_long", full_peers::peer_does_not_read_for_long),
    ("peer_has_gone", full_peers::peer_has_gone),
];

/// Twelve small writes in a row. The library may gather all but the first ones.
fn write_some(mut client: &TcpStream) {
    for letter in *b"small writes" {
        client.write_all(&[letter]).unwrap();
    }
}

fn read_text(mut from: &TcpStream, len: usize) -> String {
    let mut bytes = vec![0; len];
    from.read_exact(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn read_all(mut from: TcpStream) -> String {
    let mut text = String::new();
    from.read_to_string(&mut text).unwrap();
    text
}

/// A client sends head and body of a request one after the other and waits in many ways.
fn request_in_two_writes() {
    let (client, server) = pair();
    // Otherwise TCP itself delays the body.
    setsockopt(server.as_raw_fd(), libc::SOL_TCP, libc::TCP_QUICKACK, 1).unwrap();
    let answers = thread::spawn(move || {
        let mut count = 0;
        let mut request = [0; 12];
        while (&server).read_exact(&mut request).is_ok() {
            assert_eq!(&request, b"head and bod");
            (&server).write_all(b"answer").unwrap();
            count += 1;
        }
        count
    });
    let fd = client.as_raw_fd();
    let instance = epoll();
    epoll_ctl(instance.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN, 0).unwrap();
    let mut answered = 0;
    for turn in 0..60 {
        (&client).write_all(b"head ").unwrap();
        (&client).write_all(b"and bod").unwrap();
        match turn % 4 {
            0 => {}
            1 => assert_eq!(poll(fd, libc::POLLIN, 10_000), libc::POLLIN),
            2 => assert!(epoll_wait(instance.as_raw_fd(), 10_000).is_some()),
            _ => {
                while !select_readable(fd) {
                    thread::yield_now();
                }
            }
        }
        let mut answer = [0; 6];
        let count = recv(fd, &mut answer, libc::MSG_WAITALL).unwrap();
        answered += usize::from(&answer[..count] == b"answer");
    }
    client.shutdown(Shutdown::Write).unwrap();
    println!("answered: {answered}, requests: {}", answers.join().unwrap());
}

/// After its last write a program makes no call on the connection: it waits for a thread, computes,
/// or sleeps.
fn bytes_arrive_without_another_call() {
    let (client, server) = pair();
    let (send, arrived) = mpsc::channel();
    let done = Arc::new(AtomicBool::new(false));
    let seen = done.clone();
    let reader = thread::spawn(move || {
        for _ in 0..3 {
            let text = read_text(&server, 12);
            seen.store(true, Relaxed);
            send.send(text).unwrap();
        }
    });
    write_some(&client);
    println!("waits for a thread: {:?}", arrived.recv_timeout(Duration::from_secs(20)));
    done.store(false, Relaxed);
    write_some(&client);
    let started = Instant::now();
    while !done.load(Relaxed) && started.elapsed() < Duration::from_secs(20) {
        std::hint::spin_loop();
    }
    println!("computes: {}", done.load(Relaxed));
    println!("{:?}", arrived.recv());
    done.store(false, Relaxed);
    write_some(&client);
    for _ in 0..2000 {
        thread::sleep(Duration::from_millis(10));
        if done.load(Relaxed) {
            break;
        }
    }
    println!("sleeps: {}", done.load(Relaxed));
    reader.join().unwrap();
}

fn order_of_all_kinds_of_writes() {
    let (client, server) = pair();
    let fd = client.as_raw_fd();
    let elsewhere = "192.0.2.1:9".parse().unwrap();
    let path = std::env::temp_dir().join(format!("tcp_program-{}-small", std::process::id()));
    let mut file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.write_all(b"file ").unwrap();
    let large = "L".repeat(20_000);
    let reader = thread::spawn(move || read_all(server));
    for _ in 0..50 {
        write(fd, b"write ").unwrap();
        let parts = [IoSlice::new(b"wri"), IoSlice::new(b""), IoSlice::new(b"tev ")];
        assert_eq!((&client).write_vectored(&parts).unwrap(), 7);
        send(fd, b"more ", libc::MSG_MORE).unwrap();
        send(fd, b"send ", libc::MSG_NOSIGNAL).unwrap();
        sendmsg(fd, &[b"send", b"msg "], elsewhere).unwrap();
        file.rewind().unwrap();
        let sent = sendfile(fd, file.as_raw_fd(), 5).unwrap();
        assert_eq!(sent, 5);
        write(fd, b"b ").unwrap();
        assert_eq!(sendmmsg(fd, &[b"mm1 ", b"mm2 "]), 2);
        write(fd, b"c ").unwrap();
        (&client).write_all(large.as_bytes()).unwrap();
        write(fd, b" d ").unwrap();
    }
    write(fd, b"before ").unwrap();
    write_by_dprintf(fd, "dprintf ");
    write(fd, b" between ").unwrap();
    write_by_stream(fd, "stream ");
    write(fd, b"after ").unwrap();
    write_by_stream(fd, "stream");
    client.shutdown(Shutdown::Write).unwrap();
    let round = format!("write writev more send sendmsg file b mm1 mm2 c {large} d ");
    let expected = round.repeat(50) + "before dprintf 2.57 between stream after stream";
    let got = reader.join().unwrap();
    println!("{} bytes, in order: {}", got.len(), got == expected);
}

/// The connection that a child of vfork writes to.
static CHILD_WRITES_TO: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(-1);

extern "C" fn write_in_vfork_child(_: *mut std::ffi::c_void) -> i32 {
    i32::from(write(CHILD_WRITES_TO.load(Relaxed), b"vfork ").is_err())
}

/// Parent and child take turns, each by writes of which the library may gather some.
fn order_of_processes() {
    let (client, server) = pair();
    let fd = client.as_raw_fd();
    write_some(&client);
    CHILD_WRITES_TO.store(fd, Relaxed);
    println!("child of vfork: {}", in_vfork_child(write_in_vfork_child));
    write_some(&client);
    let child = start_child(|| {
        write_some(&client);
        (&client).write_all(b"child ").unwrap();
        0
    });
    println!("child: {}", wait_child(child));
    write_some(&client);
    (&client).write_all(b"parent ").unwrap();
    drop(client);
    println!("{}", read_all(server));

    // A program that gets the connection as its standard output.
    let (client, server) = pair();
    write_some(&client);
    let out = OwnedFd::from(client.try_clone().unwrap());
    let status = Command::new("/bin/echo").arg("echo").stdout(Stdio::from(out)).status().unwrap();
    write_some(&client);
    drop(client);
    println!("{status}: {}", read_all(server));
}

fn order_of_threads_and_duplicates() {
    let (client, server) = pair();
    let reader = thread::spawn(move || read_all(server));
    let number = Arc::new(Mutex::new(0));
    let mut copies = vec![client.try_clone().unwrap(), client];
    let other = copies[1].as_raw_fd();
    thread::scope(|scope| {
        for client in &copies {
            let number = &number;
            scope.spawn(move || {
                for _ in 0..2000 {
                    let mut number = number.lock().unwrap();
                    (&*client).write_all(format!("{number} ").as_bytes()).unwrap();
                    *number += 1;
                }
            });
        }
    });
    // SAFETY: the number was just made.
    #[allow(unsafe_code, reason = "a number becomes a socket")]
    copies.push(unsafe { TcpStream::from_raw_fd(dup(other)) });
    for number in 4000..5000 {
        (&copies[number % 3]).write_all(format!("{number} ").as_bytes()).unwrap();
    }
    drop(copies);
    println!("duplicates, in order: {}", reader.join().unwrap() == numbers(5000));

    let (client, server) = pair();
    let reader = thread::spawn(move || read_all(server));
    let number = Mutex::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    let mut number = number.lock().unwrap();
                    (&client).write_all(format!("{number} ").as_bytes()).unwrap();
                    *number += 1;
                }
            });
        }
    });
    drop(client);
    println!("threads, in order: {}", reader.join().unwrap() == numbers(6000));
}

/// The numbers below this one, each with a space behind it.
fn numbers(end: u32) -> String {
    (0..end).fold(String::new(), |text, number| text + &number.to_string() + " ")
}

/// A signal handler writes to the connection that it interrupts a write to.
fn handler_writes_between() {
    let (client, server) = pair();
    let reader = thread::spawn(move || {
        // The handler may have to wait until bytes are read.
        block(libc::SIGALRM);
        read_all(server)
    });
    let alarms = write_in_handler(client.as_raw_fd());
    let (mut expected, started) = (String::new(), Instant::now());
    for number in 0.. {
        let text = format!("{number} ");
        (&client).write_all(text.as_bytes()).unwrap();
        expected += &text;
        if started.elapsed() > Duration::from_millis(400) {
            break;
        }
    }
    drop(alarms);
    client.shutdown(Shutdown::Write).unwrap();
    let got = reader.join().unwrap();
    let of_handler = got.matches('!').count();
    println!("handler: {} {}", of_handler > 10, of_handler == WRITTEN.load(Relaxed));
    println!("program, in order: {}", got.replace('!', "") == expected);
}

fn delay_is_turned_off() {
    let (client, server) = pair();
    let fd = client.as_raw_fd();
    write_some(&client);
    println!("nodelay: {:?}", setsockopt(fd, libc::SOL_TCP, libc::TCP_NODELAY, 1));
    println!("events: {:#x}", poll(server.as_raw_fd(), libc::POLLIN, 10_000));
    println!("{}", read_text(&server, 12));
    let exchange = |_| {
        write_some(&client);
        // A Unix socket has room for some hundred writes only, however small they are.
        read_text(&server, 12).len()
    };
    println!("{}", (0..100).map(exchange).sum::<usize>());
    println!("nodelay: {:?}", setsockopt(fd, libc::SOL_TCP, libc::TCP_NODELAY, 0));
    write_some(&client);
    drop(client);
    println!("{}", read_all(server));
}

/// `TCP_CORK`. Without gathering, the library accepts the option without effect.
fn corked() {
    let (client, server) = pair();
    let (fd, other) = (client.as_raw_fd(), server.as_raw_fd());
    let cork = |on| setsockopt(fd, libc::SOL_TCP, libc::TCP_CORK, on);
    println!("at first: {:?}", getsockopt(fd, libc::SOL_TCP, libc::TCP_CORK));
    println!("cork: {:?} {:?}", cork(1), getsockopt(fd, libc::SOL_TCP, libc::TCP_CORK));
    (&client).write_all(b"head ").unwrap();
    println!("held: {:#x}", poll(other, libc::POLLIN, 40));
    (&client).write_all(b"body ").unwrap();
    println!("uncork: {:?}", cork(0));
    println!("events: {:#x}", poll(other, libc::POLLIN, 10_000));
    let mut bytes = [0; 32];
    println!("together: {:?}", recv(other, &mut bytes, 0));
    cork(1).unwrap();
    (&client).write_all(b"forgotten ").unwrap();
    let started = Instant::now();
    println!("after 200 ms: {}", read_text(&server, 10));
    println!("held for a while: {}", started.elapsed() > Duration::from_millis(100));
    (&client).write_all(b"last").unwrap();
    drop(client);
    println!("{}", read_all(server));
}

fn closed_after_small_writes() {
    let (client, server) = pair();
    write_some(&client);
    drop(client);
    println!("closed: {}", read_all(server));

    let (mut client, server) = pair();
    write_some(&client);
    client.shutdown(Shutdown::Write).unwrap();
    println!("write: {:?}", client.write(b"x").map_err(|error| error.kind()));
    println!("shut down: {}", read_all(server));
    println!("the other half: {}", client.read(&mut [0]).unwrap());

    // Another file gets the number.
    let (client, server) = pair();
    let (fd, null) = (client.into_raw_fd(), std::fs::File::open("/dev/null").unwrap());
    // SAFETY: the number is this function's.
    #[allow(unsafe_code, reason = "a number becomes a socket")]
    let client = unsafe { TcpStream::from_raw_fd(fd) };
    write_some(&client);
    dup2(null.as_raw_fd(), fd).unwrap();
    println!("replaced: {}", read_all(server));
    drop(client);
}

/// A process ends in each of the usual ways, or becomes another program, just after its writes.
fn ends_after_small_writes() {
    let (listener, address) = listener();
    let ends: [(&str, fn()); 5] = [
        ("_exit", || ()),
        ("exit", || exit(0)),
        ("execv", || become_true(false)),
        ("execl", || become_true(true)),
        ("another thread", || {
            thread::spawn(|| exit(0)).join().unwrap();
        }),
    ];
    for (name, end) in ends {
        let child = start_child(|| {
            write_and_keep(address);
            end();
            0
        });
        println!("{name}: {}", read_all(accept(&listener)));
        println!("child: {}", wait_child(child));
    }
    ADDRESS.set(address).unwrap();
    for end in [End::Exit, End::Cancel, End::C11] {
        let child = start_thread_that_ends(|| write_and_keep(*ADDRESS.get().unwrap()), end);
        println!("last thread, {end:?}: {}", read_all(accept(&listener)));
        println!("child: {}", wait_child(child));
    }
}

static ADDRESS: OnceLock<SocketAddr> = OnceLock::new();

/// Writes to a new connection that stays open until the process ends.
fn write_and_keep(to: SocketAddr) {
    let client = TcpStream::connect(to).unwrap();
    write_some(&client);
    let _ = client.into_raw_fd();
}

fn accept(listener: &TcpListener) -> TcpStream {
    listener.accept().unwrap().0
}

/// Prints the number of `write` system calls for 1000 small writes. Gathered bytes go by other
/// calls.
pub(crate) fn count_writes() {
    let (client, server) = pair();
    let reader = thread::spawn(move || read_all(server).len());
    let calls = || {
        let text = std::fs::read_to_string("/proc/self/io").unwrap();
        let count = text.lines().find_map(|line| line.strip_prefix("syscw: ")).unwrap();
        count.parse::<u64>().unwrap()
    };
    let before = calls();
    for _ in 0..1000 {
        write(client.as_raw_fd(), &[b'x'; 100]).unwrap();
    }
    println!("{}", calls() - before);
    drop(client);
    assert_eq!(reader.join().unwrap(), 100_000);
}

/// The same in a child that is forked while another thread of its parent waits in `select`.
pub(crate) fn count_writes_of_child() {
    thread::spawn(|| {
        // SAFETY: no sets. The thread ends with the process.
        #[allow(unsafe_code, reason = "a function of the C library")]
        unsafe {
            let none = std::ptr::null_mut();
            libc::select(0, none, none, none, std::ptr::null_mut())
        }
    });
    thread::sleep(Duration::from_millis(50));
    let code = in_child(|| {
        count_writes();
        0
    });
    assert_eq!(code, 0);
    exit(0);
}

/// Writes bytes that cannot be read, in a program whose handler of that fault ends it.
pub(crate) fn unreadable() {
    let (client, server) = pair();
    write_some(&client);
    println!("{}", read_text(&server, 12));
    write_some(&client);
    exit_at_fault();
    println!("{:?}", write_unreadable(client.as_raw_fd(), 100));
    println!("and read: {}", read_text(&server, 12));
}
