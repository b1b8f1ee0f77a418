//! All ways to write so many bytes. The bytes depend on direction and position.

use std::io::{Error, Write as _};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, RawFd};

use super::helper::write_by_helper;
use super::operation::Kind;
use crate::calls::{
    dup2, execute_with, in_child, pipe, send, sendfile, sendmsg, spawn_with, splice, temporary, wait_child,
    write as write_once, write_by_stream,
};

/// Makes the bytes of a direction from a position on. They are letters, which may be in strings.
pub(super) fn fill(direction: u8, position: usize, out: &mut [u8]) {
    for (at, byte) in (position..).zip(out) {
        let mixed = (at as u32).wrapping_add(u32::from(direction) << 24).wrapping_mul(2_654_435_761);
        *byte = b'a' + ((mixed ^ (mixed >> 15)).wrapping_mul(0x2c1b_3c6d) >> 16) as u8 % 26;
    }
}

/// Name of an error, as the calls name it.
pub(super) fn name(error: &Error) -> String {
    match error.raw_os_error() {
        Some(libc::EAGAIN) => "EAGAIN".to_owned(),
        Some(libc::EPIPE) => "EPIPE".to_owned(),
        _ => error.to_string(),
    }
}

fn bytes(direction: u8, position: usize, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    fill(direction, position, &mut bytes);
    bytes
}

/// Writes bytes of a direction, from a position on. Returns their number.
pub(super) fn write(
    kind: Kind,
    fd: RawFd,
    (direction, position): (u8, usize),
    count: usize,
) -> Result<usize, String> {
    let bytes = bytes(direction, position, count);
    let by_another = |succeeded: bool| if succeeded { Ok(count) } else { Err("it failed".to_owned()) };
    let words = |fd: RawFd| {
        let words = ["model", "rest", &fd.to_string(), &direction.to_string(), &position.to_string()];
        words.map(str::to_owned).into_iter().chain([count.to_string()]).collect::<Vec<_>>()
    };
    match kind {
        Kind::Write => write_once(fd, &bytes),
        Kind::Send => send(fd, &bytes, libc::MSG_NOSIGNAL),
        Kind::SendNow => send(fd, &bytes, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT),
        Kind::SendMessage => {
            let (first, rest) = bytes.split_at(count / 3);
            let (second, third) = rest.split_at(count / 3);
            let anywhere: SocketAddr = "192.0.2.1:9".parse().unwrap();
            sendmsg(fd, &[first, second, third], anywhere)
        }
        Kind::Flood => all(fd, &bytes),
        Kind::ChildWrites => by_another(in_child(|| u8::from(all(fd, &bytes).is_ok())) == 1),
        Kind::StreamWrites => {
            write_by_stream(fd, std::str::from_utf8(&bytes).unwrap());
            Ok(count)
        }
        Kind::Sendfile => {
            let mut file = temporary();
            file.write_all(&bytes).unwrap();
            std::io::Seek::rewind(&mut file).unwrap();
            repeated(count, |left| sendfile(fd, file.as_raw_fd(), left))
        }
        Kind::Splice => {
            let (from, to) = pipe();
            assert_eq!(write_once(to.as_raw_fd(), &bytes), Ok(count));
            repeated(count, |left| splice(from.as_raw_fd(), fd, left))
        }
        Kind::Passed => by_another(write_by_helper(fd, [direction.into(), position, count])),
        Kind::Executed => by_another(wait_child(execute_with(fd, &words(fd))) == 0),
        Kind::Spawned => by_another(wait_child(spawn_with(fd, &words(1))) == 0),
        Kind::Standard => {
            dup2(fd, 0)?;
            let written = all(0, &bytes);
            let null = std::fs::File::open("/dev/null").unwrap();
            dup2(null.as_raw_fd(), 0)?;
            written
        }
        kind => Err(format!("{} writes nothing", kind.name())),
    }
}

fn repeated(count: usize, mut act: impl FnMut(usize) -> Result<usize, String>) -> Result<usize, String> {
    let mut left = count;
    while left > 0 {
        left -= act(left)?;
    }
    Ok(count)
}

/// Writes all bytes.
fn all(fd: RawFd, bytes: &[u8]) -> Result<usize, String> {
    let mut rest = bytes;
    while !rest.is_empty() {
        rest = &rest[write_once(fd, rest)?..];
    }
    Ok(bytes.len())
}

/// What another program or process does: writes `count` bytes of a direction from a position on.
pub(super) fn write_rest(fd: RawFd, [direction, position, count]: [usize; 3]) -> bool {
    all(fd, &bytes(direction as u8, position, count)).is_ok()
}

/// The same for a program that has these numbers on its command line.
pub(super) fn rest([fd, direction, position, count]: [usize; 4]) {
    let written = write_rest(fd.try_into().unwrap(), [direction, position, count]);
    std::process::exit(i32::from(!written));
}
