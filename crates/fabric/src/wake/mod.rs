//! Waking of workers: mailboxes and epoll sets, timers, and the tokens of events.

pub mod mailbox;
pub mod timers;
pub mod token;
