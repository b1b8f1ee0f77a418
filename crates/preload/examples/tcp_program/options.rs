//! Options that programs set at their connections.

use std::net::TcpStream;
use std::os::fd::AsRawFd;

use crate::calls::{connect, getsockopt, setsockopt, socket};
use crate::{Scenario, listener, pair};

pub(crate) const SCENARIOS: &[Scenario] =
    &[("usual_options", usual_options), ("options_set_before", options_set_before)];

/// Options that servers and clients commonly set.
const USUAL: &[(&str, i32, i32, i32)] = &[
    ("TCP_NODELAY", libc::SOL_TCP, libc::TCP_NODELAY, 1),
    ("TCP_KEEPIDLE", libc::SOL_TCP, libc::TCP_KEEPIDLE, 7200),
    ("TCP_KEEPINTVL", libc::SOL_TCP, libc::TCP_KEEPINTVL, 75),
    ("TCP_KEEPCNT", libc::SOL_TCP, libc::TCP_KEEPCNT, 9),
    ("TCP_USER_TIMEOUT", libc::SOL_TCP, libc::TCP_USER_TIMEOUT, 0),
    ("TCP_QUICKACK", libc::SOL_TCP, libc::TCP_QUICKACK, 1),
    ("TCP_CORK", libc::SOL_TCP, libc::TCP_CORK, 0),
    ("SO_KEEPALIVE", libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
    ("SO_REUSEADDR", libc::SOL_SOCKET, libc::SO_REUSEADDR, 1),
    ("SO_PRIORITY", libc::SOL_SOCKET, libc::SO_PRIORITY, 0),
    ("TCP_SYNCNT", libc::SOL_TCP, libc::TCP_SYNCNT, 6),
    ("TCP_LINGER2", libc::SOL_TCP, libc::TCP_LINGER2, 60),
    ("TCP_NOTSENT_LOWAT", libc::SOL_TCP, libc::TCP_NOTSENT_LOWAT, 0),
    ("TCP_THIN_LINEAR_TIMEOUTS", libc::SOL_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS, 0),
    ("IP_TOS", libc::SOL_IP, libc::IP_TOS, 0),
    ("IP_MTU_DISCOVER", libc::SOL_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_WANT),
    ("IP_RECVERR", libc::SOL_IP, libc::IP_RECVERR, 0),
    ("IP_BIND_ADDRESS_NO_PORT", libc::SOL_IP, libc::IP_BIND_ADDRESS_NO_PORT, 0),
];

fn usual_options() {
    let (client, server) = pair();
    for end in [client, server] {
        let fd = end.as_raw_fd();
        println!("nodelay at first: {:?}", getsockopt(fd, libc::SOL_TCP, libc::TCP_NODELAY));
        for (text, level, name, value) in USUAL {
            println!(
                "{text}: {:?} {:?}",
                setsockopt(fd, *level, *name, *value),
                getsockopt(fd, *level, *name)
            );
        }
        for name in [libc::SO_TYPE, libc::SO_DOMAIN, libc::SO_PROTOCOL, libc::SO_ERROR, libc::SO_ACCEPTCONN] {
            println!("option {name}: {:?}", getsockopt(fd, libc::SOL_SOCKET, name));
        }
        println!("segment: {}", getsockopt(fd, libc::SOL_TCP, libc::TCP_MAXSEG).is_ok_and(|size| size > 500));
        println!("nodelay off: {:?}", setsockopt(fd, libc::SOL_TCP, libc::TCP_NODELAY, 0));
        println!("nodelay: {:?}", getsockopt(fd, libc::SOL_TCP, libc::TCP_NODELAY));
    }
}

fn options_set_before() {
    const BUFFERS: [i32; 2] = [libc::SO_SNDBUF, libc::SO_RCVBUF];
    let (_listener, address) = listener();
    let socket = socket(0);
    let fd = socket.as_raw_fd();
    setsockopt(fd, libc::SOL_TCP, libc::TCP_NODELAY, 1).unwrap();
    setsockopt(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1).unwrap();
    for name in BUFFERS {
        setsockopt(fd, libc::SOL_SOCKET, name, 65_536).unwrap();
    }
    connect(fd, address).unwrap();
    println!("nodelay: {:?}", getsockopt(fd, libc::SOL_TCP, libc::TCP_NODELAY));
    println!("keepalive: {:?}", getsockopt(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE));
    println!("buffers: {:?}", BUFFERS.map(|name| getsockopt(fd, libc::SOL_SOCKET, name)));
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(std::time::Duration::from_millis(10))).unwrap();
    println!("time limit: {:?}", stream.read_timeout().unwrap());
}
