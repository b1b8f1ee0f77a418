//! How a worker is woken: its mailbox and epoll set, its timers, and the tokens of its events.

pub mod mailbox;
pub mod timers;
pub mod token;
