//! Ways to go on with a socket in the middle of a transfer.

use std::ffi::{CString, c_int};
use std::fs::File;
use std::io::{Error, Result, Write as _};
use std::os::fd::AsRawFd as _;
use std::str::FromStr;

use crate::c_calls::{
    Stream, become_program, ended_well, exit, fork, memory_file, pipe, put, sendfile, spawn, splice,
};
use crate::helper::send_by_helper;
use crate::pattern::PIECE;
use crate::rest::Rest;

/// What the sending thread does with its socket when half of the bytes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// It goes on.
    Stay,
    /// A forked child goes on.
    Fork,
    /// It goes on by a stream of the C library, `fdopen(3)`.
    Fdopen,
    /// It goes on by `sendfile(2)`.
    Sendfile,
    /// It goes on by `splice(2)` from a pipe.
    Splice,
    /// It passes the socket to another process in a message, which goes on (`SCM_RIGHTS`).
    Pass,
    /// Another program goes on, which a child has become by `execv(3)`.
    Exec,
    /// Another program goes on, which gets the socket by `posix_spawn(3)` as its standard output.
    Spawn,
    /// It goes on by descriptor 0, onto which it puts the socket by `dup2(2)`.
    Stdin,
    /// The same with descriptor 1.
    Stdout,
    /// The same with descriptor 2.
    Stderr,
}

const WAYS: [(&str, Way); 11] = [
    ("stay", Way::Stay),
    ("fork", Way::Fork),
    ("fdopen", Way::Fdopen),
    ("sendfile", Way::Sendfile),
    ("splice", Way::Splice),
    ("pass", Way::Pass),
    ("exec", Way::Exec),
    ("spawn", Way::Spawn),
    ("stdin", Way::Stdin),
    ("stdout", Way::Stdout),
    ("stderr", Way::Stderr),
];

impl FromStr for Way {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        let found = WAYS.iter().find(|(known, _)| *known == name);
        found.map(|(_, way)| *way).ok_or_else(|| format!("unknown way {name}"))
    }
}

impl Way {
    pub(crate) fn number(self) -> u64 {
        WAYS.iter().position(|(_, way)| *way == self).unwrap_or(0) as u64
    }

    pub(crate) fn of_number(number: u64) -> Option<Self> {
        WAYS.get(usize::try_from(number).ok()?).map(|(_, way)| *way)
    }

    /// Sends the rest in this way.
    pub(crate) fn send(self, fd: c_int, rest: Rest) -> Result<()> {
        match self {
            Self::Stay => rest.write(fd),
            Self::Fork => match fork()? {
                0 => exit(u8::from(rest.write(fd).is_err())),
                child => ended_well(child),
            },
            Self::Fdopen => send_by_stream(fd, rest),
            Self::Sendfile => send_by_sendfile(fd, rest),
            Self::Splice => send_by_splice(fd, rest),
            Self::Pass => send_by_helper(fd, rest),
            Self::Exec => send_by_next_program(fd, rest),
            Self::Spawn => send_by_spawned_program(fd, rest),
            Self::Stdin => send_by_number(fd, 0, rest),
            Self::Stdout => send_by_number(fd, 1, rest),
            Self::Stderr => send_by_number(fd, 2, rest),
        }
    }
}

/// The rest in pieces, each with its length.
fn pieces(rest: Rest) -> impl Iterator<Item = Vec<u8>> {
    let mut at = rest.from;
    std::iter::from_fn(move || {
        let len = (rest.end - at).min(PIECE as u64) as usize;
        let mut piece = vec![0; len];
        rest.pattern.fill(at, &mut piece);
        at += len as u64;
        (len > 0).then_some(piece)
    })
}

fn send_by_stream(fd: c_int, rest: Rest) -> Result<()> {
    let stream = Stream::of(fd)?;
    for piece in pieces(rest) {
        stream.write(&piece)?;
    }
    stream.flush()
}

fn send_by_sendfile(fd: c_int, rest: Rest) -> Result<()> {
    let mut file = memory_file()?;
    let (mut written, mut sent) = (0, 0);
    for piece in pieces(rest) {
        file.write_all(&piece)?;
        written += i64::try_from(piece.len()).map_err(Error::other)?;
        while sent < written {
            let left = (written - sent) as usize;
            sendfile(fd, &file, &mut sent, left)?;
        }
        if written > 16 << 20 {
            // The file does not keep what was sent.
            file.set_len(0)?;
            std::io::Seek::rewind(&mut file)?;
            (written, sent) = (0, 0);
        }
    }
    Ok(())
}

fn send_by_splice(fd: c_int, rest: Rest) -> Result<()> {
    let (from, mut to) = pipe()?;
    for piece in pieces(rest) {
        // A pipe has room for 64 KiB.
        for part in piece.chunks(32 << 10) {
            to.write_all(part)?;
            let mut left = part.len();
            while left > 0 {
                left -= splice(&from, fd, left)?;
            }
        }
    }
    Ok(())
}

/// This program's own path, and words that have it send the rest.
fn next_program(fd: c_int, rest: Rest) -> Result<Vec<CString>> {
    let program = std::env::current_exe()?;
    let words = std::iter::once(program.to_string_lossy().into_owned()).chain(rest.words(fd));
    words.map(|word| CString::new(word).map_err(Error::other)).collect()
}

fn send_by_next_program(fd: c_int, rest: Rest) -> Result<()> {
    let words = next_program(fd, rest)?;
    match fork()? {
        0 => become_program(&words, fd),
        child => ended_well(child),
    }
}

fn send_by_spawned_program(fd: c_int, rest: Rest) -> Result<()> {
    ended_well(spawn(&next_program(1, rest)?, fd)?)
}

fn send_by_number(fd: c_int, number: c_int, rest: Rest) -> Result<()> {
    put(fd, number)?;
    let sent = rest.write(number);
    let null = File::options().read(true).write(true).open("/dev/null")?;
    // The socket's end is that of its other number.
    put(null.as_raw_fd(), number)?;
    sent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_have_names_and_numbers() {
        for (name, way) in WAYS {
            assert_eq!(name.parse(), Ok(way));
            assert_eq!(Way::of_number(way.number()), Some(way));
        }
        assert!("fly".parse::<Way>().is_err());
        assert_eq!(Way::of_number(99), None);
    }
}
