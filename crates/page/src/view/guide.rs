//! Pages of the guide.

use std::sync::LazyLock;

use maud::{Markup, PreEscaped, html};

use crate::frame::{Frame, Page};
use crate::guide::{Document, Rendered};

static REASONS: LazyLock<Rendered> = LazyLock::new(|| Document::Reasons.render());
static CHECKS: LazyLock<Rendered> = LazyLock::new(|| Document::Checks.render());

/// Renders a page of the guide.
pub fn page(frame: &Frame, document: Document) -> String {
    let rendered = match document {
        Document::Reasons => &*REASONS,
        Document::Checks => &*CHECKS,
    };
    let body = html! {
        (contents(rendered))
        div.guide { (PreEscaped(&rendered.html)) }
    };
    frame.render(&Page { title: rendered.title.clone(), section: None, live: false, refresh: false, body })
}

fn contents(rendered: &Rendered) -> Markup {
    html! {
        nav.siblings aria-label="Contents" {
            @for (anchor, text) in &rendered.sections { a href=(format!("#{anchor}")) { (text) } " " }
            @for (document, name) in [(Document::Reasons, "All reasons"), (Document::Checks, "About checks")] {
                a href=(document.address()) { (name) } " "
            }
        }
    }
}
