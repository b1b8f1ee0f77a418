//! The page that asks for a token.

use maud::html;
use taut_api::ApiError;

use crate::frame::{Frame, Page, alert};

/// Address of the page, which also takes its form.
pub const LOGIN: &str = "/login";
/// Name of the form's field.
pub const FIELD: &str = "token";

/// Renders the page; with the error, if the last attempt was refused.
pub fn page(refused: Option<&ApiError>) -> String {
    let body = html! {
        @if let Some(error) = refused { (alert(error)) }
        form method="post" action=(LOGIN) {
            p {
                label for="token" { "Token" } " "
                input #token type="password" name=(FIELD) size="50" maxlength="100" required
                    autocomplete="current-password" aria-describedby="token-hint";
                " "
                button type="submit" { "Log in" }
            }
            p.hint #token-hint {
                "An administrator makes one on the host: " code { "taut token create NAME --role view" }
            }
        }
    };
    // A visitor without a session learns nothing about the host.
    Frame::default().render(&Page {
        title: "Log in".to_owned(),
        section: None,
        live: false,
        refresh: false,
        body,
    })
}
