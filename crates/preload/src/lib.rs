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
//! - `listener`: the descriptor becomes an epoll instance that holds a TCP and a VMCI socket.
//! - `table`: the library's knowledge of descriptors, without locks and without allocation.
//! - `names`, `options`: the program continues to see TCP addresses and TCP options.
//! - `hooks`, `real`, `sys`: the borders to the program, to the C library and to the kernel. Only
//!   these have unsafe code.
//!
//! Bytes never pass through this library: the kernel itself reads, writes, polls, sends files and
//! splices on the other socket.
//!
//! # Differences from TCP
//!
//! - The library does not see programs that make system calls without the C library: Go programs,
//!   static programs, accept by io_uring. They use TCP. File operations on a listener do not see a
//!   socket either (`fstat`).
//! - `MSG_OOB`, kernel TLS, time stamps, `SO_ORIGINAL_DST` and other options that only a TCP
//!   connection has fail with an error. The library prints the first such error.
//! - If several sockets listen on one port (`SO_REUSEPORT`), the first one gets all VMCI
//!   connections. The library prints that.
//! - A socket that is watched by more than one epoll instance, or that sends signals (`O_ASYNC`),
//!   stays TCP when it is connected. The library prints that.
//! - A listener that is passed to another process by a message becomes a TCP socket again.
//! - A listener that another program inherits by exec only works there if that program has the
//!   library, too. Some programs clear their environment first (nginx: `env LD_PRELOAD;`).
//! - A duplicate that was made of a socket before connect or listen stays TCP.
//! - A VMCI port has 32 bits. The program sees the lower 16 bits of a port above 65535.
//! - The program sees a machine that has no address in the map as 169.254.x.y, derived from its
//!   context ID.
//! - A port of the loopback interface is open to other machines only if the map names that address.

#![cfg_attr(test, allow(dead_code, reason = "in unit tests the C functions are not exported"))]

mod address;
mod adopt;
mod connect;
mod descriptors;
mod dial;
mod hidden;
mod hooks;
mod listener;
mod lookup;
mod map;
mod names;
mod options;
mod real;
mod rights;
mod say;
mod state;
mod sys;
mod table;
mod watch;
