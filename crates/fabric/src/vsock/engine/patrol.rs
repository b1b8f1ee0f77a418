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
        // One more than is looked at tells whether there are more.
        let mut ends = self.pairs.ends_behind(self.sched.patrols.last(), Patrols::MOST_ENDS + 1);
        let has_more = ends.len() > Patrols::MOST_ENDS;
        ends.truncate(Patrols::MOST_ENDS);
        for &(guest, channel) in &ends {
            self.patrol_end(guest, channel);
        }
        let last = ends.last().filter(|_| has_more);
        self.sched.patrols.done(last.copied(), self.pairs.attached(), self.now);
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
