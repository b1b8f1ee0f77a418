//! `libtaut_vmci.so`: an unmodified TCP program uses VMCI sockets (row VC-6 of docs/spec.md).
//!
//! ```text
//! LD_PRELOAD=/usr/lib/taut/libtaut_vmci.so redis-server
//! LD_PRELOAD=/usr/lib/taut/libtaut_vmci.so redis-cli -h 10.0.0.7
//! ```
//!
//! `map` reads the map, by default `/etc/taut/vmci.map`; `TAUT_VMCI_MAP` names another file. The
//! map says which addresses are machines on the same host, and which listening ports those machines
//! can reach.
//!
//! A connect to a mapped address becomes a connection of `AF_VSOCK` (in a guest) or of a VM's Unix
//! socket (on the host). If no VMCI peer listens, the library falls back to TCP. A mapped listening
//! socket accepts both kinds. If the map cannot be used, the library prints one error on standard
//! error and everything stays TCP. With `TAUT_VMCI_LOG=1` the library logs every decision.
//!
//! # How it works
//!
//! - `connect`: during connect, the connected VMCI socket replaces the TCP socket at the same
//!   descriptor.
//! - `listener`, `accept`: beside the program's TCP socket, which stays at its descriptor, a VMCI
//!   socket listens at a hidden one.
//! - `tcp_accept`, `waiting`, `readiness`: accept, poll and select for the two sockets.
//! - `datagram`: datagram sockets of `AF_VSOCK`, for programs that open such sockets themselves.
//! - `table`: the library's knowledge of descriptors, without locks and without allocation.
//! - `names`, `options`: the program continues to see TCP addresses and TCP options.
//! - `hooks`, `real`, `sys`: the borders to the program, to the C library and to the kernel. Only
//!   these, `waiting` and the lock of `gather` have unsafe code.
//! - `rings`: the bytes of connections go through memory that guest and host share.
//! - `gather`: small writes become larger ones, on request.
//!
//! Without rings, bytes of connections never pass through this library: the kernel itself reads,
//! writes, polls, sends files and splices on the other socket.
//!
//! `docs/guide/vmci.md` lists the differences from TCP.

#![cfg_attr(test, allow(dead_code, reason = "in unit tests the C functions are not exported"))]

mod accept;
mod address;
mod adopt;
mod connect;
mod datagram;
mod descriptors;
mod dial;
mod few;
mod gather;
mod hidden;
mod hooks;
mod listener;
mod lookup;
mod map;
mod names;
mod options;
mod readiness;
mod real;
mod rights;
mod rings;
mod say;
mod state;
mod sys;
mod table;
mod tcp_accept;
mod waiting;
mod watch;
