//! When identities of processes and names of threads are looked at again: by the number of readings
//! in which the process or thread was there.

/// Number of readings after which a process that is no machine is looked at again.
pub(super) const LOOKS_PER_PROCESS: u32 = 64;
/// Number of readings after which the identity of a machine and the names of its threads are looked
/// at again.
pub(super) const LOOKS_PER_MACHINE: u32 = 256;

/// Number of first readings of a process or thread in which it is looked at more often.
pub(super) const FIRST_LOOKS: u32 = 16;

/// Returns whether something is looked at in this reading: once in `every` readings, and more often
/// in the beginning. A process runs its program, and a thread gets its name, mostly soon after it
/// has begun.
pub(super) const fn is_looked_at(looks: u32, every: u32) -> bool {
    looks.is_power_of_two() && looks <= FIRST_LOOKS || looks.is_multiple_of(every)
}

/// Returns whether [`is_looked_at`] is true for one of the last `readings` numbers up to `looks`.
pub(super) const fn was_due(looks: u32, readings: u32, every: u32) -> bool {
    let before = looks.saturating_sub(readings);
    let next_early = (before.saturating_add(1)).next_power_of_two();
    next_early <= FIRST_LOOKS && next_early <= looks || looks / every > before / every
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_that_were_due_in_between_are_made() {
        let due = |looks: u32, readings: u32| was_due(looks, readings, 64);
        assert_eq!(
            [1, 2, 3, 4, 5, 8, 16, 32, 64].map(|looks| due(looks, 1)),
            [true, true, false, true, false, true, true, false, true]
        );
        assert!(due(19, 16) && due(20, 5) && !due(20, 4) && !due(63, 40));
        assert!(due(70, 7) && !due(70, 6) && due(200, 100));
        for looks in 1..300 {
            assert_eq!(due(looks, 1), is_looked_at(looks, 64), "{looks}");
            let one_by_one = |readings: u32| (looks + 1 - readings..=looks).any(|at| is_looked_at(at, 64));
            assert!((1..=looks).all(|readings| due(looks, readings) == one_by_one(readings)), "{looks}");
        }
    }
}
