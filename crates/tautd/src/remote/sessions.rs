//! Sessions of browsers: a cookie stands for a token that was shown once.
//!
//! Sessions are in memory alone: after a restart of the daemon, users log in again.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use crate::access::tokens::{self, Hash, Token};

/// Time for which a session lasts.
pub(super) const LASTS: Duration = Duration::from_secs(12 * 3600);
/// Maximum number of sessions of a token; the oldest ends for the next one.
const MOST_OF_TOKEN: usize = 16;
/// Name of the cookie. The prefix has browsers take it only by TLS, and for this host alone.
const COOKIE: &str = "__Host-taut";

/// All sessions, by the hash of their cookie's value.
#[derive(Debug, Default)]
pub(super) struct Sessions(HashMap<Hash, Session>);

#[derive(Debug)]
struct Session {
    /// Hash of the token's secret.
    token: Hash,
    begun: Instant,
}

impl Sessions {
    /// Begins a session. Returns the header that sets the cookie.
    pub(super) fn begin(&mut self, token: &Token, valid: &[Token], now: Instant) -> io::Result<String> {
        let value = tokens::random()?;
        // Forgets those whose time is over, or whose token is gone. So there are at most as many as
        // all tokens may have.
        self.0.retain(|_, session| {
            now < session.begun + LASTS && valid.iter().any(|token| token.hash == session.token)
        });
        let of_token = || self.0.iter().filter(|(_, session)| session.token == token.hash);
        if of_token().count() >= MOST_OF_TOKEN
            && let Some(oldest) = of_token().min_by_key(|(_, session)| session.begun).map(|(key, _)| *key)
        {
            self.0.remove(&oldest);
        }
        self.0.insert(tokens::hash(value.as_bytes()), Session { token: token.hash, begun: now });
        Ok(cookie(&value, LASTS))
    }

    /// Returns the hash of the token that a session's cookie stands for.
    pub(super) fn token_of(&self, cookies: &str, now: Instant) -> Option<Hash> {
        let session = self.0.get(&key(cookies)?)?;
        (now < session.begun + LASTS).then_some(session.token)
    }

    /// Ends a session. Returns the header that removes the cookie.
    pub(super) fn end(&mut self, cookies: &str) -> String {
        if let Some(key) = key(cookies) {
            self.0.remove(&key);
        }
        cookie("", Duration::ZERO)
    }
}

/// Returns the hash of the cookie's value in a `Cookie` header. If the header has this cookie more
/// than once, the request has no session.
fn key(cookies: &str) -> Option<Hash> {
    let mut values =
        cookies.split(';').filter_map(|cookie| cookie.trim().strip_prefix(COOKIE)?.strip_prefix('='));
    let value = values.next()?;
    values.next().is_none().then(|| tokens::hash(value.as_bytes()))
}

fn cookie(value: &str, lasts: Duration) -> String {
    let seconds = lasts.as_secs();
    format!("{COOKIE}={value}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Strict")
}

#[cfg(test)]
mod tests {
    use taut_api::role::Role;

    use super::*;

    fn token(name: &str) -> Token {
        let hash = tokens::hash(name.as_bytes());
        Token { name: name.parse().unwrap(), role: Role::View, created_ms: 0, expires_ms: 1, hash }
    }

    /// Returns what a browser sends for this header.
    fn sent(header: &str) -> String {
        header.split(';').next().unwrap().to_owned()
    }

    #[test]
    fn a_cookie_stands_for_its_token_until_its_end() {
        let (mut sessions, now, ci) = (Sessions::default(), Instant::now(), token("ci"));
        let header = sessions.begin(&ci, std::slice::from_ref(&ci), now).unwrap();
        for word in
            ["__Host-taut=", "; Secure", "; HttpOnly", "; SameSite=Strict", "; Path=/", "Max-Age=43200"]
        {
            assert!(header.contains(word), "{header}");
        }
        let cookie = sent(&header);
        assert_eq!(sessions.token_of(&format!("a=b; {cookie}"), now), Some(ci.hash));
        assert_eq!(sessions.token_of(&cookie, now + LASTS), None);
        for wrong in
            ["", "__Host-taut=", "__Host-taut=0", &format!("{cookie}0"), &format!("{cookie}; {cookie}")]
        {
            assert_eq!(sessions.token_of(wrong, now), None, "{wrong}");
        }
        assert!(sessions.end(&cookie).contains("Max-Age=0"));
        assert_eq!(sessions.token_of(&cookie, now), None);
    }

    #[test]
    fn sessions_of_a_token_are_bounded_and_take_none_from_others() {
        let (mut sessions, start) = (Sessions::default(), Instant::now());
        let valid = [token("one"), token("other")];
        let other = sent(&sessions.begin(&valid[1], &valid, start).unwrap());
        let at = |n: u64| start + Duration::from_secs(n);
        let all: Vec<_> =
            (0..100).map(|n| sent(&sessions.begin(&valid[0], &valid, at(n)).unwrap())).collect();
        let live = all.iter().filter(|cookie| sessions.token_of(cookie, at(100)).is_some()).count();
        assert_eq!((live, sessions.0.len()), (MOST_OF_TOKEN, MOST_OF_TOKEN + 1));
        assert!(sessions.token_of(&all[99], at(100)).is_some(), "the newest are kept");
        assert!(sessions.token_of(&other, at(100)).is_some());
        sessions.begin(&valid[1], &valid[1..], at(101)).unwrap();
        assert_eq!(sessions.0.len(), 2, "those of a deleted token are forgotten");
    }
}
