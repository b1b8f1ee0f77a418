//! Tokens: the 64 bits of an epoll event, which name the event's source.

use taut_api::fabric::PortId;

use crate::net::queue::QueueIdx;

/// Another thread wants the worker's attention.
pub const WAKE: u64 = u64::MAX;

/// The token of a port's queue: of a guest's kick, or of a device's descriptor.
pub fn of_queue(port: PortId, queue: QueueIdx) -> u64 {
    u64::from(port.0) << 16 | u64::from(queue.0)
}

/// The port and queue index of a token made by [`of_queue`].
pub fn queue(token: u64) -> (PortId, QueueIdx) {
    (PortId((token >> 16) as u16), QueueIdx(token as u16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip_and_differ_from_the_wake_token() {
        for (port, index) in [(0, 0), (4095, 15), (u16::MAX, 1)] {
            let (port, index) = (PortId(port), QueueIdx(index));
            let token = of_queue(port, index);
            assert_ne!(token, WAKE);
            assert_eq!(queue(token), (port, index));
        }
    }
}
