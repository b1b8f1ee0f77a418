//! A program in a guest that has attached its end of a connection to a channel.

use taut_queue_pair::memory::Copying;
use taut_queue_pair::message::ANSWER_LEN;
use taut_queue_pair::{AttachAnswer, AttachRequest, Channel, Ends, Role, SERVICE_PORT, Status};
use taut_virtq::socket_header::*;

use super::super::rig::*;
use super::peers::Kernel;

/// The port from which the program of an end opens its control connection: another one for each.
fn control_port(own: Own) -> u32 {
    own.port.wrapping_add(own.peer.1.wrapping_mul(1000)).wrapping_add(own.peer.0 << 28) | 1 << 31
}

/// Takes the packets of one connection that have arrived at its guest.
pub(in crate::vsock::tests) fn take_for(rig: &mut Rig, own: Own) -> Vec<(SocketHeader, Vec<u8>)> {
    let inbox = std::mem::take(&mut rig.drivers[own.guest].inbox);
    let is_for = |header: &SocketHeader| {
        (header.dst_port, header.src_cid, header.src_port) == (own.port, own.peer.0.into(), own.peer.1)
    };
    let (ours, others) = inbox.into_iter().partition(|(header, _)| is_for(header));
    rig.drivers[own.guest].inbox = others;
    let ours: std::collections::VecDeque<_> = ours;
    ours.into()
}

/// The operations of one connection that have arrived at its guest, without news of credit.
pub(in crate::vsock::tests) fn ops_for(rig: &mut Rig, own: Own) -> Vec<u16> {
    let ops = take_for(rig, own).into_iter().map(|(header, _)| header.op);
    ops.filter(|&op| op != CREDIT_UPDATE && op != CREDIT_REQUEST).collect()
}

/// A control connection from a port of a guest.
pub(in crate::vsock::tests) fn control_from(guest: usize, port: u32) -> Own {
    Own { guest, port, peer: (2, SERVICE_PORT), taken: 0 }
}

/// Opens a control connection. Returns `None` if it is refused.
pub(in crate::vsock::tests) fn open_control(rig: &mut Rig, guest: usize, port: u32) -> Option<Own> {
    let own = control_from(guest, port);
    rig.send_control(own, REQUEST, 0);
    rig.settle();
    match ops_for(rig, own)[..] {
        [RESPONSE] => Some(own),
        [RST] => None,
        ref ops => panic!("{ops:?}"),
    }
}

/// The request to attach an end.
pub(in crate::vsock::tests) fn request_for(own: Own) -> AttachRequest {
    AttachRequest { own_port: own.port, peer_cid: own.peer.0, peer_port: own.peer.1 }
}

/// Asks on a control connection for a channel, and returns the answer.
pub(in crate::vsock::tests) fn ask(rig: &mut Rig, control: &mut Own, request: AttachRequest) -> AttachAnswer {
    rig.write(*control, &request.to_bytes());
    rig.settle();
    let mut bytes = Vec::new();
    for (header, payload) in take_for(rig, *control) {
        if header.op == RW {
            bytes.extend(payload);
        }
    }
    control.taken += bytes.len() as u32;
    AttachAnswer::from_bytes(&bytes[..ANSWER_LEN].try_into().unwrap()).unwrap()
}

/// A program whose end is attached.
pub(in crate::vsock::tests) struct Program {
    /// Its end of the connection.
    pub(in crate::vsock::tests) own: Own,
    pub(in crate::vsock::tests) control: Own,
    pub(in crate::vsock::tests) answer: AttachAnswer,
    pub(in crate::vsock::tests) ends: Ends,
    /// Bells that it has rung.
    pub(in crate::vsock::tests) bells: usize,
    /// Signals that it has received.
    pub(in crate::vsock::tests) signals: usize,
    /// The guest's kernel, which goes on with packets once the program leaves the channel.
    pub(super) kernel: Option<Kernel>,
}

impl Program {
    /// Attaches an end, by a control connection from a port of its own.
    pub(in crate::vsock::tests) fn attach(rig: &mut Rig, own: Own) -> Self {
        Self::try_attach(rig, own).unwrap()
    }

    /// Attaches an end, or returns why that is refused.
    pub(in crate::vsock::tests) fn try_attach(rig: &mut Rig, own: Own) -> Result<Self, Status> {
        // The reset of a former control connection from the same port.
        rig.settle();
        take_for(rig, control_from(own.guest, control_port(own)));
        let mut control = open_control(rig, own.guest, control_port(own)).unwrap();
        let answer = ask(rig, &mut control, request_for(own));
        if answer.status != Status::Attached {
            return Err(answer.status);
        }
        let channel = rig.region(own.guest).channel(answer.channel).unwrap();
        let ends = Ends::new(&channel, Role::Guest, Copying::Words);
        Ok(Self { own, control, answer, ends, bells: 0, signals: 0, kernel: None })
    }

    pub(in crate::vsock::tests) fn channel(&self) -> &Channel {
        self.ends.consumer.channel()
    }

    /// Asks the fabric to look at the channel.
    pub(in crate::vsock::tests) fn bell(&mut self, rig: &mut Rig) {
        rig.write(self.control, b"b");
        self.bells += 1;
    }

    /// Writes as much as there is room for, and rings the bell if the fabric waits. Returns the
    /// number of bytes.
    pub(in crate::vsock::tests) fn write(&mut self, rig: &mut Rig, bytes: &[u8]) -> usize {
        let written = self.ends.producer.write(bytes).unwrap();
        self.ends.producer.publish();
        if written > 0 && self.ends.producer.must_signal() {
            self.bell(rig);
        }
        written
    }

    /// Reads at most `most` bytes, and rings the bell if the fabric waits for their room.
    pub(in crate::vsock::tests) fn read(&mut self, rig: &mut Rig, most: usize) -> Vec<u8> {
        let mut bytes = vec![0; most];
        let got = self.ends.consumer.read(&mut bytes).unwrap();
        bytes.truncate(got);
        if self.ends.consumer.publish() && self.ends.consumer.must_signal() {
            self.bell(rig);
        }
        bytes
    }

    /// Takes the signals that have arrived. Returns how many.
    pub(in crate::vsock::tests) fn take_signals(&mut self, rig: &mut Rig) -> usize {
        let mut count = 0;
        for (header, bytes) in take_for(rig, self.control) {
            match header.op {
                RW => count += bytes.len(),
                CREDIT_UPDATE => {}
                CREDIT_REQUEST => rig.send_control(self.control, CREDIT_UPDATE, 0),
                op => panic!("operation {op} on the control connection"),
            }
        }
        self.control.taken += count as u32;
        self.signals += count;
        count
    }

    /// Closes the control connection.
    pub(in crate::vsock::tests) fn close_control(&self, rig: &mut Rig) {
        rig.send_control(self.control, SHUTDOWN, SHUTDOWN_RCV | SHUTDOWN_SEND);
    }

    /// Closes the end of the connection, as a guest does when its program closes the socket.
    pub(in crate::vsock::tests) fn close(&self, rig: &mut Rig) {
        rig.send_control(self.own, SHUTDOWN, SHUTDOWN_RCV | SHUTDOWN_SEND);
    }
}
