//! The data plane: ports, the switch, vsock devices and the threads that serve them.
//!
//! `taut-fabric` is one process for all guests of a host. It opens no file, device or socket:
//! `tautd` sends descriptors and the whole desired state over one connection ([`control`]; the
//! messages are [`taut_api::fabric`]). The process parses bytes that guests write, so it runs in a
//! sandbox ([`sys::sandbox`]).
//!
//! ```text
//!  tautd ── control ──┬── vhost_user: a front end's session  ─┐ puts queue ends
//!                     └── Switch: ports and their segments    │ into
//!                                    │ read by                ▼
//!                                 worker ──── burst ──────► port: vnic · tap · stream
//! ```
//!
//! The folders are layers. Each imports only from folders above it in this list:
//!
//! * [`sys`]: epoll, locks, CPU affinity, counters, inherited descriptors, the sandbox.
//! * [`net`]: Ethernet, VLAN tags, checksums, segmentation in software, flow hashes, group
//!   membership.
//! * [`wake`]: mailboxes, timers and event tokens of workers.
//! * [`vhost_user`]: sessions with front ends, resumable from a record.
//! * [`moderation`]: when guests are interrupted, and when they may kick.
//! * [`shaping`]: token buckets and the queue of a shaped port.
//! * [`lro`]: merging of TCP segments for guests that accept merged frames.
//! * [`snooping`]: the ports that take the frames of each multicast group.
//! * [`port`]: sources and destinations of frames, and the locks that protect their queues.
//! * [`switch`]: segments, addresses, security policy; [`switch::forward`] is the path of a frame.
//! * [`worker`]: the threads that move frames.
//! * [`vsock`]: sockets between guests, and between guests and the host.
//! * [`control`]: the thread that serves `tautd` and the front ends.

pub mod control;
pub mod lro;
pub mod moderation;
pub mod net;
pub mod port;
pub mod shaping;
pub mod snooping;
pub mod switch;
pub mod sys;
pub mod vhost_user;
pub mod vsock;
pub mod wake;
pub mod worker;
