//! Handover from one fabric to the next: connections, rings and packets, spills, queue pairs,
//! sockets.

mod in_flight;
mod pairs;
mod record;
mod sockets;
mod spills;
mod stopped_ring;

pub(crate) use self::in_flight::take_up_packets;
pub(crate) use self::pairs::{ChannelRecord, LeftRecord, PairRecord, read_pairs, write_pairs};
pub(crate) use self::record::{ConnectionRecord, Written};
pub(crate) use self::sockets::HandedOver;
pub(crate) use self::spills::{read_spills, write_spills};
pub(crate) use self::stopped_ring::{read_stopped, write_stopped};
