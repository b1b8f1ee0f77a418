//! What a stack of VMCI sockets needs of its device.

use taut_virtq::socket_header::SocketHeader;

/// Copies the next bytes of a packet's payload, as many as the slice takes.
pub(super) type Payload<'a> = dyn FnMut(&mut [u8]) + 'a;

/// Two queues with a device behind them.
pub(super) trait Wire {
    /// Sends a packet; false, and nothing done, when there is no room.
    fn send(&mut self, header: &SocketHeader, payload: &[u8]) -> bool;
    /// The same with as many bytes of payload as the header says, whatever lies where they would be written.
    fn send_anything(&mut self, header: &SocketHeader) -> bool;
    /// Takes one packet, whose payload has as many bytes as its header says; false when there is none.
    fn receive(&mut self, take: &mut dyn FnMut(&SocketHeader, &mut Payload<'_>)) -> bool;
}
