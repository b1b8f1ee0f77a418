//! Who may do what, and who did: callers of the API, their roles, the rights with which files that
//! they name are opened, and the audit record.
//!
//! - [`listener`] accepts connections and reads each [`caller`] once.
//! - [`roles`] maps users and groups to roles, from a file.
//! - [`rights`] lends a thread the permissions of a user; [`files`] opens a VM's files with them.
//! - [`ids`] finds users and groups by name, and refuses groups of which a user is no member.
//! - [`tokens`] finds the token that a caller over TCP shows, [`places`] bounds the requests over
//!   TCP that are worked on at a time, and [`refusals`] counts refusals over TCP.
//! - [`sites`] refuses requests that another site in a user's browser may have sent.
//! - [`audit`] records each change before it is made, and its outcome before it is answered.

pub(crate) mod audit;
pub(crate) mod caller;
pub(crate) mod files;
pub(crate) mod ids;
pub(crate) mod listener;
mod peer_groups;
pub(crate) mod places;
pub(crate) mod refusals;
pub(crate) mod rights;
pub(crate) mod roles;
pub(crate) mod sites;
pub(crate) mod tokens;
