//! What an end keeps privately, for processes that use an end in turns.

/// The private numbers of an end. Processes that share an end keep them in memory that only they
/// have, and hold a lock from [`Consumer::go_on`](super::Consumer::go_on) or
/// [`Producer::go_on`](super::Producer::go_on) until they have stored them again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Private {
    /// Own position: bytes taken or written, modulo 2^32.
    pub position: u32,
    /// Position that the other side has been told.
    pub published: u32,
    /// Number of the own wait.
    pub waiter: u32,
    /// Number of the other side's wait at the last look.
    pub seen: u32,
}
