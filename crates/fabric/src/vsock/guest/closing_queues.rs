//! The queues of descriptors that came over a guest's sockets on the host and are to be closed.
//!
//! Each socket has a queue of its own, so that a program whose descriptors do not close takes
//! nothing from the programs at the guest's other sockets.

use std::collections::HashMap;

use taut_api::fabric::{ClosingQueue, PortId};

/// Most programs of a guest that have a queue of their own. Each may block a thread.
const MAX_PROGRAMS: usize = 4;

/// The queues of one guest.
#[derive(Debug)]
pub(crate) struct ClosingQueues {
    /// Clients that connect to the guest, and their listening socket.
    clients: ClosingQueue,
    /// Programs that the guest has connected to, by their ports.
    programs: HashMap<u32, ClosingQueue>,
    /// All other programs.
    others: ClosingQueue,
}

impl ClosingQueues {
    /// Makes the queues of the guest at a device.
    pub(crate) fn new(device: PortId) -> Self {
        let clients = ClosingQueue::new(device);
        Self { others: clients.beside(), clients, programs: HashMap::new() }
    }

    /// The queue of the clients that connect to the guest.
    pub(crate) fn of_clients(&self) -> &ClosingQueue {
        &self.clients
    }

    /// The queue of programs that have none of their own.
    pub(crate) fn of_others(&self) -> &ClosingQueue {
        &self.others
    }

    /// The queue of the program that listens for the guest at a port.
    pub(crate) fn of_program(&mut self, port: u32) -> &ClosingQueue {
        if !self.programs.contains_key(&port) && self.programs.len() >= MAX_PROGRAMS {
            self.programs.retain(|_, queue| queue.is_used());
        }
        if self.programs.len() < MAX_PROGRAMS {
            self.programs.entry(port).or_insert_with(|| self.clients.beside());
        }
        self.programs.get(&port).unwrap_or(self.of_others())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use taut_api::fabric::ForeignFd;

    use super::*;

    fn connect(queues: &mut ClosingQueues, port: u32) -> ForeignFd {
        ForeignFd::new(UnixStream::pair().unwrap().0.into(), queues.of_program(port))
    }

    #[test]
    fn a_program_has_the_queue_of_another_one_only_if_there_are_many() {
        let mut queues = ClosingQueues::new(PortId(1));
        let own: Vec<_> = (0..MAX_PROGRAMS as u32).map(|port| connect(&mut queues, port)).collect();
        for _ in 0..100 {
            let _others: Vec<_> = (1000..1100).map(|port| connect(&mut queues, port)).collect();
            assert_eq!(queues.programs.len(), MAX_PROGRAMS);
        }
        assert!((0..MAX_PROGRAMS as u32).all(|port| queues.programs.contains_key(&port)));
        drop(own);
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while queues.programs.values().any(ClosingQueue::is_used) {
            assert!(std::time::Instant::now() < end, "the sockets are closed");
            std::thread::yield_now();
        }
        let _next = connect(&mut queues, 2000);
        assert_eq!(queues.programs.keys().collect::<Vec<_>>(), [&2000]);
    }
}
