//! Pages of the guide, as HTML: those that explain the reasons and checks that the page shows.
//!
//! Only CommonMark without raw HTML is rendered. Each heading has the anchor that the guide's own
//! links use. A link to a page of the guide that is not rendered here becomes its text and the name
//! of the file.

use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use taut_api::guide;

/// A page of the guide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Document {
    /// Reasons: of drops, links, waits, refusals and checks.
    Reasons,
    /// Checks, and dense mode.
    Checks,
}

/// A rendered page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rendered {
    /// Title.
    pub(crate) title: String,
    /// Anchors and texts of the sections.
    pub(crate) sections: Vec<(String, String)>,
    /// Content below the title.
    pub(crate) html: String,
}

impl Document {
    const ALL: [Self; 2] = [Self::Reasons, Self::Checks];

    const fn text(self) -> &'static str {
        match self {
            Self::Reasons => include_str!("../../../docs/guide/reasons.md"),
            Self::Checks => include_str!("../../../docs/guide/checks.md"),
        }
    }

    /// Returns the path of the file in the documents of taut.
    const fn path(self) -> &'static str {
        match self {
            Self::Reasons => guide::REASONS,
            Self::Checks => "docs/guide/checks.md",
        }
    }

    /// Returns the address of the page.
    pub const fn address(self) -> &'static str {
        match self {
            Self::Reasons => "/reasons",
            Self::Checks => "/checks",
        }
    }

    /// Renders the page.
    pub(crate) fn render(self) -> Rendered {
        let mut rendered = Rendered { title: String::new(), sections: Vec::new(), html: String::new() };
        let mut parser = Parser::new_ext(self.text(), Options::empty());
        let mut events = Vec::new();
        let mut open_links = Vec::new();
        while let Some(event) = parser.next() {
            match event {
                // Raw HTML and images are left out.
                Event::Html(_)
                | Event::InlineHtml(_)
                | Event::Start(Tag::HtmlBlock | Tag::Image { .. })
                | Event::End(TagEnd::HtmlBlock | TagEnd::Image) => {}
                Event::Start(Tag::Heading { level, .. }) => {
                    let is_inside = |event: &Event<'_>| !matches!(event, Event::End(TagEnd::Heading(_)));
                    let inside: Vec<_> = parser.by_ref().take_while(is_inside).collect();
                    let text = plain(&inside);
                    if level == HeadingLevel::H1 {
                        rendered.title = text;
                        continue;
                    }
                    let id = guide::anchor(&text);
                    if level == HeadingLevel::H2 {
                        rendered.sections.push((id.clone(), text));
                    }
                    let (id, classes, attrs) = (Some(CowStr::from(id)), Vec::new(), Vec::new());
                    events.push(Event::Start(Tag::Heading { level, id, classes, attrs }));
                    events.extend(inside);
                    events.push(Event::End(TagEnd::Heading(level)));
                }
                Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                    let here = here(&dest_url);
                    if let Some(address) = here.clone() {
                        events.push(Event::Start(Tag::Link {
                            link_type,
                            dest_url: address.into(),
                            title,
                            id,
                        }));
                    }
                    open_links.push((here.is_some(), dest_url));
                }
                Event::End(TagEnd::Link) => match open_links.pop() {
                    Some((false, elsewhere)) => events.push(Event::Text(named(&elsewhere).into())),
                    _ => events.push(Event::End(TagEnd::Link)),
                },
                other => events.push(other),
            }
        }
        pulldown_cmark::html::push_html(&mut rendered.html, events.into_iter());
        rendered
    }
}

/// Returns the text of events without their marks.
fn plain(events: &[Event<'_>]) -> String {
    let text = |event: &Event<'_>| match event {
        Event::Text(text) | Event::Code(text) => text.to_string(),
        Event::SoftBreak | Event::HardBreak => " ".to_owned(),
        _ => String::new(),
    };
    events.iter().map(text).collect()
}

/// Returns the address of a link of the guide, if its target is rendered here.
fn here(target: &str) -> Option<String> {
    if target.starts_with('#') {
        return Some(target.to_owned());
    }
    let (file, section) = target.split_once('#').unwrap_or((target, ""));
    let is_its = |document: &Document| document.path().strip_prefix("docs/guide/") == Some(file);
    let address = Document::ALL.into_iter().find(is_its)?.address();
    Some(if section.is_empty() { address.to_owned() } else { format!("{address}#{section}") })
}

/// Returns the name of a file of taut's documents, in parentheses.
fn named(target: &str) -> String {
    let (file, _) = target.split_once('#').unwrap_or((target, ""));
    match file.strip_prefix("../") {
        Some(file) => format!(" (docs/{file})"),
        None if file.contains("://") => format!(" ({file})"),
        None => format!(" (docs/guide/{file})"),
    }
}

/// Returns the address on the page of a place in the guide, such as
/// `docs/guide/reasons.md#link-no-path`.
pub(crate) fn address(place: &str) -> String {
    place.replacen(guide::REASONS, Document::Reasons.address(), 1)
}

#[cfg(test)]
mod tests {
    use taut_api::link::LinkReason;

    use super::*;

    #[test]
    fn sections_have_the_anchors_that_reasons_name() {
        let reasons = Document::Reasons.render();
        assert_eq!(reasons.title, "Reasons");
        for kind in LinkReason::ALL {
            let address = address(&kind.guide());
            let anchor = address.strip_prefix("/reasons#").unwrap();
            assert!(reasons.html.contains(&format!("<h3 id=\"{anchor}\">")), "{address}");
        }
        assert!(reasons.html.contains("<h3 id=\"check-cpubare-metal\">"));
        assert_eq!(reasons.sections.first().unwrap().0, "drops");
    }

    #[test]
    fn links_lead_to_pages_that_exist_and_no_raw_html_is_passed_on() {
        assert_eq!(here("#drops").as_deref(), Some("#drops"));
        assert_eq!(here("reasons.md#drops").as_deref(), Some("/reasons#drops"));
        assert_eq!(here("checks.md").as_deref(), Some("/checks"));
        assert_eq!(here("networks.md#x"), None);
        assert_eq!(here("javascript:alert(1)"), None);
        assert_eq!(named("../adr/0001.md#x"), " (docs/adr/0001.md)");
        for document in Document::ALL {
            let html = document.render().html;
            assert!(!html.contains("<!--") && !html.contains("<script"), "{html}");
            for link in html.split("href=\"").skip(1) {
                assert!(link.starts_with(['#', '/']), "{link}");
            }
        }
    }
}
