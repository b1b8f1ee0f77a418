//! Tokens in the store's file.
//!
//! Tokens are no documents: nothing on the host depends on them, so a write raises no revision and
//! does not wake the reconcile loop. Whoever serves connections waits for changes of the list.

use std::sync::Arc;

use rusqlite::{Connection, params};
use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_api::role::Role;
use tokio::sync::watch;

use super::{OpenError, Store, refused_by_disk};
use crate::access::tokens::{Hash, MOST, Token};

/// The table. As that of owners, it is not part of the format: a version that does not know it
/// leaves it as it is.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS tokens (name TEXT PRIMARY KEY, role TEXT NOT NULL,
    created_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL, hash BLOB NOT NULL) STRICT";

/// All tokens as of some moment.
pub(crate) type Tokens = Arc<Vec<Token>>;

/// Reads all tokens. One whose name or role this version does not know is left out: it opens
/// nothing, and the daemon starts nevertheless.
pub(super) fn load(db: &Connection) -> Result<Vec<Token>, OpenError> {
    let exists = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'tokens'";
    if db.query_row(exists, [], |row| row.get::<_, u64>(0))? == 0 {
        return Ok(Vec::new());
    }
    let mut query =
        db.prepare("SELECT name, role, created_ms, expires_ms, hash FROM tokens ORDER BY name")?;
    let mut rows = query.query([])?;
    let mut tokens = Vec::new();
    while let Some(row) = rows.next()? {
        let (name, role): (String, String) = (row.get(0)?, row.get(1)?);
        let known = Role::ALL.into_iter().find(|known| known.as_str() == role);
        let Some((name, role)) = name.parse().ok().zip(known) else {
            tracing::warn!(token = name, role, "a token is left out: its name or role is not known");
            continue;
        };
        tokens.push(Token {
            name,
            role,
            created_ms: row.get(2)?,
            expires_ms: row.get(3)?,
            hash: row.get::<_, Hash>(4)?,
        });
    }
    Ok(tokens)
}

impl Store {
    /// Returns all tokens by name, expired ones included.
    pub(crate) fn tokens(&self) -> Tokens {
        self.tokens.borrow().clone()
    }

    /// Returns a view of the tokens that tells of each change.
    pub(crate) fn watch_tokens(&self) -> watch::Receiver<Tokens> {
        self.tokens.subscribe()
    }

    /// Adds a token. `Ok` means that it is on disk.
    pub(crate) fn add_token(&self, token: Token) -> Result<(), ApiError> {
        let db = self.durable();
        let mut tokens = Vec::clone(&self.tokens());
        if tokens.iter().any(|other| other.name == token.name) {
            return Err(ApiError::new(
                ErrorKind::Conflict,
                format!("token `{}` exists already", token.name),
                format!("delete it first (taut token delete {}), or use another name", token.name),
            ));
        }
        if tokens.len() >= MOST {
            return Err(ApiError::new(
                ErrorKind::Conflict,
                format!("there are {MOST} tokens, which is the limit"),
                "delete one that is no longer used: taut token list",
            ));
        }
        let Token { name, role, created_ms, expires_ms, hash } = &token;
        let row = params![name.as_str(), role.as_str(), created_ms, expires_ms, hash];
        let insert = |db: &Connection| {
            db.execute(TABLE, [])?;
            db.execute("INSERT INTO tokens VALUES (?1, ?2, ?3, ?4, ?5)", row)
        };
        insert(&db).map_err(|error| refused_by_disk(&error))?;
        let place = tokens.partition_point(|other| other.name < token.name);
        tokens.insert(place, token);
        self.tokens.send_replace(Arc::new(tokens));
        Ok(())
    }

    /// Deletes a token and returns it; `None` if there is none with this name.
    pub(crate) fn delete_token(&self, name: &taut_api::Name) -> Result<Option<Token>, ApiError> {
        let db = self.durable();
        let mut tokens = Vec::clone(&self.tokens());
        let Some(place) = tokens.iter().position(|token| token.name == *name) else { return Ok(None) };
        let sql = "DELETE FROM tokens WHERE name = ?1";
        db.execute(sql, [name.as_str()]).map_err(|error| refused_by_disk(&error))?;
        let deleted = tokens.remove(place);
        self.tokens.send_replace(Arc::new(tokens));
        Ok(Some(deleted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::tokens::hash;

    fn token(name: &str) -> Token {
        let name: taut_api::Name = name.parse().unwrap();
        let hash = hash(name.as_str().as_bytes());
        Token { name, role: Role::Define, created_ms: 1, expires_ms: 2, hash }
    }

    #[test]
    fn tokens_are_kept_and_each_change_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let mut watch = store.watch_tokens();
        store.add_token(token("b")).unwrap();
        store.add_token(token("a")).unwrap();
        assert!(watch.has_changed().unwrap());
        assert_eq!(*watch.borrow_and_update().as_ref(), [token("a"), token("b")]);
        let error = store.add_token(token("a")).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Conflict);
        assert_eq!(store.delete_token(&"b".parse().unwrap()).unwrap(), Some(token("b")));
        assert_eq!(store.delete_token(&"b".parse().unwrap()).unwrap(), None);
        let revision = store.state().revision;
        drop(store);
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(*store.tokens(), [token("a")]);
        assert_eq!(store.state().revision, revision);
    }

    #[test]
    fn their_number_is_limited() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        for number in 0..MOST {
            store.add_token(token(&format!("t{number}"))).unwrap();
        }
        let error = store.add_token(token("more")).unwrap_err();
        assert!(error.to_string().contains("64 tokens"), "{error}");
        assert_eq!(store.tokens().len(), MOST);
    }

    #[test]
    fn a_token_whose_role_is_not_known_opens_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        store.add_token(token("a")).unwrap();
        store.add_token(token("b")).unwrap();
        store.durable().execute("UPDATE tokens SET role = 'owner' WHERE name = 'a'", []).unwrap();
        drop(store);
        assert_eq!(*Store::open(dir.path()).unwrap().tokens(), [token("b")]);
    }
}
