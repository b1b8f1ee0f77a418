//! Handover from one fabric to the next: connections, rings and packets, sockets.

mod in_flight;
mod record;
mod sockets;
mod stopped_ring;

pub(crate) use self::in_flight::take_up_packets;
pub(crate) use self::record::{ConnectionRecord, Written};
pub(crate) use self::sockets::HandedOver;
pub(crate) use self::stopped_ring::{read_stopped, write_stopped};
