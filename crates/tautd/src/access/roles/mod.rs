//! Roles of users and groups, as the roles file says.

mod file;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_api::role::Role;

use super::caller::Caller;
use super::rights::Rights;

pub(crate) use file::RolesError;

/// Place of the file, unless the command line names another.
pub(crate) const FILE: &str = "/etc/taut/roles.toml";

/// The roles in force. They change when the file is read again.
#[derive(Debug)]
pub(crate) struct Roles {
    /// The file.
    path: PathBuf,
    /// True if the file has to exist.
    required: bool,
    /// User of the daemon.
    own_uid: u32,
    in_force: RwLock<Arc<Members>>,
}

/// Who has which role.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Members {
    /// Group that may connect to the API's socket.
    pub(crate) group: Option<u32>,
    /// Highest role of each user.
    users: BTreeMap<u32, Role>,
    /// Highest role of each group.
    groups: BTreeMap<u32, Role>,
}

impl Roles {
    /// Reads the file. With `path` it has to exist; without, the default one may be missing, and
    /// then only root has a role.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, RolesError> {
        let required = path.is_some();
        let path = path.unwrap_or(Path::new(FILE)).to_owned();
        let members = file::read(&path, required)?;
        let own_uid = rustix::process::geteuid().as_raw();
        Ok(Self { path, required, own_uid, in_force: RwLock::new(Arc::new(members)) })
    }

    /// Reads the file again. If that fails, the roles stay as they are.
    pub(crate) fn read_again(&self) -> Result<Arc<Members>, RolesError> {
        let members = Arc::new(file::read(&self.path, self.required)?);
        *self.in_force.write().unwrap_or_else(PoisonError::into_inner) = members.clone();
        Ok(members)
    }

    /// Returns the roles in force.
    pub(crate) fn members(&self) -> Arc<Members> {
        self.in_force.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the highest role of a user: of its own, and of its groups. Root and the daemon's own
    /// user may do everything.
    pub(crate) fn of(&self, rights: &Rights) -> Option<Role> {
        if rights.are_roots() || rights.uid == self.own_uid {
            return Some(Role::Admin);
        }
        self.members().of(rights)
    }

    /// Returns the error for a caller without the role that a request needs.
    pub(crate) fn refusal(&self, caller: &Caller, needed: Role, what: &str) -> ApiError {
        let has = caller.role(self);
        let has = has.map_or("has no role".to_owned(), |role| format!("has the role `{role}`"));
        ApiError::new(
            ErrorKind::Forbidden,
            format!("{what} needs the role `{needed}`; {} {has}", caller.describe()),
            match caller.token() {
                None => format!(
                    "ask an administrator: {} gives roles, and tautd reads it again at SIGHUP",
                    self.path.display()
                ),
                Some(_) => {
                    format!("ask an administrator for another token: taut token create NAME --role {needed}")
                }
            },
        )
    }
}

impl Members {
    /// Returns the highest role that the file gives a user.
    fn of(&self, rights: &Rights) -> Option<Role> {
        let groups = std::iter::once(&rights.gid).chain(&rights.groups);
        let of_groups = groups.filter_map(|gid| self.groups.get(gid));
        self.users.get(&rights.uid).into_iter().chain(of_groups).max().copied()
    }

    /// Gives a user or a group a role, unless it has a higher one.
    fn give(members: &mut BTreeMap<u32, Role>, id: u32, role: Role) {
        let has = members.entry(id).or_insert(role);
        *has = role.max(*has);
    }
}

#[cfg(test)]
impl Roles {
    /// Returns roles for tests: users by number. No file is read.
    pub(crate) fn of_users<const N: usize>(users: [(u32, Role); N]) -> Self {
        let members = Members { users: users.into(), ..Members::default() };
        Self { path: FILE.into(), required: false, own_uid: 0, in_force: RwLock::new(Arc::new(members)) }
    }
}
