//! The protocol of vsock connections as a pure state machine: packets in, actions out.
//!
//! The code here knows no rings, descriptors, sockets or locks, reads no clock, and does no I/O.
//! The caller hands in packets ([`Connection::on_packet`]) and the time, carries out the returned
//! [`Actions`], and reports what it has delivered. Unit tests drive a connection with packets
//! alone.
//!
//! A side of a connection indexes what that side *sends*: `flows[side]` is the flow from `side`.
//! The credit against which it sends comes from its receiver, so `flows[sender].window` holds the
//! credit of the other side.
//!
//! * [`ids`]: typed indices, and the two sides of a connection.
//! * [`connection`], [`flow`]: the state of a connection and of its two directions.
//! * [`credit`]: how much a receiver has room for; [`promise`]: how much of it the sender is told.
//! * [`on_packet`], [`lifetime`]: the state machine's steps; [`actions`]: their results.
//! * [`one_way`]: how much goes one way, without an answer; [`exchanges`]: whether the sides take
//!   turns; [`signal_pace`]: which signals of a stream by rings are held back.
//! * [`packet_queue`]: the order of packets that wait for their receiver; [`spill`]: payload that
//!   was copied out of its sender's ring; [`pending_control`]: the packets without payload that are
//!   still to be sent.
//! * [`table`]: all connections; [`policy`] and [`limits`]: which connections may exist.

mod actions;
mod connection;
mod credit;
mod exchanges;
mod flow;
mod ids;
mod lifetime;
mod limits;
mod on_packet;
mod one_way;
mod packet_queue;
mod pending_control;
mod policy;
mod promise;
mod signal_pace;
mod socket_type;
mod spill;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use actions::{Actions, Rare, Sides};
pub(crate) use connection::{Address, Connection, End, Next, Party, State};
pub(crate) use credit::{Credit, Window};
pub(crate) use exchanges::Exchanges;
pub(crate) use flow::{Flow, Source};
pub(crate) use ids::{BySide, ChannelIdx, ConnId, FlowId, GuestIdx, PerGuest, Side};
pub(crate) use limits::{HALF_OPEN_TIMEOUT, MAX_REPLIES, MAX_WAITING_PACKETS, Usage};
pub(crate) use on_packet::Verdict;
pub(crate) use one_way::OneWay;
pub(crate) use packet_queue::{PacketQueue, PacketSlots};
pub(crate) use pending_control::PendingControl;
pub(crate) use policy::may_talk;
pub(crate) use promise::{Pledged, Promise};
pub(crate) use socket_type::SocketType;
pub(crate) use spill::{Front, MAX_EMPTY, Spill};
pub(crate) use table::ConnectionTable;
