//! Requests and replies.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::log::LEAST_LIMIT;
use crate::rate::RateLimit;

/// Version of the protocol.
pub const PROTOCOL: u32 = 1;
/// Maximum length of a source's name, in bytes.
const MOST_ID: usize = 160;
/// Maximum number of sources that one reply lists.
pub const PAGE: usize = 256;
/// Largest limit of a log, in bytes.
const MOST_LOG: u64 = 1 << 30;

/// Name of a source, such as `vm/db1/console`: 1 to 160 letters, digits and `/`, `-`, `_`, `.`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SourceId(String);

/// A text is not the name of a source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a source's name has 1 to {MOST_ID} letters, digits and `/`, `-`, `_`, `.`; this text has {0} bytes")]
pub struct BadId(usize);

/// A request of `tautd`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// The first request.
    Hello {
        /// [`PROTOCOL`] of the asking side.
        protocol: u32,
    },
    /// Read this source from now on. It replaces one of the same name. Descriptors: those of
    /// [`Kind`].
    Add(SourceSpec),
    /// Read what is left of this source, and forget it. Clients are disconnected.
    Remove {
        /// Name of the source.
        id: SourceId,
    },
    /// Read all that is in the source, and write it to the log.
    Flush {
        /// Name of the source.
        id: SourceId,
    },
    /// List the names of the sources, in their order.
    List {
        /// Begin behind this name.
        after: Option<SourceId>,
    },
    /// Write what is in memory and end.
    Quit,
}

/// Settings of a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceSpec {
    /// Its name.
    pub id: SourceId,
    /// Its kind.
    pub kind: Kind,
    /// Limit of its log, in bytes.
    pub log_limit: u64,
    /// Its rate.
    pub rate: RateLimit,
}

/// Kind of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Output of a program. Descriptors: the FIFO, open for reading and writing; the log, likewise.
    Output,
    /// A serial console. Descriptors: the socket that is connected to the serial port; the socket
    /// on which people are awaited; the log, open for reading and writing.
    Console,
}

/// Answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// To [`Request::Hello`].
    Welcome {
        /// [`PROTOCOL`] of the answering side.
        protocol: u32,
    },
    /// The request is carried out.
    Done,
    /// To [`Request::List`].
    Sources {
        /// Names, at most [`PAGE`].
        ids: Vec<SourceId>,
        /// There are more behind the last name.
        more: bool,
    },
    /// The request cannot be carried out.
    Refused {
        /// The reason.
        why: String,
    },
}

impl SourceSpec {
    /// Checks the numbers.
    ///
    /// # Errors
    /// The reason, for a reply.
    pub fn check(&self) -> Result<(), String> {
        let (limit, RateLimit { rate, burst }) = (self.log_limit, self.rate);
        if !(LEAST_LIMIT..=MOST_LOG).contains(&limit) {
            return Err(format!("a log of {limit} bytes; {LEAST_LIMIT} to {MOST_LOG} are possible"));
        }
        if rate == 0 || burst == 0 {
            return Err(format!("a rate of {rate} bytes/s with a burst of {burst} passes nothing"));
        }
        Ok(())
    }
}

impl Kind {
    /// Returns the number of descriptors.
    pub const fn descriptors(self) -> usize {
        match self {
            Self::Output => 2,
            Self::Console => 3,
        }
    }
}

impl TryFrom<String> for SourceId {
    type Error = BadId;

    fn try_from(text: String) -> Result<Self, BadId> {
        let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte);
        let fits = (1..=MOST_ID).contains(&text.len()) && text.bytes().all(is_usual);
        if fits { Ok(Self(text)) } else { Err(BadId(text.len())) }
    }
}

impl From<SourceId> for String {
    fn from(id: SourceId) -> Self {
        id.0
    }
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> SourceId {
        text.to_owned().try_into().unwrap()
    }

    #[test]
    fn messages_survive_the_wire() {
        let spec = SourceSpec {
            id: id("vm/db1/console"),
            kind: Kind::Console,
            log_limit: 4 << 20,
            rate: RateLimit::DEFAULT,
        };
        let requests = [
            Request::Hello { protocol: PROTOCOL },
            Request::Add(spec),
            Request::Remove { id: id("fabric") },
            Request::Flush { id: id("fabric") },
            Request::List { after: None },
            Request::List { after: Some(id("a")) },
            Request::Quit,
        ];
        for request in requests {
            let text = serde_json::to_string(&request).unwrap();
            assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), request, "{text}");
        }
    }

    #[test]
    fn what_is_not_a_request_is_refused() {
        let long = format!(r#"{{"remove":{{"id":"{}"}}}}"#, "x".repeat(MOST_ID + 1));
        let texts = [
            "",
            "null",
            r#""unknown""#,
            r#"{"remove":{"id":""}}"#,
            r#"{"remove":{"id":"a b"}}"#,
            r#"{"add":{"id":"a","kind":"output","log_limit":-1,"rate":{"rate":1,"burst":1}}}"#,
            r#"{"add":{"id":"a","kind":"output","log_limit":1,"rate":{"rate":1,"burst":1},"path":"/etc/passwd"}}"#,
            &long,
        ];
        for text in texts {
            assert!(serde_json::from_str::<Request>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_full_page_fits_into_a_packet() {
        let ids = vec![id(&"v".repeat(MOST_ID)); PAGE];
        let reply = serde_json::to_vec(&Reply::Sources { ids, more: true }).unwrap();
        assert!(reply.len() <= super::super::channel::MOST_BYTES);
    }

    #[test]
    fn impossible_numbers_are_refused() {
        let spec = |log_limit, rate, burst| {
            let rate = RateLimit { rate, burst };
            SourceSpec { id: id("a"), kind: Kind::Output, log_limit, rate }.check()
        };
        assert_eq!(spec(LEAST_LIMIT, 1, 1), Ok(()));
        for wrong in
            [spec(LEAST_LIMIT - 1, 1, 1), spec(u64::MAX, 1, 1), spec(1 << 20, 0, 1), spec(1 << 20, 1, 0)]
        {
            assert!(wrong.is_err());
        }
    }
}
