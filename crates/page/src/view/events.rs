//! The event log, newest first.

use maud::{Markup, html};
use taut_api::event::{Event, Level};

use crate::frame::{Frame, Page, Section, wide};
use crate::text;
use crate::view::state;

/// Most events on the page.
const MOST: usize = 300;

/// Renders the page: events of at least a level, the newest first.
pub fn page(frame: &Frame, events: &[Event], least: Level) -> String {
    let shown: Vec<_> = events.iter().rev().filter(|event| event.level >= least).take(MOST).collect();
    let body = html! {
        p.sort {
            "Show: "
            @for (level, word, name) in LEVELS {
                a href=(format!("/events?level={word}")) aria-current=[(level == least).then_some("true")] {
                    (name)
                }
                " "
            }
        }
        section #events {
            @if shown.is_empty() { p.quiet { "There is no such event." } }
            @else { (wide("Events", &table(&shown))) }
            @if shown.len() == MOST { p.quiet { "The newest " (MOST) " are listed." } }
        }
    };
    frame.render(&Page {
        title: "Events".to_owned(),
        section: Some(Section::Events),
        live: true,
        refresh: true,
        body,
    })
}

/// The choices: least level, its word in addresses, and its name.
const LEVELS: [(Level, &str, &str); 3] = [
    (Level::Info, "info", "all"),
    (Level::Warning, "warning", "warnings and errors"),
    (Level::Error, "error", "errors"),
];

/// Returns the level with this word in addresses.
pub fn level(word: &str) -> Option<Level> {
    LEVELS.iter().find(|(_, known, _)| *known == word).map(|(level, ..)| *level)
}

fn table(events: &[&Event]) -> Markup {
    html! {
        table {
            thead { tr {
                th scope="col" { "Time" }
                th scope="col" { "Level" }
                th scope="col" { "Subject" }
                th scope="col" { "Kind" }
                th scope="col" { "Message" }
            } }
            tbody { @for event in events {
                tr {
                    td.time { (text::time(event.at_ms)) }
                    td {
                        @match event.level {
                            Level::Info => (state("good", "info")),
                            Level::Warning => (state("wait", "warning")),
                            Level::Error => (state("bad", "error")),
                        }
                    }
                    th scope="row" { (subject(&event.subject)) }
                    td { (event.kind) }
                    td.message { (event.message) }
                }
            } }
        }
    }
}

/// Shows a subject, with a link if it is a VM.
fn subject(subject: &str) -> Markup {
    let vm = subject.strip_prefix("vm/").filter(|name| name.parse::<taut_api::Name>().is_ok());
    html! { @match vm { Some(name) => a href=(format!("/vms/{name}")) { (subject) }, None => (subject) } }
}
