//! The views: each a function from answers of the API to the text of a page.

pub mod audit;
pub mod events;
pub mod guide;
pub mod host;
pub mod login;
pub mod networks;
pub mod port;
pub mod portgroup;
pub mod process;
pub mod sockets;
mod times;
pub mod vm;
pub mod vms;

use maud::{Markup, html};
use taut_api::link::{Link, LinkReason};
use taut_api::statistics::Period;
use taut_api::vm::Phase;

use crate::{guide as pages, text};

/// Shows a word with a mark in front, whose shape and colour follow the class.
fn state(class: &'static str, word: &str) -> Markup {
    html! { span.state.(class) { (word) } }
}

/// Shows the state of a link.
fn link(link: Link) -> Markup {
    let class = match link {
        Link::Up => "good",
        Link::Down => "off",
        Link::Broken => "bad",
    };
    state(class, text::link(link))
}

/// Shows the reason that a link is not up, or leads nowhere, with a link to its section of the
/// guide.
fn link_reason(link: Link, reason: &str) -> Markup {
    let kind = LinkReason::of(link, reason);
    html! { span.reason { (text::shown(reason)) " " (about(kind.code(), &kind.guide())) } }
}

/// Links a code to its section of the guide, at a place such as `docs/guide/reasons.md#link-other`.
fn about(code: &str, place: &str) -> Markup {
    html! { a.about href=(pages::address(place)) { (code) } }
}

/// Shows the state of a VM's process.
fn phase(phase: Phase) -> Markup {
    let (class, word) = match phase {
        Phase::Stopped => ("off", "stopped"),
        Phase::Starting => ("wait", "starting"),
        Phase::Running => ("good", "running"),
        Phase::Stopping => ("wait", "stopping"),
        Phase::Failed => ("bad", "failed"),
    };
    state(class, word)
}

/// Shows the choice of a period, which is kept in the address.
fn periods(address: &str, period: &str) -> Markup {
    html! {
        form.period method="get" action=(address) role="search" aria-label="Period of averages" {
            label for="period" { "Average over" }
            input #period type="text" name="period" value=(period) size="6" maxlength="12" required
                autocomplete="off" aria-describedby="period-hint";
            button type="submit" { "Show" }
            span.hint #period-hint { "a number with s, m, h or d, up to " (Period::LONGEST) }
            span.quick {
                @for usual in ["1m", "5m", "1h", "1d"] {
                    @let current = (usual == period).then_some("true");
                    a href=(format!("{address}?period={usual}")) aria-current=[current] { (usual) }
                    " "
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
