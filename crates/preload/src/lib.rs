//! `libtaut_vmci.so`: an unmodified TCP program talks over VMCI sockets (SPEC row VC-6).
//!
//! ```text
//! LD_PRELOAD=/usr/lib/taut/libtaut_vmci.so redis-server          # map in /etc/taut/vmci.map, or where TAUT_VMCI_MAP says
//! LD_PRELOAD=/usr/lib/taut/libtaut_vmci.so redis-cli -h 10.0.0.7
//! ```
//!
//! `map` is the map: which addresses are machines on the same host, and which listening ports those reach. A connect to a mapped
//! address becomes a connection of `AF_VSOCK`, in a guest, or of a VM's Unix socket, on the host; if nobody is there, it is TCP as ever.
//! A mapped listening socket accepts both. A map that cannot be used is complained of once, on standard error, and everything is TCP.
//! `TAUT_VMCI_LOG=1` tells every decision.
//!
//! # How
//!
//! - `connect`: the VMCI socket takes the place of the TCP socket at the same descriptor, during connect, when it is connected.
//! - `listener`: the descriptor becomes an epoll instance that holds a TCP and a VMCI socket.
//! - `table`: what the library knows of descriptors, without locks and memory from anywhere.
//! - `names`, `options`: the program goes on seeing TCP addresses and TCP options.
//! - `hooks`, `real`, `sys`: the borders to the program, to the C library and to the kernel; the only unsafe code.
//!
//! Bytes never pass through this library: reading, writing, polling, sendfile and splice are the kernel's own, on another socket.
//!
//! # What differs from TCP
//!
//! - Programs that make system calls without the C library (Go's, static ones, io_uring's accept) are not seen: they stay with TCP.
//!   Nor are file operations on a listener that only a socket has (`fstat` sees no socket).
//! - `MSG_OOB`, kernel TLS, time stamps, `SO_ORIGINAL_DST` and other options that only a TCP connection has are refused with an error
//!   and, once, a line on standard error.
//! - Of a group of sockets that listen on one port (`SO_REUSEPORT`) the first gets all VMCI connections; that is said.
//! - A socket that more than one epoll instance watches, or that sends signals (`O_ASYNC`), stays TCP when it is connected; that is said.
//! - A listener that is passed to another process by a message becomes a TCP socket again. One that another program inherits by exec
//!   is of use to it only if it has the library, too: some programs clear their environment first (nginx: `env LD_PRELOAD;`).
//! - A duplicate that was made of a socket before it was connected or listened on stays TCP.
//! - A port of VMCI has 32 bits: of one that is greater than 65535 the program sees the lower half. A machine that the map gives no
//!   address is seen as 169.254.x.y, made of its context ID.
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
