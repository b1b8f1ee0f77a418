//! Credit: how much payload a receiver has room for (virtio 1.2, 5.10.6.3).

/// A receiver's account of its buffer, as its packets carry it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Credit {
    /// Size of the buffer in bytes.
    pub(crate) buf_alloc: u32,
    /// Bytes taken out of the buffer so far, modulo 2³².
    pub(crate) fwd_cnt: u32,
}

/// Payload delivered to a receiver, against the credit that the receiver gave.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Window {
    /// Payload bytes delivered to the receiver so far, modulo 2³².
    pub(crate) sent: u32,
    /// The receiver's newest credit.
    pub(crate) credit: Credit,
    /// Packets with payload that were delivered and that the receiver, by its credit, has not read.
    pub(crate) unread: u32,
    /// Most payload bytes of one delivered packet.
    pub(crate) largest: u32,
}

impl Window {
    /// Payload bytes that the receiver has room for. A credit that contradicts itself gives none.
    #[inline]
    pub(crate) fn room(&self) -> u32 {
        self.credit.buf_alloc.saturating_sub(self.sent.wrapping_sub(self.credit.fwd_cnt))
    }

    /// Takes up the receiver's new credit.
    #[inline]
    pub(crate) fn on_credit(&mut self, credit: Credit) {
        let before = self.sent.wrapping_sub(self.credit.fwd_cnt);
        let after = self.sent.wrapping_sub(credit.fwd_cnt);
        if after == 0 {
            self.unread = 0;
        } else if after < before {
            self.unread = (u64::from(self.unread) * u64::from(after) / u64::from(before)) as u32;
        }
        self.credit = credit;
    }

    /// Takes up the new credit of a receiver of records. It has read as many packets as its bytes
    /// need at least, and one at least: Linux announces its credit after each record. So
    /// [`Self::unread`] is never too low, except for what another fabric has delivered.
    #[inline]
    pub(crate) fn on_credit_for_records(&mut self, credit: Credit) {
        let before = self.sent.wrapping_sub(self.credit.fwd_cnt);
        let after = self.sent.wrapping_sub(credit.fwd_cnt);
        if after == 0 {
            self.unread = 0;
        } else if after < before {
            let read = (before - after).div_ceil(self.largest.max(1));
            self.unread = self.unread.saturating_sub(read);
        }
        self.credit = credit;
    }

    /// Counts one delivered packet with this much payload.
    #[inline]
    pub(crate) fn on_delivered(&mut self, bytes: u32) {
        self.sent = self.sent.wrapping_add(bytes);
        self.unread = self.unread.saturating_add(u32::from(bytes > 0));
        self.largest = self.largest.max(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_what_is_left_of_the_buffer_and_a_contradictory_credit_gives_none() {
        let mut window = Window::default();
        window.on_credit(Credit { buf_alloc: 100, fwd_cnt: u32::MAX - 9 });
        window.sent = u32::MAX - 9;
        assert_eq!(window.room(), 100);
        window.on_delivered(30);
        assert_eq!((window.room(), window.sent), (70, 20));
        window.on_credit(Credit { buf_alloc: 100, fwd_cnt: 5 });
        assert_eq!(window.room(), 85);
        // More taken than was sent.
        window.on_credit(Credit { buf_alloc: 100, fwd_cnt: 21 });
        assert_eq!(window.room(), 0);
        // A buffer that shrank below what is in it.
        window.on_credit(Credit { buf_alloc: 10, fwd_cnt: 0 });
        assert_eq!(window.room(), 0);
    }

    #[test]
    fn unread_packets_decrease_with_the_bytes_that_the_receiver_takes() {
        let credit = Credit { buf_alloc: 1000, fwd_cnt: 0 };
        let mut window = Window { credit, ..Window::default() };
        (0..10).for_each(|_| window.on_delivered(10));
        window.on_credit(Credit { buf_alloc: 1000, fwd_cnt: 50 });
        assert_eq!(window.unread, 5);
        window.on_credit(Credit { buf_alloc: 1000, fwd_cnt: 100 });
        assert_eq!(window.unread, 0);
    }

    #[test]
    fn unread_records_are_counted_whatever_their_lengths() {
        let mut window = Window { credit: Credit { buf_alloc: 10_000, fwd_cnt: 0 }, ..Window::default() };
        let read = |window: &mut Window, bytes| {
            let fwd_cnt = window.credit.fwd_cnt + bytes;
            window.on_credit_for_records(Credit { fwd_cnt, ..window.credit });
            window.unread
        };
        for bytes in [2000, 1, 1, 1, 2000, 500] {
            window.on_delivered(bytes);
        }
        assert_eq!(read(&mut window, 2000), 5);
        assert_eq!(read(&mut window, 0), 5);
        assert_eq!(read(&mut window, 1), 4);
        // One record in two packets.
        assert_eq!(read(&mut window, 2), 3);
        assert_eq!(read(&mut window, 2500), 0);
    }
}
