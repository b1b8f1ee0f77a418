//! Bytes of a program on the host, on their way to a guest.

use taut_virtq::device::socket::Piece;
use taut_virtq::fault::RingFault;
use taut_virtq::socket_header::SocketHeader;

use super::path::Turn;
use crate::vsock::host::{HostRead, HostSockets, MAX_MOVED};
use crate::vsock::proto::{OneWay, State};
use crate::vsock::sched::{Allowance, LARGE, Served};

impl Turn<'_> {
    /// Reads as much as the guest has room for, and hands it over as one packet. Few bytes wait for
    /// more of them if the guest has many packets unread, as those of guests do.
    pub(super) fn deliver_host_bytes(&mut self, header: SocketHeader) -> Result<Served, RingFault> {
        let host_side = self.from;
        let is_open = self.connection.state == State::Open;
        let flow = &mut self.connection.flows[host_side];
        let HostSockets { streams, buffer, .. } = &mut *self.host;
        let Some(stream) = streams.get_mut(self.id) else { return Ok(Served::Idle) };
        if !is_open || flow.ended || !stream.readable || !stream.is_attached() {
            return Ok(Served::Idle);
        }
        let receiver = &mut self.guests.receivers[self.guest];
        let Some(ring) = &mut receiver.ring else { return Ok(Served::Full) };
        let Some(room) = ring.queue.room()? else { return Ok(Served::Full) };
        let most = room.min(flow.window.room()).min(self.sched.turns.most_bytes(self.guest));
        if most == 0 {
            return Ok(Served::Idle);
        }
        buffer.resize(MAX_MOVED, 0);
        let waiting =
            if Allowance::gathers(flow) { stream.peek(&mut buffer[..LARGE as usize]) } else { None };
        let most = match waiting.map(|waiting| Allowance::of_stream(flow, waiting as u64, most, self.now)) {
            Some(Allowance::Hold(until)) => return self.hold(header, until),
            Some(Allowance::Bytes(most)) => most,
            Some(Allowance::NoCredit) | None => most,
        };
        match stream.read(&mut buffer[..most as usize]) {
            HostRead::Bytes(got) => {
                flow.held_since = None;
                flow.window.on_delivered(got as u32);
                self.connection.flows[host_side.other()].one_way = OneWay::default();
                let payload = std::iter::once(Piece::Bytes(&buffer[..got]));
                if receiver.deliver(header, payload)? {
                    self.count_delivered(got as u32);
                }
            }
            HostRead::End => self.connection.on_host_end(host_side, &mut self.actions),
            HostRead::Broken => {
                flow.cut = true;
                self.connection.reset(Some(host_side), &mut self.actions);
            }
            HostRead::Again => {}
            HostRead::Nothing => return Ok(Served::Idle),
        }
        Ok(Served::More)
    }
}
