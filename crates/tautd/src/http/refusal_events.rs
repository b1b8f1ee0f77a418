//! Events for changes that were refused.
//!
//! The same refusal of the same resource is listed once a minute, and at most [`MOST`] refusals are
//! listed in a minute, so that a program that repeats its requests cannot push other events out of
//! the log. Requests for a resource that does not exist are not listed, nor are those whose caller
//! lacks the role: these are in the audit record.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use taut_api::error::ErrorKind;
use taut_api::event::Level;
use taut_api::{ApiError, Name, path};

use super::Shared;
use super::body::Failure;
use crate::store::Kind;

/// Time in which the same refusal is not listed again.
const REPEAT: Duration = Duration::from_secs(60);
/// Maximum number of refusals that are listed in this time.
const MOST: usize = 30;
/// Maximum number of characters of an event: an error may quote any text of its request.
const LONGEST: usize = 1000;

/// Paths below which the resources of a kind are.
const KINDS: [(&str, Kind); 9] = [
    (path::VMS, Kind::Vm),
    (path::VSWITCHES, Kind::VSwitch),
    (path::PORTGROUPS, Kind::PortGroup),
    (path::NETNS, Kind::Netns),
    (path::EXTERNAL_PORTS, Kind::External),
    (path::NETDEVS, Kind::Netdev),
    (path::UPLINKS, Kind::Uplink),
    (path::PNICS, Kind::Pnic),
    (path::HOST, Kind::Host),
];

/// The refusals that were listed lately.
#[derive(Debug)]
pub(crate) struct RefusalEvents {
    listed: Mutex<Listed>,
    /// Clock of the minute in which refusals are counted.
    now: fn() -> Instant,
}

impl RefusalEvents {
    /// Counts refusals by this clock.
    pub(crate) fn by(now: fn() -> Instant) -> Self {
        Self { listed: Mutex::default(), now }
    }
}

#[derive(Debug, Default)]
struct Listed {
    /// Time of each refusal, by subject and reason, until it may be listed again.
    recent: BTreeMap<(String, String), Instant>,
    /// Number of refusals that were left out since the last one in the list.
    left_out: u64,
}

impl Listed {
    /// Takes note of a refusal. If it is to be listed, returns the number of those that were left
    /// out before it.
    fn note(&mut self, subject: &str, reason: &str, now: Instant) -> Option<u64> {
        self.recent.retain(|_, at| now < *at + REPEAT);
        let refusal = (subject.to_owned(), reason.to_owned());
        if self.recent.len() >= MOST || self.recent.contains_key(&refusal) {
            self.left_out += 1;
            return None;
        }
        self.recent.insert(refusal, now);
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Answers a request, and raises an event if that refuses a change.
pub(super) async fn record(State(app): State<Shared>, request: Request, next: Next) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let path = request.uri().path().to_owned();
    let response = next.run(request).await;
    if reads {
        return response;
    }
    if let Some(Failure { error, about }) = response.extensions().get::<Failure>().cloned()
        && matches!(
            error.kind,
            ErrorKind::Invalid | ErrorKind::Forbidden | ErrorKind::Conflict | ErrorKind::Refused
        )
        && let Some((kind, subject)) = subject(&path, about.as_ref())
    {
        // A failure to write an event is logged, and a panic ends its own thread only.
        let _ = tokio::task::spawn_blocking(move || list(&app, kind, &subject, &error)).await;
    }
    response
}

fn list(app: &Shared, kind: Kind, subject: &str, error: &ApiError) {
    let reason: String = reason(error).chars().take(LONGEST).collect();
    let mut listed = app.refusals.listed.lock().expect("no holder of the list panics");
    let left_out = listed.note(subject, &reason, (app.refusals.now)());
    drop(listed);
    let message = match left_out {
        None => return,
        Some(0) => reason,
        Some(1) => format!("{reason} (1 other refusal was left out before this one)"),
        Some(count) => format!("{reason} ({count} other refusals were left out before this one)"),
    };
    app.store.event(Level::Warning, subject, &format!("{}.refused", kind.as_str()), &message);
}

/// The error's message with its causes.
fn reason(error: &ApiError) -> String {
    let causes = error.causes.iter().map(String::as_str);
    [error.message.as_str()].into_iter().chain(causes).collect::<Vec<_>>().join(": ")
}

/// Returns kind and event subject of the resource at a path; `about` names one that the path does
/// not name.
fn subject(path: &str, about: Option<&Name>) -> Option<(Kind, String)> {
    let below =
        |prefix: &str| path.strip_prefix(prefix).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let (kind, rest) = KINDS.iter().find_map(|(prefix, kind)| Some((*kind, below(prefix)?)))?;
    let named = rest.split('/').nth(1).and_then(|name| name.parse::<Name>().ok());
    let subject = match named.as_ref().or(about) {
        Some(name) => format!("{}/{name}", kind.as_str()),
        None => kind.as_str().to_owned(),
    };
    Some((kind, subject))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_listed_once_a_minute() {
        let mut listed = Listed::default();
        let start = Instant::now();
        let mut note =
            |subject, reason, seconds| listed.note(subject, reason, start + Duration::from_secs(seconds));
        assert_eq!(note("vm/a", "too large", 0), Some(0));
        assert_eq!(note("vm/a", "too large", 1), None);
        assert_eq!(note("vm/a", "too large", 59), None);
        assert_eq!(note("vm/b", "too large", 59), Some(2), "another resource");
        assert_eq!(note("vm/a", "too small", 59), Some(0), "another reason");
        assert_eq!(note("vm/a", "too large", 60), Some(0), "a minute later");
    }

    #[test]
    fn refusals_that_all_differ_are_limited_too() {
        let mut listed = Listed::default();
        let now = Instant::now();
        let told = (0..1000).filter(|n| listed.note(&format!("vm/{n}"), "no", now).is_some()).count();
        assert_eq!((told, listed.recent.len()), (MOST, MOST));
        assert_eq!(listed.note("vm/a", "no", now + REPEAT), Some(1000 - MOST as u64));
        assert_eq!(listed.recent.len(), 1);
    }

    #[test]
    fn the_subject_is_the_resource_at_the_path() {
        let name: Name = "db1".parse().unwrap();
        let of = |path, about| subject(path, about).map(|(_, subject)| subject);
        assert_eq!(of("/v1/vms", None).as_deref(), Some("vm"));
        assert_eq!(of("/v1/vms", Some(&name)).as_deref(), Some("vm/db1"));
        assert_eq!(of("/v1/vms/web1/power", None).as_deref(), Some("vm/web1"));
        assert_eq!(of("/v1/vms/..%2Fetc", None).as_deref(), Some("vm"));
        assert_eq!(of("/v1/host/settings", None).as_deref(), Some("host/settings"));
        assert_eq!(of("/v1/vmsx", None), None);
        assert_eq!(of("/v1/shutdown", None), None);
    }
}
