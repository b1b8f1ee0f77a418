//! The data plane: ports, switch, workers.
//!
//! `taut-fabric` is one process for all guests of a host. It opens nothing: `tautd` gives it descriptors and the whole
//! wanted state over one connection ([`control`]; the messages are [`taut_api::fabric`]). It parses what guests write, and
//! therefore lives in a box ([`sandbox`]).
//!
//! ```text
//!  tautd ── control ──┬── vhost_user: a front end's session  ─┐ puts ends
//!                     └── Switch: who is on which segment     │ into
//!                                    │ taken up by            ▼
//!                                 worker ──── burst ──────► port: vnic · tap · stream
//! ```
//!
//! * [`moderation`]: when guests are interrupted, and when they may kick.
//! * [`port`]: where frames come from and go to, and the locks that say who may touch what.
//! * [`switch`]: segments, addresses, security policy, software offloads; the path of a frame is [`switch::forward`].
//! * [`lro`]: segments merged for guests that take them merged.
//! * [`worker`]: the threads that move frames.
//! * [`vmci`]: sockets between guests, and to the host.
//! * [`vhost_user`]: sessions with front ends, resumable from a record.

pub mod control;
pub mod counters;
pub mod epoll;
pub mod inherited;
pub mod lro;
pub mod moderation;
mod place;
pub mod port;
pub mod sandbox;
pub mod shaping;
pub mod switch;
pub mod vhost_user;
pub mod vmci;
pub mod worker;
