//! The audit record, newest first.

use maud::{Markup, html};
use taut_api::audit::{AuditCaller, AuditEntry};

use crate::frame::{Frame, Page, Section, wide};
use crate::text;
use crate::view::state;

/// Renders the page.
pub fn page(frame: &Frame, entries: &[AuditEntry], refused: bool) -> String {
    let body = html! {
        p.sort {
            "Show: "
            @let choices = [
                ("", "changes", !refused),
                ("?refused=true", "requests without the role", refused),
            ];
            @for (word, name, is_this) in choices {
                a href=(format!("/audit{word}")) aria-current=[is_this.then_some("true")] { (name) }
                " "
            }
        }
        section #entries {
            @if entries.is_empty() { p.quiet { "There is no such entry." } }
            @else { (wide("Audit record", &table(entries))) }
        }
    };
    frame.render(&Page {
        title: "Audit record".to_owned(),
        section: Some(Section::Audit),
        live: true,
        refresh: true,
        body,
    })
}

fn table(entries: &[AuditEntry]) -> Markup {
    html! {
        table {
            thead { tr {
                th.number scope="col" { "Number" }
                th scope="col" { "Time" }
                th scope="col" { "User" }
                th scope="col" { "Program" }
                th scope="col" { "Request" }
                th scope="col" { "Outcome" }
            } }
            tbody { @for entry in entries.iter().rev() {
                tr {
                    th.number scope="row" { (entry.seq) }
                    td.time { (text::time(entry.at_ms)) }
                    td { (user(&entry.caller)) }
                    td.message {
                        @match entry.caller.address {
                            Some(address) => { "from " (address) }
                            None => (text::shown(entry.caller.program.as_deref().unwrap_or("not known"))),
                        }
                        @if let Some(pid) = entry.caller.pid { ", process " (pid) }
                    }
                    td.message { (entry.method) " " (text::shown(&entry.path)) }
                    td.message { (outcome(entry)) }
                }
            } }
        }
    }
}

fn user(caller: &AuditCaller) -> Markup {
    html! {
        @match (&caller.token, caller.uid) {
            (Some(token), _) => { "token " (token) }
            (None, Some(uid)) => (uid),
            (None, None) => { "not known" }
        }
        @if let Some(login) = caller.loginuid.filter(|login| Some(*login) != caller.uid) {
            ", logged in as " (login)
        }
        @match caller.role { Some(role) => { ", " (role) }, None => ", no role" }
    }
}

fn outcome(entry: &AuditEntry) -> Markup {
    html! {
        @match &entry.outcome {
            None => (state("wait", "none yet")),
            Some(outcome) => {
                (state(if outcome.status < 400 { "good" } else { "bad" }, &outcome.status.to_string()))
                @if let Some(document) = &outcome.document {
                    ": " (document.subject) ", revision " (document.revision)
                }
                @if let Some(error) = &outcome.error { span.reason { (text::shown(error)) } }
            }
        }
    }
}
