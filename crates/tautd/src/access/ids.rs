//! Users and groups that texts name.

use nix::unistd::{Group, User};
use taut_api::error::ErrorKind;
use taut_api::{ApiError, Name};

use super::rights::Rights;

/// The highest user or group ID; the next value means "none".
const LAST: u32 = u32::MAX - 1;

/// Why a text is no user or group.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IdError {
    /// This host has none with the name.
    #[error("this host has no {0} `{1}`")]
    Unknown(&'static str, String),
    /// The number is reserved.
    #[error("{0} is no user or group ID")]
    OutOfRange(u32),
    /// Looking it up failed.
    #[error("the {0} `{1}` cannot be looked up")]
    LookUp(&'static str, String, #[source] nix::Error),
}

/// Returns the ID of a user, by name or number.
pub(crate) fn user_id(text: &str) -> Result<u32, IdError> {
    find(text, "user", || Ok(User::from_name(text)?.map(|user| user.uid.as_raw())))
}

/// Returns the ID of a group, by name or number.
pub(crate) fn group_id(text: &str) -> Result<u32, IdError> {
    find(text, "group", || Ok(Group::from_name(text)?.map(|group| group.gid.as_raw())))
}

/// Checks a number.
pub(super) fn in_range(id: u32) -> Result<u32, IdError> {
    if id <= LAST { Ok(id) } else { Err(IdError::OutOfRange(id)) }
}

fn find(
    text: &str,
    what: &'static str,
    look_up: impl FnOnce() -> nix::Result<Option<u32>>,
) -> Result<u32, IdError> {
    if let Ok(number) = text.parse() {
        return in_range(number);
    }
    match look_up() {
        Ok(Some(id)) => Ok(id),
        Ok(None) => Err(IdError::Unknown(what, text.to_owned())),
        Err(error) => Err(IdError::LookUp(what, text.to_owned(), error)),
    }
}

/// Refuses a group that this host does not know, or of which the user is no member. Root may name
/// any group.
pub(crate) fn check_membership(user: &Rights, group: &Name) -> Result<(), ApiError> {
    let gid = group_id(group.as_str()).map_err(|error| {
        let hint = "name one that `getent group` lists, or write its number";
        let invalid = ApiError::new(ErrorKind::Invalid, format!("vmci: {error}"), hint);
        std::error::Error::source(&error).map_or(invalid.clone(), |cause| invalid.because(cause))
    })?;
    if user.are_roots() || user.gid == gid || user.groups.contains(&gid) {
        return Ok(());
    }
    Err(ApiError::new(
        ErrorKind::Forbidden,
        format!("vmci: user {} is not a member of the group `{group}`", user.uid),
        "name a group of yours (`id` lists them), or ask an administrator to set it",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_names_or_numbers() {
        assert_eq!((user_id("root").unwrap(), group_id("root").unwrap()), (0, 0));
        assert_eq!(group_id("4711").unwrap(), 4711);
        let error = group_id("no-such-group").unwrap_err();
        assert_eq!(error.to_string(), "this host has no group `no-such-group`");
        assert_eq!(user_id("4294967295").unwrap_err().to_string(), "4294967295 is no user or group ID");
    }

    #[test]
    fn only_members_and_root_may_name_a_group() {
        let user = |gid, groups: &[u32]| Rights { uid: 60_000, gid, groups: groups.to_vec() };
        let check = |user: &Rights, group: &str| check_membership(user, &group.parse().unwrap());
        check(&user(7, &[8]), "7").unwrap();
        check(&user(7, &[8]), "8").unwrap();
        check(&Rights::root(), "9").unwrap();
        let error = check(&user(7, &[8]), "9").unwrap_err();
        assert_eq!(error.kind, ErrorKind::Forbidden);
        assert_eq!(error.message, "vmci: user 60000 is not a member of the group `9`");
        let error = check(&Rights::root(), "no-such-group").unwrap_err();
        assert!(error.kind == ErrorKind::Invalid && error.hint.contains("getent group"), "{error}");
    }
}
