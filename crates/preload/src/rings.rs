//! Moves the bytes of connections through queue pairs: rings in memory that programs of a guest
//! share with its host (records 0041, 0042 and 0047 in `docs/adr/`).
//!
//! A connection that this library has made or accepted gets a channel at its first data call. If
//! the host grants none, the kernel moves its bytes by packets, as always. From then on each data
//! call looks at the rings first. A connection goes back to packets for good before anything else
//! may use its socket ([`leave`]).
//!
//! - `settings`: whether there are queue pairs, found once when the library is loaded.
//! - `service`, `attach`, `leave`: how a connection gets a channel, and gives it up.
//! - `record`, `words`: what is known of a channel, in memory that forked processes share, and its
//!   locks.
//! - `mode`: whether calls wait, without asking the kernel. `inherited`, `vfork`: when the kernel
//!   must be asked what file a descriptor is, in a forked child and beside a child of vfork.
//! - `control`: what is sent and received besides bytes. `input`, `output`: the two rings, without
//!   waiting. `plain`: calls that the rings serve at once.
//! - `wait`: how threads wait for a ring and wake each other. `calls`: calls that may wait.
//! - `events`, `polls`, `selects`: what `poll` and `select` see.
//! - `watch`, `reports`, `epolls`: the watches of epoll instances, what of them is to be reported,
//!   and `epoll_wait`. `nested`: instances that are watched themselves.

mod attach;
mod calls;
mod control;
mod epolls;
mod events;
mod inherited;
mod input;
mod leave;
mod mode;
mod nested;
mod output;
mod plain;
mod polls;
mod record;
mod reports;
mod selects;
mod service;
mod settings;
mod vfork;
mod wait;
mod watch;
mod words;

pub(crate) use attach::{begin, is_attached};
pub(crate) use calls::{Target, receive, send};
pub(crate) use epolls::Watching;
pub(crate) use leave::{duplicated, leave, leave_if, pending_error, shut_down, unread, unsent};
pub(crate) use mode::mode_changed;
pub(crate) use nested::{has_instance, watched as instances_watched};
pub(crate) use plain::{receive_plainly, send_plainly};
pub(crate) use polls::Polling;
pub(crate) use selects::{Selecting, select_plainly, selected};
pub(crate) use settings::{concerns, is_on, load};
pub(crate) use vfork::{closing, goes_on, is_over};
pub(crate) use watch::{control as epoll_control, is_watched_here};
