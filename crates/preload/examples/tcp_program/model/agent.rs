//! The end that does what the driver says.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::fd::AsRawFd as _;

use super::driver::Control;
use super::end::End;
use super::operation::Operation;
use crate::calls::poll;

/// The end that does what the driver says.
pub(super) struct Agent {
    listeners: [TcpListener; 2],
    ends: Vec<End>,
}

impl Agent {
    /// Makes an agent with a listener for each connection.
    pub(super) fn new(listeners: [TcpListener; 2]) -> Self {
        // From its first look on, the library accepts connections for a listener.
        for listener in &listeners {
            assert_eq!(poll(listener.as_raw_fd(), libc::POLLIN, 0), 0);
        }
        Self { listeners, ends: Vec::new() }
    }

    /// Serves a driver until it has gone. A line is `new`, or the number of a connection and an
    /// operation, and each gets a line as answer.
    pub(super) fn serve(&mut self, mut control: BufReader<impl Control>) {
        let mut line = String::new();
        while control.read_line(&mut line).is_ok_and(|count| count > 0) {
            let answer = self.answer(line.trim());
            if control.get_ref().say(&answer).is_err() {
                return;
            }
            line.clear();
        }
    }

    fn answer(&mut self, line: &str) -> String {
        if line == "new" {
            let accepted = self.listeners.iter().map(|listener| listener.accept().unwrap().0);
            self.ends = accepted.map(|stream| End::new(stream, 1)).collect();
            return "new".to_owned();
        }
        let (which, operation) = line.split_once(' ').unwrap();
        let (which, operation): (usize, Operation) = (which.parse().unwrap(), operation.parse().unwrap());
        self.ends[which].execute(operation)
    }
}
