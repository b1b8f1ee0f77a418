//! The console process: reads what VMs and the fabric write, keeps it in bounded logs, and connects
//! people to serial consoles.
//!
//! One process serves all VMs of a daemon and outlives it. `tautd` gives it *sources*
//! ([`control::message`]); the process opens nothing itself:
//!
//! | kind | bytes come from | descriptors |
//! |---|---|---|
//! | output | a FIFO that a program has as standard output and error | FIFO, log |
//! | console | the socket of a serial port, of QEMU | serial port, listening socket, log |
//!
//! Each source has bounds of its own:
//!
//! - The log ([`log`]) has at most the size that the source's settings name. Then its older half is
//!   cut off. While it cannot be written, the newest 256 KiB are kept in memory.
//! - What exceeds the source's rate ([`rate`]) is read and dropped, and a line in the log says so.
//!   The newest 4 KiB of it are kept.
//! - Up to eight people are connected to a console ([`client`]). All get its output from then on,
//!   and none gets what came before, which is in the log. Their input is passed on as fast as the
//!   guest takes it.
//!
//! The process ([`engine`]) is one loop. Each turn takes at least a millisecond and reads at most
//! eight sources or clients, at most 64 KiB each. So one source is drained at up to 64 MiB/s, and
//! the loop never needs a whole CPU. A serial port that is faster is slowed down by that; a program
//! whose FIFO is full loses what it writes then.
//!
//! Writing to a log may wait for the disk, and with it the whole process. Meanwhile serial ports
//! are slowed down and FIFOs fill; `tautd` waits a second at most for an answer.

pub mod client;
pub mod control;
pub mod engine;
mod epoll;
pub mod follow;
pub mod log;
pub mod rate;
pub mod sandbox;
pub mod source;

/// Bytes in a mebibyte.
pub const MIB: u64 = 1 << 20;
/// Limit of a console's log, in bytes. With the blocks that a file system takes for its own tables,
/// the log stays within 4 MiB on disk.
pub const CONSOLE_LOG: u64 = 4 * MIB - MIB / 16;
/// Limit of the log of a VM's process, in bytes.
pub const VM_LOG: u64 = MIB / 2;
/// Limit of the fabric's log, in bytes.
pub const FABRIC_LOG: u64 = CONSOLE_LOG;
