//! Packets that wait in their sender's ring, in the order in which they came: a list through one place a descriptor, so that no
//! packet takes memory of its own.

/// No descriptor.
const NONE: u16 = u16::MAX;

/// A packet with payload that its sender has not got back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    /// Payload bytes.
    pub(super) len: u32,
    /// Flags of its header.
    pub(super) flags: u32,
    next: u16,
}

/// Every packet of one ring that waits, by its descriptor.
#[derive(Debug, Default)]
pub(super) struct Places(Vec<Waiting>);

impl Places {
    /// For a ring of so many entries; those that wait keep their places.
    pub(super) fn provide(&mut self, size: u16) {
        let size = usize::from(size);
        if self.0.len() < size {
            self.0.resize(size, Waiting { len: 0, flags: 0, next: NONE });
        }
    }

    pub(super) fn get(&self, head: u16) -> Waiting {
        self.0[usize::from(head)]
    }
}

/// One flow's packets, the oldest first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packets {
    first: u16,
    last: u16,
    /// How many.
    pub(super) count: u16,
    /// Their payload bytes.
    pub(super) bytes: u64,
}

impl Default for Packets {
    fn default() -> Self {
        Self { first: NONE, last: NONE, count: 0, bytes: 0 }
    }
}

impl Packets {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The oldest.
    pub(super) fn first(&self) -> Option<u16> {
        (self.first != NONE).then_some(self.first)
    }

    pub(super) fn push(&mut self, places: &mut Places, head: u16, len: u32, flags: u32) {
        places.0[usize::from(head)] = Waiting { len, flags, next: NONE };
        if self.first == NONE {
            self.first = head;
        } else {
            places.0[usize::from(self.last)].next = head;
        }
        self.last = head;
        self.count += 1;
        self.bytes += u64::from(len);
    }

    /// Takes the oldest out.
    pub(super) fn pop(&mut self, places: &Places) -> Option<u16> {
        let head = self.first()?;
        let packet = places.get(head);
        self.first = packet.next;
        if self.first == NONE {
            self.last = NONE;
        }
        self.count -= 1;
        self.bytes -= u64::from(packet.len);
        Some(head)
    }

    /// All of them, the oldest first.
    pub(super) fn iter(self, places: &Places) -> impl Iterator<Item = (u16, Waiting)> {
        let mut next = self.first;
        std::iter::from_fn(move || {
            let head = Some(next).filter(|&next| next != NONE)?;
            let packet = places.get(head);
            next = packet.next;
            Some((head, packet))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_lists_in_one_ring_keep_their_order() {
        let mut places = Places::default();
        places.provide(8);
        let (mut a, mut b) = (Packets::default(), Packets::default());
        a.push(&mut places, 3, 10, 0);
        b.push(&mut places, 0, 20, 1);
        a.push(&mut places, 7, 30, 2);
        b.push(&mut places, 1, 5, 0);
        assert_eq!(a.iter(&places).map(|(head, _)| head).collect::<Vec<_>>(), [3, 7]);
        assert_eq!((a.bytes, a.count, b.bytes), (40, 2, 25));
        assert_eq!((a.pop(&places), a.pop(&places), a.pop(&places)), (Some(3), Some(7), None));
        a.push(&mut places, 3, 1, 0);
        assert_eq!((a.first(), b.first(), a.bytes), (Some(3), Some(0), 1));
        assert!(!b.is_empty());
    }
}
