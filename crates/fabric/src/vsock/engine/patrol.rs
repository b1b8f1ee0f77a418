//! Patrols: the fabric looks at each attached end now and then, although no bell has come.
//!
//! Any program of a guest that may map the region can write into it. If such a program overwrites a
//! number by which one side announces a wait, the other side sends no bell or no signal, and both
//! wait for ever. If it overwrites a position, one side waits for bytes, or for room, that the
//! other one has shown already. Patrols end such waits, but for the cases that
//! decision 0057 names:
//!
//! * a word of the fabric that has another value than the fabric has written resets the connection,
//!   as impossible words of the program do;
//! * bytes, or room, for which the program has sent no bell are found as if it had;
//! * a program gets a signal if a position of one of its rings stands still, unless it has
//!   announced that it waits and there is nothing for it to find. The program checks its own words
//!   then, and looks at its rings.
//!
//! [`Patrols`] has the times.

use super::VsockSwitch;
use crate::vsock::proto::{ChannelIdx, GuestIdx};
use crate::vsock::queue_pair::Missed;
use crate::vsock::sched::Patrols;

impl VsockSwitch {
    /// Patrols some ends, if that is due.
    pub(super) fn patrol(&mut self) {
        if !self.sched.patrols.is_due(self.now) {
            return;
        }
        for (guest, channel) in self.pairs.next_to_patrol(Patrols::MOST_ENDS, Patrols::PERIOD, self.now) {
            self.patrol_end(guest, channel);
        }
        self.sched.patrols.done(self.pairs.attached() > 0, self.now);
    }

    /// Looks at an end, if both a connection and a program have it.
    fn patrol_end(&mut self, guest: GuestIdx, channel: ChannelIdx) {
        let Some(end) = self.pairs.region_mut(guest).and_then(|region| region.end_mut(channel)) else {
            return;
        };
        let (Some(of), Some(control)) = (end.of, end.control) else { return };
        match end.patrol() {
            Ok(Missed { bell, signal }) => {
                if signal {
                    self.pairs.signal(Some(control));
                }
                if bell {
                    self.on_bell(guest, channel);
                }
            }
            Err(fault) => self.fail_end(guest, of, fault.into()),
        }
    }
}
