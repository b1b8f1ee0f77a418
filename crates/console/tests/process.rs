//! The real process, with pipes and sockets in the place of programs and serial ports.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use taut_console::control::caller::Caller;
use taut_console::control::message::{Kind, Request, SourceId, SourceSpec};
use taut_console::rate::RateLimit;
use taut_console::{CONSOLE_LOG, VM_LOG};
use tempfile::TempDir;

/// Time limit for an answer; the machine may be busy.
const LIMIT: Duration = Duration::from_secs(30);

/// Bytes of a flood. `TAUT_CONSOLE_FLOOD_MIB` sets another number of mebibytes.
fn flood() -> usize {
    std::env::var("TAUT_CONSOLE_FLOOD_MIB").map_or(64_usize, |mib| mib.parse().expect("a number")) << 20
}

/// A console process with its folder.
#[derive(Debug)]
struct Process {
    dir: TempDir,
    child: Child,
    caller: Caller,
}

impl Process {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (child, caller) = spawn(&dir);
        Self { dir, child, caller }
    }

    /// Kills the process and starts another one.
    fn replace(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        (self.child, self.caller) = spawn(&self.dir);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn log(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    fn add(&mut self, name: &str, kind: Kind, log_limit: u64, fds: &[&dyn AsFd]) {
        let log = File::options().read(true).write(true).create(true).truncate(false).open(self.path(name));
        let log = log.unwrap();
        let mut fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
        fds.push(log.as_fd());
        let spec = SourceSpec { id: id(name), kind, log_limit, rate: RateLimit::DEFAULT };
        self.caller.tell(&Request::Add(spec), &fds, LIMIT).unwrap();
    }

    fn flush(&mut self, name: &str) {
        self.caller.tell(&Request::Flush { id: id(name) }, &[], LIMIT).unwrap();
    }

    /// Adds a console, and returns the guest's end of its serial port.
    fn add_console(&mut self, name: &str) -> UnixStream {
        let (port, guest) = UnixStream::pair().unwrap();
        let door = UnixListener::bind(self.path(&format!("{name}.sock"))).unwrap();
        self.add(name, Kind::Console, CONSOLE_LOG, &[&port, &door]);
        guest
    }

    /// Connects someone to a console.
    fn visit(&self, name: &str) -> UnixStream {
        let person = UnixStream::connect(self.path(&format!("{name}.sock"))).unwrap();
        person.set_read_timeout(Some(LIMIT)).unwrap();
        person
    }

    /// Resident memory in KiB.
    fn memory(&self) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(dir: &TempDir) -> (Child, Caller) {
    let path = dir.path().join("control.sock");
    let _ = fs::remove_file(&path);
    let listener =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&listener, 4).unwrap();
    let child =
        Command::new(env!("CARGO_BIN_EXE_taut-console")).stdin(Stdio::from(listener)).spawn().unwrap();
    (child, Caller::connect(&path, LIMIT).unwrap())
}

fn id(name: &str) -> SourceId {
    name.to_owned().try_into().unwrap()
}

fn pipe() -> (OwnedFd, File) {
    let (port, program) = rustix::pipe::pipe().unwrap();
    (port, File::from(program))
}

/// Waits until a condition holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < end, "timed out waiting until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Reads as many bytes as `expected` has, which must be these.
fn expect(from: &mut UnixStream, expected: &[u8]) {
    let mut got = vec![0; expected.len()];
    from.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(expected));
}

#[test]
fn output_is_in_the_log_once_it_was_flushed() {
    let mut process = Process::start();
    let (port, mut program) = pipe();
    process.add("log", Kind::Output, VM_LOG, &[&port]);
    program.write_all(b"last words\n").unwrap();
    process.flush("log");
    assert_eq!(process.log("log"), b"last words\n");
    assert_eq!(process.caller.list(LIMIT).unwrap(), [id("log")]);
    program.write_all(b"more\n").unwrap();
    process.caller.tell(&Request::Remove { id: id("log") }, &[], LIMIT).unwrap();
    assert_eq!(process.log("log"), b"last words\nmore\n");
    assert!(process.caller.list(LIMIT).unwrap().is_empty());
    process.caller.tell(&Request::Quit, &[], LIMIT).unwrap();
    assert!(process.child.wait().unwrap().success());
}

#[test]
fn a_flood_stays_within_its_log_and_neighbours_are_served() {
    let mut process = Process::start();
    let (port, mut program) = pipe();
    process.add("flood", Kind::Output, CONSOLE_LOG, &[&port]);
    let mut guest = process.add_console("quiet");
    let mut person = process.visit("quiet");
    let writer = thread::spawn(move || {
        let line = [b"flood ".repeat(9_999), b"end\n".to_vec()].concat();
        let mut left = flood();
        loop {
            let part = &line[..line.len().min(left)];
            program.write_all(part).unwrap();
            left -= part.len();
            if left == 0 {
                return (program, part[part.len().saturating_sub(1000)..].to_vec());
            }
        }
    });
    let mut echoes = 0;
    while !writer.is_finished() || echoes < 3 {
        person.write_all(b"key").unwrap();
        expect(&mut guest, b"key");
        guest.write_all(b"echo").unwrap();
        expect(&mut person, b"echo");
        assert!(process.path("flood").metadata().unwrap().len() <= CONSOLE_LOG);
        echoes += 1;
    }
    let (_program, newest) = writer.join().unwrap();
    process.flush("flood");
    let log = process.log("flood");
    assert!(log.len() as u64 <= CONSOLE_LOG);
    let text = String::from_utf8_lossy(&log);
    assert!(text.contains("bytes dropped: more than 1 MiB/s]"), "{}", text.len());
    assert!(log.ends_with(&newest), "the newest bytes are kept");
    assert!(process.memory() < 32 << 10, "{} KiB", process.memory());
}

#[test]
fn input_that_no_guest_takes_is_bounded_and_ends() {
    let mut process = Process::start();
    let mut guest = process.add_console("vm");
    let mut other = process.add_console("neighbour");
    let mut person = process.visit("vm");
    let mut beside = process.visit("vm");
    let typing = thread::spawn(move || {
        let block = vec![b'x'; 1 << 20];
        for _ in 0..flood() >> 20 {
            person.write_all(&block).unwrap();
        }
        person
    });
    let mut neighbour = process.visit("neighbour");
    while !typing.is_finished() {
        neighbour.write_all(b"k").unwrap();
        expect(&mut other, b"k");
        // Output of the flooded console goes on.
        guest.write_all(b"tick").unwrap();
        expect(&mut beside, b"tick");
    }
    drop(typing.join().unwrap());
    assert!(process.memory() < 32 << 10, "{} KiB", process.memory());
    assert!(process.log("vm").len() as u64 <= CONSOLE_LOG);
    // The guest begins to read: what was kept comes first, and then what is typed now.
    guest.set_nonblocking(true).unwrap();
    let mut taken = 0;
    let mut buffer = vec![0; 65_536];
    until("new input arrives", || {
        let _ = beside.write_all(b"!");
        match guest.read(&mut buffer) {
            Ok(n) => {
                taken += n;
                buffer[..n].contains(&b'!')
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                false
            }
        }
    });
    assert!(taken < 2 << 20, "{taken} bytes waited for the guest");
}

#[test]
fn input_is_discarded_without_any_other_event() {
    let mut process = Process::start();
    let _guest = process.add_console("vm");
    let mut person = process.visit("vm");
    person.set_write_timeout(Some(LIMIT)).unwrap();
    person.write_all(&vec![b'x'; 8 << 20]).unwrap();
    assert_eq!(process.log("vm"), b"");
}

#[test]
fn eight_people_share_a_console_and_one_who_does_not_read_is_disconnected() {
    let mut process = Process::start();
    let mut guest = process.add_console("vm");
    let mut people: Vec<_> = (0..8).map(|_| process.visit("vm")).collect();
    people[7].write_all(b"here").unwrap();
    expect(&mut guest, b"here");
    let mut ninth = process.visit("vm");
    let mut told = String::new();
    ninth.read_to_string(&mut told).unwrap();
    assert_eq!(told, "[taut: 8 others are connected to this console]\r\n");
    guest.write_all(b"hello").unwrap();
    for person in &mut people {
        expect(person, b"hello");
    }
    // The last one reads nothing any more.
    let mut idle = people.pop().unwrap();
    let block = vec![b'y'; 1 << 14];
    for _ in 0..64 {
        guest.write_all(&block).unwrap();
        for person in &mut people {
            expect(person, &block);
        }
    }
    // The place is free again, so a newcomer is let in.
    until("the one who does not read is disconnected", || {
        let mut newcomer = process.visit("vm");
        let _ = newcomer.write_all(b"n");
        newcomer.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        matches!(newcomer.read(&mut [0; 1]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    });
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).unwrap();
    assert!(rest.len() < 1 << 20, "it was disconnected");
    guest.write_all(b"bye").unwrap();
    expect(&mut people[0], b"bye");
}

#[test]
fn what_was_written_while_no_process_ran_is_in_the_log_of_the_next_one() {
    let mut process = Process::start();
    let (port, mut program) = pipe();
    process.add("log", Kind::Output, VM_LOG, &[&port]);
    program.write_all(b"one\n").unwrap();
    process.flush("log");
    process.replace();
    program.write_all(b"two\n").unwrap();
    process.add("log", Kind::Output, VM_LOG, &[&port]);
    process.flush("log");
    assert_eq!(process.log("log"), b"one\ntwo\n");
}

#[test]
fn a_serial_port_that_ends_is_no_source_any_more() {
    let mut process = Process::start();
    let mut guest = process.add_console("vm");
    let mut person = process.visit("vm");
    guest.write_all(b"the end").unwrap();
    drop(guest);
    expect(&mut person, b"the end");
    assert_eq!(person.read(&mut [0; 1]).unwrap(), 0);
    until("the source is gone", || process.caller.list(LIMIT).unwrap().is_empty());
    assert_eq!(process.log("vm"), b"the end");
}

#[test]
fn hostile_requests_are_refused_and_the_process_goes_on() {
    let mut process = Process::start();
    let (port, _program) = pipe();
    let file = File::open("/dev/null").unwrap();
    let spec = |kind| SourceSpec { id: id("x"), kind, log_limit: VM_LOG, rate: RateLimit::DEFAULT };
    let few = SourceSpec { log_limit: 1, ..spec(Kind::Output) };
    let (socket, _peer) = UnixStream::pair().unwrap();
    let requests: [(Request, Vec<&dyn AsFd>); 8] = [
        (Request::Add(spec(Kind::Output)), vec![]),
        (Request::Add(spec(Kind::Output)), vec![&port]),
        (Request::Add(spec(Kind::Output)), vec![&port, &port]),
        (Request::Add(spec(Kind::Output)), vec![&file, &file]),
        (Request::Add(spec(Kind::Console)), vec![&port, &port, &port]),
        (Request::Add(spec(Kind::Console)), vec![&socket, &socket, &file]),
        (Request::Add(few), vec![&port, &file]),
        (Request::Flush { id: id("nothing") }, vec![]),
    ];
    for (request, fds) in requests {
        let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
        let refused = process.caller.ask(&request, &fds, LIMIT).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{request:?}: {refused}");
    }
    assert!(Caller::connect(&process.path("control.sock"), LIMIT).is_ok());
    assert!(process.caller.list(LIMIT).unwrap().is_empty());
}
