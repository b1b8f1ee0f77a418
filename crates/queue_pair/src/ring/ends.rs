//! Both ends that one party has in a channel.

use super::consumer::Consumer;
use super::fault::Hostile;
use super::producer::Producer;
use crate::layout::Role;
use crate::memory::{Channel, Copying};

/// The ends that one party has in a channel: it produces in one direction and consumes in the
/// other.
#[derive(Debug)]
pub struct Ends {
    /// Writes the bytes that this party sends.
    pub producer: Producer,
    /// Reads the bytes that this party receives.
    pub consumer: Consumer,
}

impl Ends {
    /// The ends of a channel whose words are zero.
    pub fn new(channel: &Channel, role: Role, copying: Copying) -> Self {
        Self {
            producer: Producer::new(channel.clone(), role.produces(), copying),
            consumer: Consumer::new(channel.clone(), role.consumes(), copying),
        }
    }

    /// Continues where another process has stopped, which the words of the channel tell.
    pub fn resume(channel: &Channel, role: Role, copying: Copying) -> Result<Self, Hostile> {
        Ok(Self {
            producer: Producer::resume(channel.clone(), role.produces(), copying)?,
            consumer: Consumer::resume(channel.clone(), role.consumes(), copying)?,
        })
    }
}
