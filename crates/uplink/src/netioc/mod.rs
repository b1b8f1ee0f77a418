//! Network I/O control (ESX: `NetIOC`): shares, limits and reservations of classes of traffic, and
//! of ports within a class, on one uplink.
//!
//! The rules are those of hClock (Billaud and Gulati, EuroSys 2013), a hierarchical mClock, with
//! two levels: classes, and the ports of each class.
//!
//! 1. A port or class that has received less than its *reservation* is served first, the longest
//!    waiting one at the head.
//! 2. What is left is divided by *shares*: first between the classes that have something to send,
//!    then between the ports of the class. What a reservation has served does not count as a share
//!    (ESX: `NetSchedSpareBasedShares` = 1).
//! 3. A port or class that has reached its *limit* waits.
//!
//! A port is not sent to: the [`Scheduler`] names the port whose turn it is and how many bytes it
//! may take from that port ([`Turn`]). So a guest's own ring is its queue, and a decision serves a
//! burst of frames. An uplink is handed at most [`AHEAD`] of its own time of transmission; without
//! that bound, the queue of the card would decide.
//!
//! From the bottom up: `rules` has what an administrator sets, `tag` has points in time, `calendar`
//! finds the first of many, `node` is a class or port, `scheduler` has the rules above, and `turns`
//! answers ports that ask whether they may send. `wire` counts the bytes of a frame on the wire,
//! and `admission` says which reservations an uplink can keep.

mod admission;
mod calendar;
mod node;
mod rules;
mod scheduler;
mod tag;
#[cfg(test)]
mod tests;
mod turns;
mod wire;

pub use admission::{RESERVABLE_PERCENT, TooMuch, admit};
pub use node::Port;
pub use rules::{Class, Rate, Rules, Shares};
pub use scheduler::{AHEAD, Next, Reason, Scheduler, TURN_BYTES, Turn};
pub use turns::Turns;
pub use wire::wire_bytes;
