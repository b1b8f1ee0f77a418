//! The interface between the vsock stack and its device.

use taut_virtq::socket_header::SocketHeader;

/// Copies the next bytes of a packet's payload, as many as the slice has.
pub(super) type Payload<'a> = dyn FnMut(&mut [u8]) + 'a;

/// Two queues with a device behind them.
pub(super) trait Wire {
    /// Sends a packet. Returns false and does nothing if there is no room.
    fn send(&mut self, header: &SocketHeader, payload: &[u8]) -> bool;
    /// Like [`Self::send`] with as many bytes of payload as the header states, whatever the buffers
    /// contain.
    fn send_anything(&mut self, header: &SocketHeader) -> bool;
    /// Receives one packet, whose payload has as many bytes as its header states. Returns false if
    /// there is none.
    fn receive(&mut self, take: &mut dyn FnMut(&SocketHeader, &mut Payload<'_>)) -> bool;
}
