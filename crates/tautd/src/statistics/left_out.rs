//! The event that tells when VMs of other programs are too many to be sampled.

use taut_api::event::Level;
use taut_host::observe::processes::{MOST_MACHINE_THREADS, MOST_MACHINES};

/// Samples in a row that have room for all VMs, after which no VM counts as left out. So a number
/// of VMs that changes all the time makes few events.
const CALM: u32 = 600;

/// State of the events about VMs that were left out.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    /// Samples that must still have room for all VMs until none counts as left out; 0 if none does.
    left: u32,
}

impl LeftOut {
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
    fn too_many_vms_that_come_and_go_are_told_once() {
        let mut seen = LeftOut::default();
        let told = |seen: &mut LeftOut, left_out| seen.note(left_out).map(|(_, kind, _)| kind);
        assert_eq!(told(&mut seen, 0), None);
        assert_eq!(told(&mut seen, 3), Some("statistics.vms-left-out"));
        assert!((0..5000).all(|sample| told(&mut seen, sample % 7).is_none()));
        let calm: Vec<_> = (0..2 * CALM).filter_map(|_| told(&mut seen, 0)).collect();
        assert_eq!(calm, ["statistics.vms-sampled"]);
        assert_eq!(told(&mut seen, 1), Some("statistics.vms-left-out"));
    }
}
