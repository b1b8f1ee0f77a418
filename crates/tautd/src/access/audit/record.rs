//! Records of the audit files: one line of JSON each.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use taut_api::audit::{AuditCaller, AuditEntry, AuditOutcome};

/// Most characters that are kept of a path, and of an error's message. With them, a record has at
/// most [`MOST_BYTES`].
const MOST_PATH: usize = 200;
const MOST_ERROR: usize = 300;
/// Upper limit of a record's length in bytes.
pub(super) const MOST_BYTES: u64 = 4096;
/// The hash that stands for "no record before this one".
pub(super) const NO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// A request that is recorded.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    at_ms: u64,
    caller: AuditCaller,
    method: String,
    path: String,
}

impl Asked {
    /// Describes a request that came just now.
    pub(crate) fn now(caller: AuditCaller, method: &str, path: &str) -> Self {
        Self { at_ms: now_ms(), caller, method: method.to_owned(), path: cut(path, MOST_PATH) }
    }
}

/// Describes an answer that is about to be given.
pub(crate) fn outcome_now(status: u16, error: Option<&str>) -> AuditOutcome {
    let error = error.map(|message| cut(message, MOST_ERROR));
    AuditOutcome { at_ms: now_ms(), status, error, document: None }
}

/// What is to be recorded.
#[derive(Debug)]
pub(super) enum Draft {
    /// A request, before anything is changed.
    Request(Asked),
    /// The outcome of the request with this number.
    Outcome(u64, AuditOutcome),
    /// A request that was refused at once.
    Refused(Asked, AuditOutcome),
}

/// A record: what happened, its number, and the hash of the record before it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    /// Number of the request.
    pub(super) seq: u64,
    /// Hash of the record before this one.
    pub(super) prev: String,
    #[serde(flatten)]
    pub(super) content: Content,
}

/// What happened.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "lowercase")]
pub(super) enum Content {
    /// A request that was about to be worked on.
    Request { at_ms: u64, caller: AuditCaller, method: String, path: String },
    /// What came of it.
    Outcome { outcome: AuditOutcome },
    /// A request that was refused at once.
    Refused { at_ms: u64, caller: AuditCaller, method: String, path: String, outcome: AuditOutcome },
}

impl Record {
    /// Makes a record of a draft. Only an outcome has a number already.
    pub(super) fn new(draft: Draft, next: u64, prev: String) -> Self {
        let (seq, content) = match draft {
            Draft::Request(Asked { at_ms, caller, method, path }) => {
                (next, Content::Request { at_ms, caller, method, path })
            }
            Draft::Outcome(seq, outcome) => (seq, Content::Outcome { outcome }),
            Draft::Refused(Asked { at_ms, caller, method, path }, outcome) => {
                (next, Content::Refused { at_ms, caller, method, path, outcome })
            }
        };
        Self { seq, prev, content }
    }

    /// Returns the entry that this record begins; `outcome` finds that of a request. An outcome
    /// begins none.
    pub(super) fn into_entry(self, outcome: impl FnOnce(u64) -> Option<AuditOutcome>) -> Option<AuditEntry> {
        let seq = self.seq;
        match self.content {
            Content::Request { at_ms, caller, method, path } => {
                Some(AuditEntry { seq, at_ms, caller, method, path, outcome: outcome(seq) })
            }
            Content::Refused { at_ms, caller, method, path, outcome } => {
                Some(AuditEntry { seq, at_ms, caller, method, path, outcome: Some(outcome) })
            }
            Content::Outcome { .. } => None,
        }
    }
}

/// Returns the SHA-256 of some bytes as hexadecimal digits.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(NO_HASH.len());
    for byte in Sha256::digest(bytes) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Shortens a text, and replaces the control characters in it.
fn cut(text: &str, most: usize) -> String {
    let printable = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    match text.char_indices().nth(most) {
        Some(_) => printable.take(most - 1).chain(['…']).collect(),
        None => printable.collect(),
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use taut_api::audit::AuditedDocument;
    use taut_api::role::Role;

    use super::*;

    #[test]
    fn the_hash_is_that_of_sha256sum() {
        assert_eq!(digest(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(digest(b"").len(), NO_HASH.len());
    }

    #[test]
    fn the_longest_record_is_bounded() {
        let caller = AuditCaller {
            uid: Some(u32::MAX),
            gid: Some(u32::MAX),
            token: Some("t".repeat(63).parse().unwrap()),
            address: Some([u16::MAX; 8].into()),
            loginuid: Some(u32::MAX),
            pid: Some(u32::MAX),
            start_time: Some(u64::MAX),
            program: Some("𝄞".repeat(256)),
            role: Some(Role::Operate),
        };
        let mut outcome = outcome_now(u16::MAX, Some(&"𝄞\n".repeat(5000)));
        let name = "n".repeat(63);
        let hash = || Some(NO_HASH.to_owned());
        let subject = format!("portgroup/{name}");
        outcome.document =
            Some(AuditedDocument { subject, revision: u64::MAX, before: hash(), after: hash() });
        let asked = Asked::now(caller, "DELETE", &format!("/v1/{}", "\"".repeat(60_000)));
        let refused = Draft::Refused(asked, outcome);
        let record = Record::new(refused, u64::MAX, NO_HASH.to_owned());
        let line = serde_json::to_string(&record).unwrap();
        assert!((line.len() as u64) < MOST_BYTES, "{}", line.len());
        let again: Record = serde_json::from_str(&line).unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), line);
    }

    #[test]
    fn long_texts_are_cut_and_printable() {
        assert_eq!(cut("a\tb", 9), "a b");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abcd", 4), "abcd");
    }
}
