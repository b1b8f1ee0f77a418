//! Rules of uplinks (rows VN-3 and VN-5 of the specification).
//!
//! Nothing here opens, reads or sends anything, and nothing reads a clock: callers pass what they
//! saw and the time at which they saw it, in ns since any fixed point in time. So every rule is
//! tested in virtual time.
//!
//! * [`netioc`]: network I/O control. Which port may send next to an uplink, and how much.
//! * [`team`]: which uplinks of a vSwitch a port uses, when it changes, and how physical switches
//!   learn of it.

pub mod netioc;
pub mod team;
