//! What a guest's words say that cannot be.

use taut_queue_pair::Direction;
use taut_queue_pair::ring::Hostile;
use thiserror::Error;

use crate::vsock::proto::Side;

/// The words of a channel contradict the protocol, or themselves at an earlier time. The connection
/// is reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum PairFault {
    /// The words contradict the protocol.
    #[error(transparent)]
    Words(#[from] Hostile),
    /// The guest has taken back bytes of its ring, or room in it.
    #[error("the guest's position in the ring {0} went back")]
    WentBack(Direction),
    /// The program says that it cannot believe the words of its channel.
    #[error("its program gives up: it says that words of the channel were overwritten")]
    GivenUp,
}

impl PairFault {
    /// The side of a flow from `from` whose words these are: bytes leave the sender's ring OUT and
    /// enter the receiver's ring IN.
    pub(crate) fn side(self, from: Side) -> Side {
        let direction = match self {
            Self::Words(fault) => fault.direction(),
            Self::WentBack(direction) => direction,
            // Told by the program, and found in no flow.
            Self::GivenUp => Direction::Out,
        };
        match direction {
            Direction::Out => from,
            Direction::In => from.other(),
        }
    }
}
