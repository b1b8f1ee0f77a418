//! Rules of uplinks (rows VN-3 and VN-5 of the specification).
//!
//! The rules open, read and send nothing, and read no clock: callers pass what they saw and the
//! time at which they saw it, in ns since any fixed point in time. So every rule is tested in
//! virtual time.
//!
//! * [`netioc`]: network I/O control. Which port may send next to an uplink, and how much.
//! * [`team`]: which uplinks of a vSwitch a port uses, when it changes, and how physical switches
//!   learn of it.

pub mod netioc;
pub mod team;
