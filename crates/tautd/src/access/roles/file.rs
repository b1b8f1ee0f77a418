//! The roles file.
//!
//! ```toml
//! group = "taut"                  # may connect to tautd.sock and page.sock
//! [roles]
//! view = ["@staff", "alice", 1000]
//! define = ["@cloud"]
//! ```
//!
//! A name that begins with `@` is a group. Names are looked up when the file is read, so a user who
//! is added later needs the file to be read again; later members of a group do not.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use serde::Deserialize;
use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_api::role::Role;

use super::Members;
use crate::access::ids::{self, IdError};

/// Largest file that is read, in bytes.
const MOST: u64 = 64 << 10;

/// Why a roles file is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RolesError {
    /// It cannot be read.
    #[error("the roles file {0} cannot be read")]
    Unreadable(PathBuf, #[source] io::Error),
    /// It is no regular file, or others than root may write to it.
    #[error("the roles file {0} is refused: {1}")]
    Unsafe(PathBuf, &'static str),
    /// Its text is wrong.
    #[error("the roles file {0} is wrong: {1}")]
    Syntax(PathBuf, String),
    /// The host knows no such user or group.
    #[error("the roles file {0} names {1}, which does not exist on this host")]
    Unknown(PathBuf, String),
}

/// The text of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    group: Option<Id>,
    #[serde(default)]
    roles: BTreeMap<Role, Vec<Id>>,
}

/// A name or a number.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a name or a number")]
enum Id {
    Number(u32),
    Name(String),
}

impl From<RolesError> for ApiError {
    fn from(error: RolesError) -> Self {
        let hint = match &error {
            RolesError::Unreadable(..) => {
                "name another file with --roles, or make it readable for tautd".to_owned()
            }
            RolesError::Unsafe(path, _) => {
                format!("chown root {0} && chmod go-w {0}, and check its content", path.display())
            }
            RolesError::Syntax(..) => {
                "write it as in the section `Who may do what` of docs/guide/operations.md".to_owned()
            }
            RolesError::Unknown(..) => "correct the name, or write the number".to_owned(),
        };
        let invalid = Self::new(ErrorKind::Invalid, error.to_string(), hint);
        std::error::Error::source(&error).map_or(invalid.clone(), |cause| invalid.because(cause))
    }
}

/// Reads the file. A missing one gives nobody a role, unless it is required.
pub(super) fn read(path: &Path, required: bool) -> Result<Members, RolesError> {
    match text(path) {
        Ok(text) => parse(path, &text),
        Err(RolesError::Unreadable(_, error)) if error.kind() == io::ErrorKind::NotFound && !required => {
            Ok(Members::default())
        }
        Err(error) => Err(error),
    }
}

/// Returns the text of a file that only root can have written.
fn text(path: &Path) -> Result<String, RolesError> {
    let unreadable = |error: io::Error| RolesError::Unreadable(path.to_owned(), error);
    let refused = |why| Err(RolesError::Unsafe(path.to_owned(), why));
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty()).map_err(|error| unreadable(error.into()))?;
    let found = fstat(&file).map_err(|error| unreadable(error.into()))?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return refused("it is no regular file");
    }
    if found.st_uid != 0 {
        return refused("it does not belong to root");
    }
    if Mode::from_raw_mode(found.st_mode).intersects(Mode::WGRP | Mode::WOTH) {
        return refused("others than root may write to it");
    }
    let mut text = String::new();
    File::from(file).take(MOST + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > MOST {
        return refused("it has more than 64 KiB");
    }
    Ok(text)
}

fn parse(path: &Path, text: &str) -> Result<Members, RolesError> {
    let text: Text = toml::from_str(text)
        .map_err(|error| RolesError::Syntax(path.to_owned(), error.to_string().trim_end().to_owned()))?;
    let wrong = |error: IdError| match error {
        IdError::Unknown(what, name) => RolesError::Unknown(path.to_owned(), format!("the {what} `{name}`")),
        IdError::OutOfRange(_) => RolesError::Syntax(path.to_owned(), error.to_string()),
        IdError::LookUp(_, _, cause) => RolesError::Syntax(path.to_owned(), format!("{error}: {cause}")),
    };
    let mut members = Members::default();
    if let Some(group) = text.group {
        members.group = Some(group_id(&group).map_err(wrong)?);
    }
    for (role, ids) in text.roles {
        for id in ids {
            match id {
                Id::Name(name) if name.starts_with('@') => {
                    let gid = group_id(&Id::Name(name)).map_err(wrong)?;
                    Members::give(&mut members.groups, gid, role);
                }
                id => Members::give(&mut members.users, user_id(&id).map_err(wrong)?, role),
            }
        }
    }
    Ok(members)
}

fn user_id(id: &Id) -> Result<u32, IdError> {
    match id {
        Id::Number(number) => ids::in_range(*number),
        Id::Name(name) => ids::user_id(name),
    }
}

/// Returns the ID of a group: a number, or a name with or without `@`.
fn group_id(id: &Id) -> Result<u32, IdError> {
    match id {
        Id::Number(number) => ids::in_range(*number),
        Id::Name(name) => ids::group_id(name.strip_prefix('@').unwrap_or(name)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use taut_tests::{Prerequisite, require};

    use super::super::Roles;
    use super::*;
    use crate::access::caller::Caller;
    use crate::access::rights::Rights;

    fn parsed(text: &str) -> Result<Members, String> {
        parse(Path::new("roles.toml"), text).map_err(|error| error.to_string())
    }

    fn user(uid: u32, groups: &[u32]) -> Rights {
        Rights { uid, gid: 60_000, groups: groups.to_vec() }
    }

    #[test]
    fn the_highest_role_of_a_user_and_its_groups_counts() {
        let text = "group = \"root\"\n[roles]\nview = [1000, \"1001\", \"@2000\"]\noperate = [\"@2001\"]\n\
                    define = [\"@root\", 1000]\nadmin = [\"@60000\"]\n";
        let members = parsed(text).unwrap();
        assert_eq!(members.group, Some(0));
        let of = |uid, groups: &[u32]| members.of(&Rights { gid: 7, ..user(uid, groups) });
        assert_eq!(of(1000, &[]), Some(Role::Define));
        assert_eq!(of(1001, &[]), Some(Role::View));
        assert_eq!(of(1001, &[5, 2001]), Some(Role::Operate));
        assert_eq!(of(1002, &[2000]), Some(Role::View));
        assert_eq!(of(1002, &[0]), Some(Role::Define));
        assert_eq!(of(1002, &[5]), None);
        assert_eq!(members.of(&user(1002, &[])), Some(Role::Admin), "the first group counts, too");
    }

    #[test]
    fn mistakes_are_named() {
        for (text, word) in [
            ("[roles]\nveiw = []\n", "veiw"),
            ("grup = \"root\"\n", "grup"),
            (
                "[roles]\nview = [\"no-such-user-here\"]\n",
                "the user `no-such-user-here`, which does not exist",
            ),
            ("[roles]\nview = [\"@no-such-group\"]\n", "the group `no-such-group`"),
            ("group = \"no-such-group\"\n", "the group `no-such-group`"),
            ("[roles]\nview = [4294967295]\n", "4294967295 is no user or group ID"),
            ("[roles]\nview = [-1]\n", "a name or a number"),
            ("[roles]\nview = \"all\"\n", "all"),
            ("[roles", "line 1"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(
                error.starts_with("the roles file roles.toml") && error.contains(word),
                "{text}: {error}"
            );
        }
        assert_eq!(parsed(""), Ok(Members::default()));
    }

    #[test]
    fn root_needs_no_role_and_nobody_else_has_one_without_a_file() {
        let roles = Roles::of_users([]);
        assert_eq!(roles.of(&Rights::root()), Some(Role::Admin));
        assert_eq!(roles.of(&user(65_534, &[0])), None);
        let refusal = roles.refusal(&Caller::with_rights(user(1000, &[])), Role::Define, "PUT /v1/x");
        assert_eq!(refusal.message, "PUT /v1/x needs the role `define`; user 1000 has no role");
        assert!(refusal.hint.contains("/etc/taut/roles.toml"), "{}", refusal.hint);
    }

    #[test]
    fn only_a_regular_file_that_root_alone_can_write_is_read() {
        if !require(Prerequisite::Root) {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("roles.toml");
        let read = |path: &Path| Roles::open(Some(path)).map(drop).map_err(|error| error.to_string());
        assert!(read(&path).unwrap_err().ends_with("cannot be read"));
        assert_eq!(super::read(&path, false).unwrap(), Members::default());
        write(&path, "[roles]\nview = [1000]\n").unwrap();
        set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        read(&path).unwrap();
        set_permissions(&path, Permissions::from_mode(0o664)).unwrap();
        assert!(read(&path).unwrap_err().contains("others than root may write"));
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        chown(&path, Some(1000), None).unwrap();
        assert!(read(&path).unwrap_err().contains("does not belong to root"));
        chown(&path, Some(0), None).unwrap();
        let link = dir.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(read(&link).is_err());
        assert!(read(dir.path()).unwrap_err().contains("no regular file"));
        write(&path, "#".repeat(65 << 10)).unwrap();
        assert!(read(&path).unwrap_err().contains("more than 64 KiB"));
    }

    #[test]
    fn a_broken_new_file_changes_nothing() {
        if !require(Prerequisite::Root) {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("roles.toml");
        write(&path, "[roles]\nview = [1000]\n").unwrap();
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let roles = Roles::open(Some(&path)).unwrap();
        write(&path, "[roles]\nview = [1000").unwrap();
        assert!(roles.read_again().is_err());
        assert_eq!(roles.of(&user(1000, &[])), Some(Role::View));
        write(&path, "[roles]\noperate = [1000]\n").unwrap();
        roles.read_again().unwrap();
        assert_eq!(roles.of(&user(1000, &[])), Some(Role::Operate));
    }
}
