//! Parses the text of a map.

use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::str::SplitWhitespace;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::{Bound, Entrance, HOST_CID, Listen, Map, MapError, PATIENCE, Peer, Ports, Target};

const TARGETS: &str = "a peer's line is `ADDRESS:PORT -> cid N`, `-> host` or `-> unix PATH`, with `port N` behind it if the port differs";
const LISTENS: &str = "such a line is `listen ADDRESS:PORT`, with `-> vsock port N` or `-> unix PATH` behind it if wanted; `*` means any";

/// Longest timeout of a non-blocking connect.
const MOST_PATIENCE: Duration = Duration::from_secs(5);

/// The fault of a line, and a hint at the correct form.
struct Fault(String, &'static str);

type Words<'a> = SplitWhitespace<'a>;

impl Map {
    /// Parses the text of a map. `file` is named in errors.
    pub(crate) fn parse(text: &str, file: &Path) -> Result<Self, MapError> {
        let mut map = Self {
            peers: Vec::new(),
            listens: Vec::new(),
            locals: Vec::new(),
            patience: PATIENCE,
            rings: true,
            poll: Duration::ZERO,
        };
        for (number, line) in text.lines().enumerate() {
            map.line(line).map_err(|Fault(cause, hint)| MapError {
                file: file.to_owned(),
                line: number + 1,
                cause,
                hint: hint.to_owned(),
            })?;
        }
        Ok(map)
    }

    fn line(&mut self, line: &str) -> Result<(), Fault> {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { return Ok(()) };
        match first {
            "listen" => self.listens.push(listen(&mut words)?),
            "local" => self.locals.push(local(&mut words)?),
            "patience" => self.patience = patience(&mut words)?,
            "rings" => self.rings = rings(&mut words)?,
            "poll" => self.poll = poll(&mut words)?,
            address => {
                let peer = peer(address, &mut words)?;
                if self.peers.iter().any(|other| other.ip == peer.ip && other.ports == peer.ports) {
                    return Err(Fault(
                        format!("an earlier line already has {address}"),
                        "remove one of the two lines; only the first matching one counts",
                    ));
                }
                self.peers.push(peer);
            }
        }
        words.next().map_or(Ok(()), |more| {
            Err(Fault(
                format!("`{more}` is superfluous"),
                "write one statement a line; comments begin with #",
            ))
        })
    }
}

fn peer(address: &str, words: &mut Words) -> Result<Peer, Fault> {
    let (host, ports) = host_and_ports(address, TARGETS)?;
    let ip = match host {
        Some(ip) if !ip.is_unspecified() && !ip.is_multicast() => ip,
        _ => return Err(Fault(format!("`{address}` is not the address of one machine"), TARGETS)),
    };
    arrow(words, TARGETS)?;
    let target = match words.next() {
        Some("cid") => Target::Cid(cid(words)?),
        Some("host") => Target::Cid(HOST_CID),
        Some("unix") => Target::Unix(path(words, TARGETS)?),
        other => return Err(Fault(format!("`{}` is not a target", other.unwrap_or_default()), TARGETS)),
    };
    let port = port(words, ports, TARGETS)?;
    Ok(Peer { ip, ports, target, port, rests_until: AtomicU64::new(0) })
}

fn listen(words: &mut Words) -> Result<Listen, Fault> {
    let Some(address) = words.next() else {
        return Err(Fault("no address".to_owned(), LISTENS));
    };
    let (bound, ports) = if address == "*" {
        (Bound::Any, Ports::Any)
    } else {
        let (host, ports) = host_and_ports(address, LISTENS)?;
        (host.map_or(Bound::Any, Bound::Ip), ports)
    };
    if words.clone().next().is_none() {
        return Ok(Listen { bound, ports, entrance: Entrance::Vsock(None) });
    }
    arrow(words, LISTENS)?;
    let entrance = match words.next() {
        Some("vsock") => Entrance::Vsock(port(words, ports, LISTENS)?),
        Some("unix") => {
            let path = path(words, LISTENS)?;
            Entrance::Unix(path, port(words, ports, LISTENS)?)
        }
        other => return Err(Fault(format!("`{}` is not an entrance", other.unwrap_or_default()), LISTENS)),
    };
    Ok(Listen { bound, ports, entrance })
}

fn local(words: &mut Words) -> Result<IpAddr, Fault> {
    const HINT: &str = "such a line is `local ADDRESS`, with the address of this machine that programs know";
    let word = words.next().unwrap_or_default();
    match word.parse::<IpAddr>() {
        Ok(ip) if !ip.is_unspecified() && !ip.is_multicast() => Ok(ip.to_canonical()),
        _ => Err(Fault(format!("`{word}` is not this machine's address"), HINT)),
    }
}

fn rings(words: &mut Words) -> Result<bool, Fault> {
    const HINT: &str = "such a line is `rings on` or `rings off`";
    match words.next() {
        Some("on") => Ok(true),
        Some("off") => Ok(false),
        other => Err(Fault(format!("`{}` is neither on nor off", other.unwrap_or_default()), HINT)),
    }
}

fn poll(words: &mut Words) -> Result<Duration, Fault> {
    const HINT: &str = "such a line is `poll N us`, 0 to 50";
    let number = words.next().unwrap_or_default();
    let number = match number.strip_suffix("us") {
        Some(number) => number,
        None if words.next() == Some("us") => number,
        None => return Err(Fault("no unit".to_owned(), HINT)),
    };
    match number.parse() {
        Ok(time @ 0..=50) => Ok(Duration::from_micros(time)),
        _ => Err(Fault(format!("`{number}` is not such a time"), HINT)),
    }
}

fn patience(words: &mut Words) -> Result<Duration, Fault> {
    const HINT: &str = "such a line is `patience N ms`, 1 to 5000";
    let word = words.next().unwrap_or_default();
    let patience = word.parse().map(Duration::from_millis).unwrap_or_default();
    if patience.is_zero() || patience > MOST_PATIENCE || words.next() != Some("ms") {
        return Err(Fault(format!("`{word}` is not a timeout"), HINT));
    }
    Ok(patience)
}

/// Parses `10.0.0.7:80`, `[fd00::7]:80` or `*:80`, each possibly with `*` for the port.
fn host_and_ports(word: &str, hint: &'static str) -> Result<(Option<IpAddr>, Ports), Fault> {
    let fault = |what: &str| Fault(format!("`{word}` {what}"), hint);
    let (host, ports) = word.rsplit_once(':').ok_or_else(|| fault("has no port"))?;
    let ports = match ports {
        "*" => Ports::Any,
        number => match number.parse() {
            Ok(port) if port > 0 => Ports::One(port),
            _ => return Err(fault("has a port that is neither 1 to 65535 nor *")),
        },
    };
    let host = match host.strip_prefix('[').map(|inner| inner.strip_suffix(']')) {
        Some(Some(v6)) => Some(
            IpAddr::V6(v6.parse::<Ipv6Addr>().map_err(|_| fault("has no valid IPv6 address"))?)
                .to_canonical(),
        ),
        Some(None) => return Err(fault("lacks a closing bracket")),
        None if host == "*" => None,
        None => Some(IpAddr::V4(host.parse().map_err(|_| {
            fault("has no valid IPv4 address (names are not resolved; IPv6 addresses need brackets)")
        })?)),
    };
    Ok((host, ports))
}

fn arrow(words: &mut Words, hint: &'static str) -> Result<(), Fault> {
    match words.next() {
        Some("->" | "→") => Ok(()),
        other => Err(Fault(format!("`->` expected, not `{}`", other.unwrap_or_default()), hint)),
    }
}

fn cid(words: &mut Words) -> Result<u32, Fault> {
    const HINT: &str = "a context ID is 1 (this machine itself), 2 (the host) or a VM's, 3 to 4294967294: `taut vm show` tells it";
    let word = words.next().unwrap_or_default();
    match word.parse() {
        Ok(cid) if (1..u32::MAX).contains(&cid) => Ok(cid),
        _ => Err(Fault(format!("`{word}` is not a context ID"), HINT)),
    }
}

fn path(words: &mut Words, hint: &'static str) -> Result<PathBuf, Fault> {
    let word = words.next().unwrap_or_default();
    // Leaves room for `_<port>` in the 108 bytes of a Unix socket's address.
    if !word.starts_with('/') || word.len() > 96 {
        return Err(Fault(format!("`{word}` is not an absolute path of at most 96 bytes"), hint));
    }
    Ok(PathBuf::from(word))
}

/// Parses an optional `port N`, which is allowed only for a single TCP port.
fn port(words: &mut Words, ports: Ports, hint: &'static str) -> Result<Option<u32>, Fault> {
    let mut ahead = words.clone();
    if ahead.next() != Some("port") {
        return Ok(None);
    }
    let word = ahead.next().unwrap_or_default();
    *words = ahead;
    if ports == Ports::Any {
        return Err(Fault("many ports cannot all become one".to_owned(), hint));
    }
    match word.parse() {
        Ok(port) if (1..u32::MAX).contains(&port) => Ok(Some(port)),
        _ => Err(Fault(format!("`{word}` is not a VMCI port"), hint)),
    }
}
