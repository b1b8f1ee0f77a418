//! Requests of `tautd`.

use std::fs::File;
use std::io;
use std::ops::Bound;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};
use rustix::net::sockopt::socket_acceptconn;

use super::station::{Station, set_nonblocking};
use super::{Engine, Role};
use crate::control::channel::{Packet, receive, send};
use crate::control::message::{Kind, PAGE, PROTOCOL, Reply, Request, SourceId, SourceSpec};
use crate::epoll::EventFlags;
use crate::log::BoundedLog;
use crate::source::Source;

/// Maximum number of sources.
const MOST_SOURCES: usize = 16_384;
/// Maximum number of requests of one connection in one turn.
const MOST_REQUESTS: usize = 64;

impl Engine {
    /// Answers the requests of one connection. Who sends something that is no request is told so.
    pub(super) fn on_caller(&mut self, token: u64, now: Instant) {
        for _ in 0..MOST_REQUESTS {
            let Some(caller) = self.callers.get(&token) else { return };
            let reply = match receive::<Request>(caller) {
                Ok(Packet::Message(request, fds)) => self.answer(request, fds, now),
                Ok(Packet::Malformed(why)) => Reply::Refused { why },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Ok(Packet::End) | Err(_) => return self.drop_caller(token, now),
            };
            let Some(caller) = self.callers.get(&token) else { return };
            // Whoever reads no answers is not served.
            if send(caller, &reply, &[]).is_err() {
                return self.drop_caller(token, now);
            }
        }
    }

    fn answer(&mut self, request: Request, fds: Vec<OwnedFd>, now: Instant) -> Reply {
        match request {
            Request::Hello { protocol: PROTOCOL } => Reply::Welcome { protocol: PROTOCOL },
            Request::Hello { protocol } => {
                Reply::Refused { why: format!("protocol {protocol}; this process has {PROTOCOL}") }
            }
            Request::Add(spec) => match self.add(spec, fds, now) {
                Ok(()) => Reply::Done,
                Err(why) => Reply::Refused { why },
            },
            Request::Remove { id } => {
                if let Some(&station) = self.names.get(&id) {
                    self.forget(station, now);
                }
                Reply::Done
            }
            Request::Flush { id } => match self.names.get(&id).copied() {
                Some(station) => {
                    if let Some(found) = self.stations.get_mut(&station) {
                        found.flush(&mut self.buffer, now);
                    }
                    self.look_after(station, now);
                    Reply::Done
                }
                None => Reply::Refused { why: format!("there is no source {id}") },
            },
            Request::List { after } => self.list(after),
            Request::Quit => {
                for station in self.stations.values_mut() {
                    station.flush(&mut self.buffer, now);
                }
                self.quits = true;
                Reply::Done
            }
        }
    }

    fn list(&self, after: Option<SourceId>) -> Reply {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut names = self.names.range((from, Bound::Unbounded)).map(|(id, _)| id.clone());
        let ids = names.by_ref().take(PAGE).collect();
        Reply::Sources { ids, more: names.next().is_some() }
    }

    fn add(&mut self, spec: SourceSpec, fds: Vec<OwnedFd>, now: Instant) -> Result<(), String> {
        spec.check()?;
        let SourceSpec { id, kind, log_limit, rate } = spec;
        let (wanted, got) = (kind.descriptors(), fds.len());
        let mut fds = fds.into_iter();
        let (Some(port), Some(log), true) = (fds.next(), fds.next_back(), got == wanted) else {
            return Err(format!("a source of this kind needs {wanted} descriptors, not {got}"));
        };
        let door = fds.next();
        let expected = match kind {
            Kind::Output => FileType::Fifo,
            Kind::Console => FileType::Socket,
        };
        check(&port, "the port", expected)?;
        check_log(&log)?;
        if let Some(door) = &door {
            check(door, "the second socket", FileType::Socket)?;
            if !socket_acceptconn(door).unwrap_or(false) {
                return Err("the second socket does not listen".to_owned());
            }
        }
        let nonblocking = set_nonblocking(&port).and_then(|()| door.as_ref().map_or(Ok(()), set_nonblocking));
        nonblocking.map_err(|error| format!("a descriptor cannot be made non-blocking: {error}"))?;
        if let Some(&before) = self.names.get(&id) {
            self.forget(before, now);
        }
        if self.stations.len() >= MOST_SOURCES {
            return Err(format!("there are {MOST_SOURCES} sources already"));
        }
        let source = Source::new(BoundedLog::new(File::from(log), log_limit, now), rate, now);
        self.place(id, port, door, source).map_err(|error| format!("the kernel has no room to wait: {error}"))
    }

    /// Adds a source to the set.
    fn place(
        &mut self,
        id: SourceId,
        port: OwnedFd,
        door: Option<OwnedFd>,
        source: Source<File>,
    ) -> io::Result<()> {
        let (station, behind) = (self.next_token, self.next_token + 1);
        let port = self.epoll.watch(port, station, EventFlags::IN)?;
        let door = door.map(|door| self.epoll.watch(door, behind, EventFlags::IN)).transpose()?;
        self.next_token += 2;
        self.roles.insert(station, Role::Port);
        if door.is_some() {
            self.roles.insert(behind, Role::Door { station });
        }
        self.names.insert(id.clone(), station);
        self.stations.insert(station, Station::new(id, port, door, source));
        Ok(())
    }
}

fn check(fd: &OwnedFd, what: &str, expected: FileType) -> Result<(), String> {
    let kind = fstat(fd).map(|stat| FileType::from_raw_mode(stat.st_mode));
    let kind = kind.map_err(|error| format!("{what} cannot be examined: {error}"))?;
    if kind == expected { Ok(()) } else { Err(format!("{what} is a {kind:?}, not a {expected:?}")) }
}

fn check_log(log: impl AsFd) -> Result<(), String> {
    let log = log.as_fd();
    let kind = fstat(log).map(|stat| FileType::from_raw_mode(stat.st_mode));
    let flags = fcntl_getfl(log);
    let (Ok(FileType::RegularFile), Ok(flags)) = (kind, flags) else {
        return Err("the log is no regular file".to_owned());
    };
    // Everything would be written at the end of a file that is open for appending.
    if flags & OFlags::ACCMODE != OFlags::RDWR || flags.contains(OFlags::APPEND) {
        return Err("the log is not open for reading and writing at any place".to_owned());
    }
    Ok(())
}
