//! `/v1/tokens`: tokens of callers over TCP.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use taut_api::audit::AuditedDocument;
use taut_api::error::ErrorKind;
use taut_api::event::Level;
use taut_api::token::{CreateToken, CreatedToken, LONGEST_VALIDITY_S, TokenInfo};
use taut_api::{ApiError, Name, path};

use super::body::{Body, Failure, Named};
use super::gate::Written;
use super::{App, Shared};
use crate::access::audit::digest;
use crate::access::tokens::{self, Token, now_ms};

/// Lists the tokens of callers over TCP, without their secrets.
#[utoipa::path(get, path = path::TOKENS, tag = "Tokens", responses((status = 200, body = [TokenInfo])))]
pub(super) async fn list_tokens(State(app): State<Shared>) -> Json<Vec<TokenInfo>> {
    Json(app.store.tokens().iter().map(|token| info(&app, token)).collect())
}

/// Creates a token. The answer has its secret, which is stored nowhere.
#[utoipa::path(post, path = path::TOKENS, tag = "Tokens", request_body = CreateToken,
    responses((status = 201, body = CreatedToken), (status = 400, body = ApiError),
        (status = 409, body = ApiError), (status = 503, body = ApiError)))]
pub(super) async fn create_token(
    State(app): State<Shared>,
    Body(CreateToken { name, role, valid_s }): Body<CreateToken>,
) -> Result<(StatusCode, Json<CreatedToken>), Failure> {
    if !(1..=LONGEST_VALIDITY_S).contains(&valid_s) {
        let message = format!("a token cannot be valid for {valid_s} s");
        let error =
            ApiError::new(ErrorKind::Invalid, message, "choose a time from one second to 366 days: 30d");
        return Err(error.into());
    }
    let secret =
        tokens::generate().map_err(|error| Failure::internal("the kernel gives no random bits", &error))?;
    let created_ms = now_ms();
    let token = Token {
        name,
        role,
        created_ms,
        expires_ms: created_ms + valid_s * 1000,
        hash: tokens::hash(secret.as_bytes()),
    };
    let added = token.clone();
    let message = format!("token `{}` with the role `{}` was created", token.name, token.role);
    let after = described(&token);
    let store = app.store.clone();
    change(&app, &token.name, "created", message, (None, Some(after)), move || store.add_token(added))
        .await?;
    let remote = app.remote.info.clone();
    Ok((StatusCode::CREATED, Json(CreatedToken { token: info(&app, &token), secret, remote })))
}

/// Deletes a token. Its sessions and connections end.
#[utoipa::path(delete, path = path::TOKEN.pattern(), tag = "Tokens",
    params(("name" = Name, Path, description = "Token")),
    responses((status = 204), (status = 404, body = ApiError), (status = 503, body = ApiError)))]
pub(super) async fn delete_token(
    State(app): State<Shared>,
    Named(name): Named,
) -> Result<StatusCode, Failure> {
    let before = app.store.tokens().iter().find(|token| token.name == name).map(described);
    let message = format!("token `{name}` was deleted");
    let (store, key) = (app.store.clone(), name.clone());
    let delete = move || match store.delete_token(&key)? {
        Some(token) => Ok(token),
        None => Err(ApiError::new(
            ErrorKind::NotFound,
            format!("there is no token `{key}`"),
            "`taut token list` shows those that exist",
        )),
    };
    let token = change(&app, &name, "deleted", message, (before, None), delete).await?;
    app.remote.used.forget(&token.hash);
    Ok(StatusCode::NO_CONTENT)
}

/// Makes a change on a thread that may wait for the disk, and has it in the audit record and in the
/// event log. The texts are those of the token before and after.
async fn change<T: Send + 'static>(
    app: &Shared,
    name: &Name,
    verb: &str,
    message: String,
    (before, after): (Option<String>, Option<String>),
    write: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, Failure> {
    let written = tokio::task::spawn_blocking(write).await;
    let written = written.map_err(|error| Failure::internal("the write was interrupted", &error))??;
    let subject = format!("token/{name}");
    Written::of_request().note(AuditedDocument {
        subject: subject.clone(),
        revision: app.store.state().revision,
        before,
        after,
    });
    app.store.event(Level::Info, &subject, &format!("token.{verb}"), &message);
    Ok(written)
}

/// Returns the digest of a token's name, role, times and hash of its secret, for the audit record.
fn described(token: &Token) -> String {
    let Token { name, role, created_ms, expires_ms, hash } = token;
    digest(format!("{name} {role} {created_ms} {expires_ms} {}", digest(hash)).as_bytes())
}

fn info(app: &App, token: &Token) -> TokenInfo {
    TokenInfo {
        name: token.name.clone(),
        role: token.role,
        created_ms: token.created_ms,
        expires_ms: token.expires_ms,
        expired: !token.is_valid(now_ms()),
        used_ms: app.remote.used.at(&token.hash),
    }
}
