//! Requests and answers: whether the sides of a connection take turns. Then the fabric waits for a
//! bell instead of looking at their rings (`engine/looks.rs`).

use super::Side;

/// Turns in a row after which the sides are taken to go on like this.
const ENOUGH: u8 = 4;
/// Most moves of payload that make up a request or an answer. More of them are a stream.
const MAX_MOVES: u8 = 4;

/// The last turns of a connection's sides.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Exchanges {
    /// The side whose payload was moved last.
    last: Option<Side>,
    /// Number of its moves in a row.
    moves: u8,
    /// Number of turns of both sides in a row.
    turns: u8,
}

impl Exchanges {
    /// Records that payload of a side was moved.
    #[inline]
    pub(crate) fn on_moved(&mut self, side: Side) {
        if self.last == Some(side) {
            self.moves = self.moves.saturating_add(1);
            if self.moves > MAX_MOVES {
                self.turns = 0;
            }
        } else {
            (self.last, self.moves, self.turns) = (Some(side), 1, self.turns.saturating_add(1));
        }
    }

    /// Records that a side has sent more without an answer.
    pub(crate) fn on_more(&mut self) {
        self.turns = 0;
    }

    /// Tells whether a side sends more than a request or an answer, without anything from the
    /// other one.
    #[inline]
    pub(crate) fn is_stream_of(self, side: Side) -> bool {
        self.last == Some(side) && self.moves > MAX_MOVES
    }

    /// Tells whether a side that has just sent something is likely to send nothing more before it
    /// gets an answer.
    #[inline]
    pub(crate) fn take_turns(self) -> bool {
        self.turns >= ENOUGH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_take_turns_until_one_sends_more() {
        let mut exchanges = Exchanges::default();
        for round in 0..6 {
            assert_eq!(exchanges.take_turns(), round >= 2, "{round}");
            // A request in two writes.
            exchanges.on_moved(Side::Requester);
            exchanges.on_moved(Side::Requester);
            exchanges.on_moved(Side::Responder);
        }
        for _ in 0..=MAX_MOVES {
            assert!(exchanges.take_turns() && !exchanges.is_stream_of(Side::Requester));
            exchanges.on_moved(Side::Requester);
        }
        assert!(!exchanges.take_turns());
        assert_eq!(Side::BOTH.map(|side| exchanges.is_stream_of(side)), [true, false]);
        (0..100).for_each(|_| exchanges.on_moved(Side::Responder));
        assert!(!exchanges.take_turns());
    }
}
