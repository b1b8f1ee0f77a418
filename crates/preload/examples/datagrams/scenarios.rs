//! What datagram sockets do, by the kernel's loopback for `AF_VSOCK`.

use std::io;
use std::thread::sleep;
use std::time::Duration;

use crate::socket::{ANY, Address, Instance, Socket, ended_well, fork, kill};

/// This machine, by the loopback.
const HERE: u32 = 1;

type Scenario = (&'static str, fn() -> io::Result<()>);

/// All scenarios. Each uses ports of its own.
pub(crate) const ALL: &[Scenario] = &[
    ("names_and_options", names_and_options),
    ("an_answer_to_an_unbound_socket", an_answer_to_an_unbound_socket),
    ("boundaries_and_truncation", boundaries_and_truncation),
    ("non_blocking_and_poll", non_blocking_and_poll),
    ("many_at_once", many_at_once),
    ("many_parts", many_parts),
    ("a_connected_socket_hears_its_peer_only", a_connected_socket_hears_its_peer_only),
    ("refusals", refusals),
    ("nobody_there", nobody_there),
    ("the_end_of_the_program", the_end_of_the_program),
    ("a_reply_to_a_program_that_has_ended", a_reply_to_a_program_that_has_ended),
    ("a_flood_keeps_nobody_out", a_flood_keeps_nobody_out),
    ("a_child_goes_on_without_its_parent", a_child_goes_on_without_its_parent),
    ("a_child_that_only_waits_by_epoll", a_child_that_only_waits_by_epoll),
    ("sockets_come_and_go", sockets_come_and_go),
];

fn is(result: io::Result<impl Sized>, number: i32) -> bool {
    result.err().and_then(|error| error.raw_os_error()) == Some(number)
}

/// Receives a datagram within some seconds.
fn next(socket: &Socket) -> io::Result<(Vec<u8>, Address)> {
    assert!(socket.poll(libc::POLLIN, 5000)?, "nothing arrives");
    let mut room = vec![0; 70_000];
    let (count, from) = socket.receive(&mut room, 0)?;
    room.truncate(count);
    Ok((room, from))
}

fn names_and_options() -> io::Result<()> {
    let socket = Socket::at(2001)?;
    assert_eq!(socket.name(false)?.1, 2001);
    assert_eq!(socket.option(libc::SO_TYPE)?, libc::SOCK_DGRAM);
    assert_eq!(socket.option(libc::SO_DOMAIN)?, libc::AF_VSOCK);
    assert!(is(socket.name(true), libc::ENOTCONN));
    assert!(is(Socket::at(2001), libc::EADDRINUSE));
    let other = Socket::new()?;
    assert_eq!(other.name(false)?.1, ANY);
    other.connect((HERE, 2001))?;
    assert_eq!(other.name(true)?, (HERE, 2001));
    assert_ne!(other.name(false)?.1, ANY);
    Ok(())
}

fn an_answer_to_an_unbound_socket() -> io::Result<()> {
    let (server, client) = (Socket::at(2002)?, Socket::new()?);
    client.send_to(b"question", (HERE, 2002))?;
    let (question, from) = next(&server)?;
    assert_eq!((&question[..], from.1), (&b"question"[..], client.name(false)?.1));
    server.send_to(b"answer", from)?;
    assert_eq!(next(&client)?, (b"answer".to_vec(), (HERE, 2002)));
    Ok(())
}

fn boundaries_and_truncation() -> io::Result<()> {
    let (server, client) = (Socket::at(2003)?, Socket::new()?);
    client.connect((HERE, 2003))?;
    let longest = vec![7; 65_536];
    for datagram in [&b"first"[..], b"", b"a longer one", &longest] {
        assert_eq!(client.send(datagram, 0)?, datagram.len());
    }
    assert_eq!(client.write(b"last")?, 4);
    assert_eq!(next(&server)?.0, b"first");
    assert_eq!(next(&server)?.0, b"");
    let mut room = [0; 5];
    assert!(server.poll(libc::POLLIN, 5000)?);
    let (count, _, flags) = server.receive_message(&mut room, libc::MSG_PEEK)?;
    assert_eq!((count, &room[..], flags), (5, &b"a lon"[..], libc::MSG_TRUNC));
    assert_eq!(server.receive(&mut room, libc::MSG_TRUNC)?.0, 12);
    assert_eq!(next(&server)?.0, longest);
    let mut room = [0; 100];
    assert_eq!(server.read(&mut room)?, 4);
    assert_eq!(&room[..4], b"last");
    Ok(())
}

fn non_blocking_and_poll() -> io::Result<()> {
    let (server, client) = (Socket::at(2004)?, Socket::new()?);
    assert!(is(server.receive(&mut [0; 9], libc::MSG_DONTWAIT), libc::EAGAIN));
    assert!(!server.poll(libc::POLLIN, 10)? && server.poll(libc::POLLOUT, 10)?);
    client.connect((HERE, 2004))?;
    // A receiver that takes nothing stops its sender after a while.
    let (mut sent, mut refused) = (0, 0);
    while refused < 20 {
        match client.send(&[sent as u8; 1000], libc::MSG_DONTWAIT) {
            Ok(_) => (sent, refused) = (sent + 1, 0),
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                refused += 1;
                sleep(Duration::from_millis(10));
            }
            Err(error) => return Err(error),
        }
        assert!(sent < 10_000, "nothing bounds what waits");
    }
    for index in 0..sent {
        assert_eq!(next(&server)?.0, [index as u8; 1000], "{index} of {sent}");
    }
    Ok(())
}

fn many_at_once() -> io::Result<()> {
    let (server, client) = (Socket::at(2005)?, Socket::new()?);
    assert_eq!(client.send_many(&[b"1", b"22", b"333"], (HERE, 2005))?, 3);
    let mut lens = Vec::new();
    while lens.len() < 3 {
        assert!(server.poll(libc::POLLIN, 5000)?);
        lens.extend(server.receive_many(5)?);
    }
    assert_eq!(lens, [1, 2, 3]);
    let copy = server.duplicate()?;
    client.send_to(b"copy", (HERE, 2005))?;
    assert_eq!(next(&copy)?.0, b"copy");
    Ok(())
}

fn many_parts() -> io::Result<()> {
    let (server, client) = (Socket::at(2013)?, Socket::new()?);
    client.connect((HERE, 2013))?;
    let bytes: Vec<u8> = (0..1000).map(|index| index as u8).collect();
    let parts: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(client.send_parts(&parts)?, bytes.len());
    assert_eq!(next(&server)?.0, bytes);
    assert!(is(client.send_parts(&vec![&[0][..]; 1025]), libc::EMSGSIZE));
    Ok(())
}

fn a_connected_socket_hears_its_peer_only() -> io::Result<()> {
    let (one, two, client) = (Socket::at(2006)?, Socket::at(2007)?, Socket::at(2008)?);
    client.connect((HERE, 2006))?;
    two.send_to(b"two", (HERE, 2008))?;
    one.send_to(b"one", (HERE, 2008))?;
    assert_eq!(next(&client)?.0, b"one");
    assert!(!client.poll(libc::POLLIN, 300)?);
    Ok(())
}

fn refusals() -> io::Result<()> {
    let socket = Socket::new()?;
    assert!(is(socket.send(b"nowhere", 0), libc::EDESTADDRREQ));
    assert!(is(socket.send_to(b"host", (2, 2009)), libc::EHOSTUNREACH));
    assert!(is(socket.send_to(b"port", (HERE, 1 << 24)), libc::EADDRNOTAVAIL));
    assert!(is(socket.send_to(&vec![0; 65_537], (HERE, 2009)), libc::EMSGSIZE));
    assert!(is(Socket::at(1 << 24), libc::EADDRNOTAVAIL));
    Ok(())
}

fn nobody_there() -> io::Result<()> {
    let socket = Socket::new()?;
    for _ in 0..10 {
        socket.send_to(b"nobody", (HERE, 2010))?;
        sleep(Duration::from_millis(10));
    }
    let late = Socket::at(2010)?;
    socket.send_to(b"somebody", (HERE, 2010))?;
    while next(&late)?.0 != b"somebody" {}
    Ok(())
}

fn the_end_of_the_program() -> io::Result<()> {
    let server = Socket::at(2011)?;
    let child = fork(|| {
        let client = Socket::new()?;
        for index in 0..100_u8 {
            client.send_to(&[index; 10_000], (HERE, 2011))?;
        }
        Ok(())
    })?;
    for index in 0..100_u8 {
        assert_eq!(next(&server)?.0, [index; 10_000]);
    }
    assert!(ended_well(child));
    Ok(())
}

fn a_reply_to_a_program_that_has_ended() -> io::Result<()> {
    /// 250 kB in all. A stream takes 256 KiB while its receiver returns no credit, so the program
    /// can end.
    const COUNT: u8 = 25;
    let server = Socket::at(2014)?;
    let child = fork(|| {
        let client = Socket::new()?;
        for index in 0..COUNT {
            client.send_to(&[index; 10_000], (HERE, 2014))?;
        }
        Ok(())
    })?;
    assert!(ended_well(child));
    for index in 0..COUNT {
        let (bytes, from) = next(&server)?;
        assert_eq!(bytes, [index; 10_000]);
        if index == 0 {
            server.send_to(b"nobody is there", from)?;
            sleep(Duration::from_millis(200));
        }
    }
    Ok(())
}

fn a_flood_keeps_nobody_out() -> io::Result<()> {
    /// More than the queue of the program holds.
    const MOST: usize = 5000;
    let (server, client) = (Socket::at(2015)?, Socket::new()?);
    let flood = fork(|| {
        let socket = Socket::new()?;
        loop {
            socket.send_to(b"flood", (HERE, 2015))?;
        }
    })?;
    assert_eq!(next(&server)?.0, b"flood");
    sleep(Duration::from_millis(200));
    client.send_to(b"rare", (HERE, 2015))?;
    let mut count = 0;
    while next(&server)?.0 != b"rare" {
        count += 1;
        // A program that is slower than the flood.
        sleep(Duration::from_micros(200));
        assert!(count < MOST, "only the flood arrives");
    }
    kill(flood);
    Ok(())
}

/// A program binds a socket, has it prepared, and becomes a daemon, which waits and answers.
fn answered_by_a_daemon<T>(
    port: u32,
    prepare: impl FnOnce(&Socket) -> io::Result<T>,
    wait: impl FnOnce(T) -> io::Result<()>,
) -> io::Result<()> {
    let parent = fork(|| {
        let server = Socket::at(port)?;
        let prepared = prepare(&server)?;
        fork(|| {
            wait(prepared)?;
            let (bytes, from) = next(&server)?;
            server.send_to(&bytes, from).map(drop)
        })
        .map(drop)
    })?;
    assert!(ended_well(parent));
    let client = Socket::new()?;
    client.send_to(b"hello", (HERE, port))?;
    assert_eq!(next(&client)?.0, b"hello");
    Ok(())
}

fn a_child_goes_on_without_its_parent() -> io::Result<()> {
    answered_by_a_daemon(2012, |_| Ok(()), Ok)
}

fn a_child_that_only_waits_by_epoll() -> io::Result<()> {
    answered_by_a_daemon(2016, Instance::of, |instance| {
        assert!(instance.wait(5000)?, "nothing arrives");
        Ok(())
    })
}

fn sockets_come_and_go() -> io::Result<()> {
    for _ in 0..200 {
        drop(Socket::new()?);
    }
    for index in 0..200_u32 {
        let (server, client) = (Socket::at(2100 + index)?, Socket::new()?);
        client.send_to(b"x", (HERE, 2100 + index))?;
        next(&server)?;
    }
    Ok(())
}
