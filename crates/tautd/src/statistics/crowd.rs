//! The event that tells when VMs of other programs are too many to be sampled.

use taut_api::event::Level;
use taut_host::observe::processes::{MOST_MACHINE_THREADS, MOST_MACHINES};

/// Samples in a row that have room for all VMs, after which the crowd counts as gone. One whose
/// size changes all the time makes few events.
const CALM: u32 = 600;

/// State of the events about VMs that were left out.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    /// Samples that will have to have room for all VMs until the crowd counts as gone; 0 if it
    /// does.
    left: u32,
}

impl Crowd {
    /// Notes how many VMs a sample has left out. Returns level, kind and message of an event, if
    /// there is something to say.
    pub(super) fn note(&mut self, left_out: usize) -> Option<(Level, &'static str, String)> {
        let was = self.left;
        self.left = if left_out > 0 { CALM } else { was.saturating_sub(1) };
        match (was, self.left) {
            (0, 1..) => Some((
                Level::Warning,
                "statistics.vms-left-out",
                format!(
                    "{left_out} VMs of other programs have no statistics: those of {MOST_MACHINES} VMs with \
                     {MOST_MACHINE_THREADS} threads are sampled, the oldest first. Look for processes that are \
                     named like QEMU and should not be there"
                ),
            )),
            (1.., 0) => Some((
                Level::Info,
                "statistics.vms-sampled",
                "all VMs of the host have statistics".to_owned(),
            )),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_that_comes_and_goes_all_the_time_is_told_once() {
        let mut crowd = Crowd::default();
        let told = |crowd: &mut Crowd, left_out| crowd.note(left_out).map(|(_, kind, _)| kind);
        assert_eq!(told(&mut crowd, 0), None);
        assert_eq!(told(&mut crowd, 3), Some("statistics.vms-left-out"));
        assert!((0..5000).all(|sample| told(&mut crowd, sample % 7).is_none()));
        let calm: Vec<_> = (0..2 * CALM).filter_map(|_| told(&mut crowd, 0)).collect();
        assert_eq!(calm, ["statistics.vms-sampled"]);
        assert_eq!(told(&mut crowd, 1), Some("statistics.vms-left-out"));
    }
}
