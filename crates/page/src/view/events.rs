//! The event log, newest first.

use maud::{Markup, html};
use taut_api::Name;
use taut_api::event::{Event, Level};

use crate::frame::{Frame, Page, Section, wide};
use crate::text;
use crate::view::state;

/// Events that the page shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filter {
    /// Least severe level.
    pub least: Level,
    /// Number of the newest ones that are listed.
    pub newest: usize,
}

impl Filter {
    /// Most events on the page.
    pub const MOST: usize = 1000;
}

impl Default for Filter {
    fn default() -> Self {
        Self { least: Level::Info, newest: 300 }
    }
}

/// Names of the levels as a choice of the least severe one.
const LEVELS: [(Level, &str); 3] =
    [(Level::Info, "all"), (Level::Warning, "warnings and errors"), (Level::Error, "errors")];

/// Renders the page: the events that the filter has let pass, from the oldest on.
pub fn page(frame: &Frame, events: &[Event], filter: Filter) -> String {
    let body = html! {
        (form(filter))
        section #events {
            @if events.is_empty() { p.quiet { "There is no such event." } }
            @else { (wide("Events", &table(events))) }
            @if events.len() == filter.newest { p.quiet { "The newest " (filter.newest) " are listed." } }
        }
    };
    frame.render(&Page {
        title: "Events".to_owned(),
        section: Some(Section::Events),
        live: true,
        refresh: false,
        body,
    })
}

fn form(filter: Filter) -> Markup {
    html! {
        form.period method="get" action="/events" role="search" aria-label="Choice of events" {
            label for="level" { "Show" }
            select #level name="level" {
                @for (level, name) in LEVELS {
                    option value=(level.as_str()) selected[level == filter.least] { (name) }
                }
            }
            label for="newest" { "newest" }
            input #newest type="text" inputmode="numeric" pattern="[0-9]*" name="newest"
                value=(filter.newest) size="5" maxlength="5" required autocomplete="off"
                title="a whole number" aria-describedby="newest-hint";
            button type="submit" { "Show" }
            span.hint #newest-hint { "1 to " (Filter::MOST) }
        }
    }
}

/// Returns the level with this word in addresses.
pub fn level(word: &str) -> Option<Level> {
    Level::ALL.into_iter().find(|level| level.as_str() == word)
}

fn table(events: &[Event]) -> Markup {
    html! {
        table {
            thead { tr {
                th scope="col" { "Time" }
                th scope="col" { "Level" }
                th scope="col" { "Subject" }
                th scope="col" { "Kind" }
                th scope="col" { "Message" }
            } }
            tbody { @for event in events.iter().rev() {
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
                    td.message { (text::shown(&event.message)) }
                }
            } }
        }
    }
}

/// Shows a subject, with a link if it has a page.
fn subject(subject: &str) -> Markup {
    let address = subject.split_once('/').and_then(|(kind, rest)| {
        let (first, more) = rest.split_once('/').map_or((rest, None), |(first, more)| (first, Some(more)));
        let name = first.parse::<Name>().ok()?;
        match (kind, more) {
            ("vm", Some(more)) if more.starts_with("nic") => Some(text::port_address(subject)),
            ("vm", _) => Some(text::vm_address(name.as_str())),
            ("portgroup", None) => Some(text::portgroup_address(name.as_str())),
            ("vswitch", None) => Some(format!("/networks#vswitch-{name}")),
            ("uplink" | "netns" | "external" | "netdev", None) => Some(text::port_address(subject)),
            _ => None,
        }
    });
    html! { @match address { Some(address) => a href=(address) { (text::shown(subject)) }, None => (text::shown(subject)) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_lead_to_their_pages() {
        let of = |text| subject(text).into_string();
        assert!(of("vm/web1").starts_with("<a href=\"/vms/web1\">"));
        assert!(of("vm/web1/nic0").starts_with("<a href=\"/ports/vm/web1/nic0\">"));
        assert!(of("vswitch/prod").starts_with("<a href=\"/networks#vswitch-prod\">"));
        for text in ["vm/<b>", "host", "vm/", "daemon", "host/settings", "uplink/../x"] {
            assert!(!of(text).contains("<a"), "{text}");
        }
    }
}
