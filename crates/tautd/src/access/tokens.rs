//! Tokens of callers over TCP: drawing a secret, and finding the token that a secret belongs to.
//!
//! Only the SHA-256 of a secret is kept. A secret has 256 random bits, so its hash needs neither
//! salt nor repetition.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use taut_api::Name;
use taut_api::role::Role;

/// Maximum number of tokens.
pub(crate) const MOST: usize = 64;
/// Beginning of each secret, by which scanners of source code can find one that leaked.
const PREFIX: &str = "taut_";
/// Length of a secret's random part in bytes.
const BYTES: usize = 32;
/// Length of a secret's text.
const LENGTH: usize = PREFIX.len() + 2 * BYTES;

/// SHA-256 of a secret. It tells a token from a later one with the same name.
pub(crate) type Hash = [u8; 32];

/// A token, as the store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    /// Name.
    pub(crate) name: Name,
    /// Role of callers that show it.
    pub(crate) role: Role,
    /// Wall clock of its creation, milliseconds since the Unix epoch.
    pub(crate) created_ms: u64,
    /// Wall clock from which on it is no longer valid.
    pub(crate) expires_ms: u64,
    /// Hash of its secret.
    pub(crate) hash: Hash,
}

impl Token {
    /// Returns whether it is valid at a time of the wall clock. While that clock is set back, an
    /// expired token is valid again.
    pub(crate) const fn is_valid(&self, now_ms: u64) -> bool {
        now_ms < self.expires_ms
    }
}

/// Times at which tokens were shown last.
#[derive(Debug, Default)]
pub(crate) struct LastUse(Mutex<BTreeMap<Hash, u64>>);

impl LastUse {
    /// Notes that one of these tokens was shown. Forgets all that are not among them.
    pub(crate) fn note(&self, tokens: &[Token], hash: Hash, now_ms: u64) {
        let mut times = self.lock();
        times.insert(hash, now_ms);
        if times.len() > tokens.len() {
            times.retain(|hash, _| tokens.iter().any(|token| token.hash == *hash));
        }
    }

    /// Forgets a token that was deleted.
    pub(crate) fn forget(&self, hash: &Hash) {
        self.lock().remove(hash);
    }

    /// Returns the time in milliseconds since the Unix epoch; `None` if it was not shown to this
    /// daemon.
    pub(crate) fn at(&self, hash: &Hash) -> Option<u64> {
        self.lock().get(hash).copied()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Hash, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Generates a new secret.
pub(crate) fn generate() -> io::Result<String> {
    Ok(PREFIX.to_owned() + &random()?)
}

/// Returns 256 random bits of the kernel as hexadecimal digits.
pub(crate) fn random() -> io::Result<String> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    let mut text = String::with_capacity(2 * BYTES);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

/// Returns the hash of a secret.
pub(crate) fn hash(secret: &[u8]) -> Hash {
    Sha256::digest(secret).into()
}

/// Finds the token with this secret, in time that depends only on the number of tokens.
pub(crate) fn find<'a>(tokens: &'a [Token], text: &[u8], now_ms: u64) -> Option<&'a Token> {
    if text.len() != LENGTH {
        return None;
    }
    let shown = hash(text);
    let mut found = None;
    for token in tokens {
        if bool::from(token.hash.ct_eq(&shown)) {
            found = Some(token);
        }
    }
    found.filter(|token| token.is_valid(now_ms))
}

/// Finds a token by its hash, if it is still there and valid.
pub(crate) fn with_hash<'a>(tokens: &'a [Token], hash: &Hash, now_ms: u64) -> Option<&'a Token> {
    tokens.iter().find(|token| token.hash == *hash).filter(|token| token.is_valid(now_ms))
}

/// Returns the wall clock in milliseconds since the Unix epoch.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(name: &str, secret: &str) -> Token {
        let name = name.parse().unwrap();
        Token { name, role: Role::View, created_ms: 0, expires_ms: 1000, hash: hash(secret.as_bytes()) }
    }

    #[test]
    fn secrets_have_256_bits_that_differ() {
        let [one, other] = [generate().unwrap(), generate().unwrap()];
        assert_ne!(one, other);
        assert!(one.starts_with("taut_") && one.len() == LENGTH, "{one}");
        assert!(one[5..].bytes().all(|byte| byte.is_ascii_hexdigit()), "{one}");
    }

    #[test]
    fn only_the_whole_secret_of_a_valid_token_is_taken() {
        let (one, other) = (generate().unwrap(), generate().unwrap());
        let tokens = [token("one", &one), token("other", &other)];
        let named = |text: &str, now| find(&tokens, text.as_bytes(), now).map(|token| token.name.to_string());
        assert_eq!(named(&one, 0).as_deref(), Some("one"));
        assert_eq!(named(&other, 999).as_deref(), Some("other"));
        assert_eq!(named(&one, 1000), None, "expired");
        for wrong in ["", "taut_", &one[..LENGTH - 1], &format!("{one}0"), &generate().unwrap()] {
            assert_eq!(named(wrong, 0), None, "{wrong}");
        }
        assert_eq!(with_hash(&tokens, &hash(other.as_bytes()), 0).unwrap().name.as_str(), "other");
        assert_eq!(with_hash(&tokens, &hash(other.as_bytes()), 1000), None);
        assert_eq!(find(&[], one.as_bytes(), 0), None);
    }
}
