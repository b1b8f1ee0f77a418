//! Users of confined processes: each VM has one of its own while it runs.
//!
//! A number needs no entry in `/etc/passwd`. No file belongs to these users, so a number may be
//! given to another VM as soon as all processes of the last one have ended; they end together,
//! because they share a process namespace.

use std::collections::BTreeSet;

use taut_api::ApiError;
use taut_api::error::ErrorKind;

/// First number of taut's users by default. systemd's table of user numbers lists those from here
/// to [`u32::MAX`] / 2 as unused.
pub(crate) const FIRST: u32 = 0x7000_0000;
/// Number of users of taut.
const USERS: u32 = 65_536;
/// Users below this index are services of taut.
const FIRST_VM: u32 = 16;

/// The users of one daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Users {
    first: u32,
}

impl Users {
    /// The users from this number on.
    pub(crate) const fn from(first: u32) -> Self {
        Self { first }
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
        let mut users = self.first + FIRST_VM..self.first + USERS;
        users.find(|user| !taken.contains(user)).ok_or_else(|| {
            ApiError::new(
                ErrorKind::Refused,
                format!("all {} user numbers for VMs are in use", USERS - FIRST_VM),
                "stop a VM first",
            )
        })
    }
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
}
