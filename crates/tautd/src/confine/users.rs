//! Users of confined processes: each VM has one of its own while it runs.
//!
//! A number needs no entry in `/etc/passwd`. No file belongs to these users, so a number may be
//! given to another VM as soon as all processes of the last one have ended; they end together,
//! because they share a process namespace.

use std::collections::BTreeSet;
use std::path::Path;

use taut_api::ApiError;
use taut_api::error::ErrorKind;

/// First number of taut's users by default. systemd's table of user numbers lists those from here
/// to [`u32::MAX`] / 2 as unused.
pub(crate) const FIRST: u32 = 0x7000_0000;
/// Number of users of taut.
pub(crate) const USERS: u32 = 65_536;
/// Users below this index are services of taut.
const FIRST_VM: u32 = 16;

/// The users of one daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Users {
    first: u32,
    count: u32,
}

impl Users {
    /// The users from this number on.
    pub(crate) const fn from(first: u32) -> Self {
        Self { first, count: USERS }
    }

    /// The users from this number on, as far as this user namespace has them.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the namespace lacks the users of services, or of a first VM.
    pub(crate) fn of_host(first: u32) -> Result<Self, ApiError> {
        let read = |map: &str| std::fs::read_to_string(Path::new("/proc/self").join(map));
        // Without the files there are no user namespaces.
        match (read("uid_map"), read("gid_map")) {
            (Ok(users), Ok(groups)) => Self::mapped(first, &users, &groups),
            _ => Ok(Self::from(first)),
        }
    }

    fn mapped(first: u32, users: &str, groups: &str) -> Result<Self, ApiError> {
        let mut count = USERS;
        for (kind, file, map) in [("user", "uid_map", users), ("group", "gid_map", groups)] {
            let found = mapped_from(first, map);
            if found <= FIRST_VM {
                return Err(ApiError::new(
                    ErrorKind::Unavailable,
                    format!(
                        "the {kind} numbers {first} to {} are not mapped in this user namespace (/proc/self/{file})",
                        first.saturating_add(USERS - 1)
                    ),
                    format!(
                        "map them in the settings of the container that tautd runs in, or give tautd a \
                         --first-user N such that {USERS} numbers from N on are mapped and nobody has them"
                    ),
                ));
            }
            count = count.min(found);
        }
        Ok(Self { first, count })
    }

    /// The user of the fabric.
    pub(crate) const fn fabric(self) -> u32 {
        self.first
    }

    /// The user of processes that inspect images.
    pub(crate) const fn inspector(self) -> u32 {
        self.first + 1
    }

    /// The user of the console process.
    pub(crate) const fn console(self) -> u32 {
        self.first + 2
    }

    /// Returns the first user that no VM in `taken` has.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] when all are taken.
    pub(crate) fn of_vm(self, taken: &BTreeSet<u32>) -> Result<u32, ApiError> {
        let mut users = self.first + FIRST_VM..self.first + self.count;
        users.find(|user| !taken.contains(user)).ok_or_else(|| {
            ApiError::new(
                ErrorKind::Refused,
                format!("all {} user numbers for VMs are in use", self.count - FIRST_VM),
                "stop a VM first",
            )
        })
    }
}

/// Returns how many numbers from `first` on a map of a user namespace has without a gap. Each line
/// has a first number inside, one outside, and a count.
fn mapped_from(first: u32, map: &str) -> u32 {
    let mut ranges: Vec<(u64, u64)> = map
        .lines()
        .filter_map(|line| {
            let mut numbers = line.split_whitespace().map(|number| number.parse::<u64>().ok());
            let (inside, _, count) = (numbers.next()??, numbers.next()??, numbers.next()??);
            Some((inside, inside + count))
        })
        .collect();
    ranges.sort_unstable();
    let first = u64::from(first);
    let end = ranges.into_iter().fold(first, |end, (from, to)| if from <= end { end.max(to) } else { end });
    u32::try_from(end - first).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_vms_have_different_users_that_no_service_has() {
        let users = Users::from(FIRST);
        let mut taken = BTreeSet::new();
        for _ in 0..100 {
            let user = users.of_vm(&taken).unwrap();
            assert!(user > users.inspector() && user > users.fabric());
            assert!(taken.insert(user));
        }
        let freed = *taken.first().unwrap();
        taken.remove(&freed);
        assert_eq!(users.of_vm(&taken).unwrap(), freed);
        let all = (users.first..users.first + USERS).collect();
        assert!(users.of_vm(&all).unwrap_err().to_string().contains("65520"));
    }

    #[test]
    fn users_that_the_namespace_lacks_are_named() {
        let all = "         0          0 4294967295\n";
        assert_eq!(Users::mapped(FIRST, all, all).unwrap(), Users::from(FIRST));
        let container = "0 100000 65536\n";
        let error = Users::mapped(FIRST, all, container).unwrap_err();
        assert!(
            error.message.contains("the group numbers 1879048192 to 1879113727 are not mapped"),
            "{error}"
        );
        assert!(error.message.contains("gid_map") && error.hint.contains("--first-user"), "{error}");
        let users = Users::mapped(1000, container, all).unwrap();
        assert_eq!(users, Users { first: 1000, count: 64_536 });
        let taken = (1000..65_535).collect();
        assert_eq!(users.of_vm(&taken).unwrap(), 65_535);
        let parts = "1000 1000 10\n1010 5000 90\n5000 9000 5000\n";
        assert_eq!(mapped_from(1000, parts), 100);
        assert_eq!(mapped_from(999, parts), 0);
    }
}
