//! The host's end of vsock connections: Unix sockets that `tautd` opens and passes on.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicU32, Ordering};

use taut_api::fabric::counters::SocketWord;
use taut_api::fabric::{PortId, ToFabric};
use taut_api::link::Link;
use taut_api::vmci::Cid;
use taut_virtq::socket_header::{RESPONSE, RST, SHUTDOWN};

use super::fabric::{Fabric, PATIENCE, socket};
use super::vsock::socket_guests;
use super::vsock_guest::{End, SocketGuest};

/// The listening socket at which programs on the host connect to a guest.
struct Listener {
    address: SocketAddr,
    listener: OwnedFd,
}

impl Listener {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("taut-vmci-test/{}/{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap().into();
        Self { address, listener }
    }

    /// Passes the socket to a fabric, which accepts there.
    fn pass_on(&self, fabric: &Fabric, port: u16) {
        fabric.send(&ToFabric::HostListener { port: PortId(port) }, &[self.listener.as_fd()]);
    }

    /// Connects as a program on the host that names a port of the guest.
    fn connect(&self, port: u32) -> UnixStream {
        let mut client = UnixStream::connect_addr(&self.address).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(format!("CONNECT {port}\n").as_bytes()).unwrap();
        client
    }
}

fn line(client: &mut UnixStream) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.last() != Some(&b'\n') {
        client.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

/// Sends bytes both ways and compares them.
fn exchange(guest: &mut SocketGuest, end: &mut End, client: &mut UnixStream, mark: u8) {
    let bytes: Vec<u8> = (0..30_000_u32).map(|at| mark.wrapping_add((at % 251) as u8)).collect();
    guest.write(end, &bytes);
    let mut got = vec![0; bytes.len()];
    client.read_exact(&mut got).unwrap();
    assert!(got == bytes);
    client.write_all(&bytes).unwrap();
    assert!(guest.read(end, bytes.len()) == bytes);
}

/// Connects a program on the host with the guest.
fn connected(listener: &Listener, guest: &mut SocketGuest) -> (End, UnixStream) {
    let mut client = listener.connect(5000);
    let end = guest.accept();
    let answer = line(&mut client);
    let port = answer.strip_prefix("OK ").and_then(|rest| rest.trim_end().parse::<u32>().ok());
    assert!(port.is_some(), "{answer:?}");
    (end, client)
}

/// Waits for the fabric's next question to `tautd`, and answers it.
fn answer(fabric: &mut Fabric, with: Option<&UnixStream>) -> (PortId, u32) {
    fabric.until(|fabric| !fabric.questions.is_empty());
    let (port, request, to) = fabric.questions.remove(0);
    let fds: Vec<_> = with.iter().map(|socket| socket.as_fd()).collect();
    fabric.send(&ToFabric::HostConnected { port, request }, &fds);
    (port, to)
}

#[test]
fn programs_on_the_host_reach_the_guest_through_its_socket() {
    let mut fabric = Fabric::start();
    let [mut guest] = socket_guests(&mut fabric, [&[]]);
    let listener = Listener::new();
    listener.pass_on(&fabric, 0);
    let (mut end, mut client) = connected(&listener, &mut guest);
    exchange(&mut guest, &mut end, &mut client, 1);
    // The guest's last bytes arrive, and then the end of the stream.
    guest.write(&mut end, b"good bye");
    let (mut other_end, mut other) = connected(&listener, &mut guest);
    exchange(&mut guest, &mut other_end, &mut other, 2);
    guest.close(&end);
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"good bye");
    // The program's end reaches the guest.
    other.shutdown(Shutdown::Both).unwrap();
    assert_eq!(guest.next(&other_end).op, SHUTDOWN);
}

#[test]
fn the_guest_reaches_programs_on_the_host_and_gets_a_reset_if_there_is_none() {
    let mut fabric = Fabric::start();
    let [mut guest] = socket_guests(&mut fabric, [&[]]);
    let refused = guest.request(1000, (Cid::HOST.0.into(), 80));
    assert_eq!(answer(&mut fabric, None), (PortId(0), 80));
    assert_eq!(guest.next(&refused).op, RST);

    let (mut program, theirs) = UnixStream::pair().unwrap();
    program.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut end = guest.request(1001, (Cid::HOST.0.into(), 81));
    assert_eq!(answer(&mut fabric, Some(&theirs)), (PortId(0), 81));
    drop(theirs);
    guest.established(&mut end);
    exchange(&mut guest, &mut end, &mut program, 3);
}

#[test]
fn requests_to_the_host_are_reset_without_a_tautd() {
    let mut fabric = Fabric::start();
    let [mut guest] = socket_guests(&mut fabric, [&[]]);
    let asked = guest.request(1000, (Cid::HOST.0.into(), 80));
    fabric.until(|fabric| !fabric.questions.is_empty());
    fabric.disconnect();
    assert_eq!(guest.next(&asked).op, RST, "the tautd that was asked is gone");
    assert!(guest.connect(1001, (Cid::HOST.0.into(), 80)).is_none(), "there is no tautd to ask");
    // A late answer does no harm.
    fabric.reconnect();
    let (port, request, _) = fabric.questions.remove(0);
    let (_program, theirs) = UnixStream::pair().unwrap();
    fabric.send(&ToFabric::HostConnected { port, request }, &[theirs.as_fd()]);
    fabric.until_link(PortId(0), Link::Up);
    let asked = guest.request(1002, (Cid::HOST.0.into(), 82));
    assert_eq!(answer(&mut fabric, Some(&theirs)), (PortId(0), 82));
    assert_eq!(guest.next(&asked).op, RESPONSE);
}

#[test]
fn connections_with_the_host_survive_an_upgrade() {
    let mut fabric = Fabric::start();
    let [mut guest] = socket_guests(&mut fabric, [&[]]);
    let listener = Listener::new();
    listener.pass_on(&fabric, 0);
    let (mut end, mut client) = connected(&listener, &mut guest);
    exchange(&mut guest, &mut end, &mut client, 1);
    for mark in 0..3 {
        // The bytes wait in the socket while no fabric serves it, or are in flight.
        client.write_all(b"between two fabrics").unwrap();
        fabric = fabric.upgrade_to(|next| {
            next.configure_sockets(vec![socket(0, &[])]);
            listener.pass_on(next, 0);
        });
        assert_eq!(guest.read(&mut end, 19), b"between two fabrics");
        exchange(&mut guest, &mut end, &mut client, mark);
        let (mut new_end, mut new) = connected(&listener, &mut guest);
        exchange(&mut guest, &mut new_end, &mut new, mark);
        drop(new);
        assert_eq!(guest.next(&new_end).op, SHUTDOWN);
        guest.tell(&new_end, RST);
    }
    assert!(fabric.is_alive());
}

#[test]
fn more_connections_than_one_message_carries_survive_and_questions_are_repeated() {
    const COUNT: usize = 210;
    let mut fabric = Fabric::start();
    let [mut guest] = socket_guests(&mut fabric, [&[]]);
    let listener = Listener::new();
    listener.pass_on(&fabric, 0);
    let mut connections: Vec<_> = (0..COUNT).map(|_| connected(&listener, &mut guest)).collect();
    let mut asked = guest.request(1000, (Cid::HOST.0.into(), 80));
    fabric.until(|fabric| !fabric.questions.is_empty());
    let mut fabric = fabric.upgrade_to(|next| next.configure_sockets(vec![socket(0, &[])]));
    let (mut program, theirs) = UnixStream::pair().unwrap();
    program.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(answer(&mut fabric, Some(&theirs)), (PortId(0), 80));
    guest.established(&mut asked);
    drop(theirs);
    exchange(&mut guest, &mut asked, &mut program, 1);
    for (mark, (end, client)) in (0..).zip(&mut connections) {
        client.write_all(&[mark; 100]).unwrap();
        assert_eq!(guest.read(end, 100), [mark; 100]);
        guest.write(end, &[!mark; 50]);
        let mut got = [0; 50];
        client.read_exact(&mut got).unwrap();
        assert_eq!(got, [!mark; 50]);
    }
    assert_eq!(fabric.socket_word(PortId(0), SocketWord::Connections), COUNT as u64 + 1);
}

#[test]
fn a_killed_fabric_loses_connections_with_the_host_and_its_successor_accepts_new_ones() {
    let mut fabric = Fabric::start();
    let [mut guest] = socket_guests(&mut fabric, [&[]]);
    let listener = Listener::new();
    listener.pass_on(&fabric, 0);
    let (end, mut client) = connected(&listener, &mut guest);
    fabric = fabric.kill_and_replace();
    assert_eq!(client.read(&mut [0; 8]).unwrap_or(0), 0, "the other end is gone with the process");
    fabric.configure_sockets(vec![socket(0, &[])]);
    fabric.resume();
    listener.pass_on(&fabric, 0);
    assert_eq!(guest.next(&end).op, RST);
    let (mut end, mut client) = connected(&listener, &mut guest);
    exchange(&mut guest, &mut end, &mut client, 1);
}
