//! The sender of a request: the process at the other end of a Unix socket, or the holder of a
//! token.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::{PeerCredentials, PeerPidfd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use taut_api::Name;
use taut_api::audit::AuditCaller;
use taut_api::role::Role;

use super::peer_groups::peer_groups;
use super::rights::Rights;
use super::roles::Roles;
use crate::process::start_time;

/// Longest text that is kept of a program's path and name.
const MOST_PROGRAM: usize = 256;
/// The `loginuid` of a process without a login.
const NO_LOGIN: u32 = u32::MAX;

/// Sender of a request. All requests of a connection to a Unix socket have the same caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller(Arc<Origin>);

#[derive(Debug, PartialEq, Eq)]
enum Origin {
    Process(Peer),
    Token(Bearer),
}

/// Holder of a token, who has connected over TCP.
#[derive(Debug, PartialEq, Eq)]
struct Bearer {
    /// Name of the token.
    token: Name,
    /// Role of the token.
    role: Role,
    address: IpAddr,
}

/// A process that has connected.
#[derive(Debug, PartialEq, Eq)]
struct Peer {
    rights: Rights,
    /// Number of the process; absent for one of another PID namespace.
    pid: Option<u32>,
    program: Option<Program>,
}

/// What `/proc` says of a process. Reading it never waits: none of these files takes a lock that
/// the process could hold, as `cmdline` would.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    start_time: u64,
    loginuid: Option<u32>,
    text: String,
}

impl Caller {
    /// Reads who is at the other end of a socket.
    pub(crate) fn of(socket: &impl AsFd) -> io::Result<Self> {
        let credentials = getsockopt(socket, PeerCredentials)?;
        let rights = Rights { uid: credentials.uid(), gid: credentials.gid(), groups: peer_groups(socket)? };
        let pid = u32::try_from(credentials.pid()).ok().filter(|pid| *pid > 0);
        // Without a descriptor of the process (before Linux 6.5, or after its end), its number may
        // belong to another one by now.
        let pidfd = getsockopt(socket, PeerPidfd).ok();
        let program = pid.zip(pidfd).and_then(|(pid, pidfd)| Program::of(pid, &pidfd));
        Ok(Self(Arc::new(Origin::Process(Peer { rights, pid, program }))))
    }

    /// Returns the caller who has shown a token over TCP.
    pub(crate) fn of_token(token: Name, role: Role, address: IpAddr) -> Self {
        Self(Arc::new(Origin::Token(Bearer { token, role, address })))
    }

    /// Returns a caller with these rights and without a process.
    #[cfg(test)]
    pub(crate) fn with_rights(rights: Rights) -> Self {
        Self(Arc::new(Origin::Process(Peer { rights, pid: None, program: None })))
    }

    /// Returns the caller's role: as the roles file says, or that of the token.
    pub(crate) fn role(&self, roles: &Roles) -> Option<Role> {
        match &*self.0 {
            Origin::Process(peer) => roles.of(&peer.rights),
            Origin::Token(bearer) => Some(bearer.role),
        }
    }

    /// Returns the caller's user and groups. Who comes over TCP is no user of this host, and has
    /// the rights of nobody.
    pub(crate) fn rights(&self) -> Rights {
        match &*self.0 {
            Origin::Process(peer) => peer.rights.clone(),
            Origin::Token(_) => Rights::nobody(),
        }
    }

    /// Returns the caller's user ID; `None` over TCP.
    pub(crate) fn uid(&self) -> Option<u32> {
        match &*self.0 {
            Origin::Process(peer) => Some(peer.rights.uid),
            Origin::Token(_) => None,
        }
    }

    /// Returns the name of the token that the caller has shown over TCP.
    pub(crate) fn token(&self) -> Option<&Name> {
        match &*self.0 {
            Origin::Process(_) => None,
            Origin::Token(bearer) => Some(&bearer.token),
        }
    }

    /// Returns the caller's name for messages.
    pub(crate) fn describe(&self) -> String {
        match &*self.0 {
            Origin::Process(peer) => format!("user {}", peer.rights.uid),
            Origin::Token(bearer) => format!("token `{}`", bearer.token),
        }
    }

    /// Returns what the audit record says of the caller.
    pub(crate) fn for_audit(&self, role: Option<Role>) -> AuditCaller {
        match &*self.0 {
            Origin::Process(Peer { rights, pid, program }) => AuditCaller {
                uid: Some(rights.uid),
                gid: Some(rights.gid),
                loginuid: program.as_ref().and_then(|program| program.loginuid),
                pid: *pid,
                start_time: program.as_ref().map(|program| program.start_time),
                program: program.as_ref().map(|program| program.text.clone()),
                role,
                ..AuditCaller::default()
            },
            Origin::Token(Bearer { token, address, .. }) => AuditCaller {
                token: Some(token.clone()),
                address: Some(*address),
                role,
                ..AuditCaller::default()
            },
        }
    }
}

impl Program {
    /// Reads what the process runs, unless it has ended meanwhile.
    fn of(pid: u32, pidfd: &OwnedFd) -> Option<Self> {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let read = |name: &str| {
            fs::read(folder.join(name)).map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
        };
        let start_time = start_time(&read("stat").ok()?)?;
        let loginuid = read("loginuid").ok().and_then(|text| text.parse().ok());
        let text = describe(fs::read_link(folder.join("exe")).ok().as_deref(), &read("comm").ok()?);
        let loginuid = loginuid.filter(|uid| *uid != NO_LOGIN);
        // While it has not ended, its number is its own.
        is_alive(pidfd).then_some(Self { start_time, loginuid, text })
    }
}

/// Returns the path of a program, and its name if that differs from the file's. A process chooses
/// both, so control characters are replaced.
fn describe(path: Option<&Path>, name: &str) -> String {
    let text = match path {
        None => name.to_owned(),
        Some(path) if path.file_name().is_some_and(|file| is_named(&file.to_string_lossy(), name)) => {
            path.to_string_lossy().into_owned()
        }
        Some(path) => format!("{} ({name})", path.display()),
    };
    let printable = text.chars().map(|c| if c.is_control() { '?' } else { c });
    printable.take(MOST_PROGRAM).collect()
}

/// Returns whether a process of this program has this name. The kernel cuts it after 15 bytes.
fn is_named(file: &str, name: &str) -> bool {
    file == name || name.len() == 15 && file.starts_with(name)
}

fn is_alive(pidfd: &OwnedFd) -> bool {
    let mut ended = [PollFd::new(pidfd, PollFlags::IN)];
    matches!(poll(&mut ended, Some(&Timespec::default())), Ok(0))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_caller_is_the_process_that_connected() {
        let (a, _b) = UnixStream::pair().unwrap();
        let caller = Caller::of(&a).unwrap();
        let told = caller.for_audit(Some(Role::View));
        assert_eq!(told.uid, Some(rustix::process::geteuid().as_raw()));
        assert_eq!((told.pid, told.role), (Some(std::process::id()), Some(Role::View)));
        // The kernel of this host may not tell.
        if let Some(program) = told.program {
            assert!(program.contains("tautd"), "{program}");
            assert!(told.start_time.is_some_and(|ticks| ticks > 0));
        }
    }

    #[test]
    fn who_shows_a_token_has_its_role_and_no_rights() {
        let address = IpAddr::from([192, 0, 2, 1]);
        let caller = Caller::of_token("ci".parse().unwrap(), Role::Admin, address);
        let roles = Roles::of_users([(Rights::nobody().uid, Role::View)]);
        assert_eq!((caller.role(&roles), caller.uid()), (Some(Role::Admin), None));
        assert!(!caller.rights().are_roots() && caller.rights().groups.is_empty());
        let told = caller.for_audit(Some(Role::Admin));
        assert_eq!((told.token.as_ref(), told.address, told.uid), (caller.token(), Some(address), None));
    }

    #[test]
    fn names_of_programs_are_printable_and_bounded() {
        let of = |path: &str, name: &str| describe(Some(Path::new(path)), name);
        assert_eq!(of("/usr/bin/taut", "taut"), "/usr/bin/taut");
        assert_eq!(of("/usr/bin/a-very-long-program", "a-very-long-pro"), "/usr/bin/a-very-long-program");
        assert_eq!(of("/usr/bin/python3", "evil\x1b[2J"), "/usr/bin/python3 (evil?[2J)");
        assert_eq!(describe(None, "kworker"), "kworker");
        assert_eq!(of(&"/x".repeat(3000), "x").chars().count(), MOST_PROGRAM);
    }
}
