//! What an event belongs to, packed into the 64 bits that epoll carries.

use taut_api::fabric::PortId;

/// Somebody wants the worker's attention.
pub const WAKE: u64 = u64::MAX;

/// A queue of a port: its kick, or for a device its descriptor.
pub fn of_queue(port: PortId, queue: usize) -> u64 {
    u64::from(port.0) << 16 | queue as u64
}

/// The port and queue index of a token made by [`of_queue`].
pub fn queue(token: u64) -> (PortId, usize) {
    (PortId((token >> 16) as u16), (token & 0xffff) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip_and_never_collide_with_the_waker() {
        for (port, index) in [(0, 0), (4095, 15), (u16::MAX, 1)] {
            let token = of_queue(PortId(port), index);
            assert_ne!(token, WAKE);
            assert_eq!(queue(token), (PortId(port), index));
        }
    }
}
