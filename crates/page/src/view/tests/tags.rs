//! Rules for the HTML of all pages, checked by a scanner for what `maud` writes.

use std::collections::BTreeSet;

const VOID: [&str; 5] = ["meta", "link", "input", "br", "hr"];

/// An opening tag.
struct Tag<'a> {
    name: &'a str,
    attributes: Vec<(&'a str, &'a str)>,
}

impl Tag<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }
}

/// Panics where a page breaks a rule.
pub(super) fn check(page: &str) {
    let tags = balanced(page);
    let mut ids = BTreeSet::new();
    for tag in &tags {
        for (name, value) in &tag.attributes {
            assert!(*name != "style" && !name.starts_with("on"), "inline {name} of {}", tag.name);
            assert!(!value.contains("javascript:"), "{value}");
            let is_address = ["href", "src", "action"].contains(name);
            assert!(!is_address || value.starts_with('/') || value.starts_with('#'), "{value} is elsewhere");
        }
        if let Some(id) = tag.get("id") {
            assert!(ids.insert(id), "two elements have the id {id}");
        }
    }
    let labelled: BTreeSet<_> =
        tags.iter().filter(|tag| tag.name == "label").filter_map(|tag| tag.get("for")).collect();
    for tag in &tags {
        match tag.name {
            "input" | "select" | "meter" => {
                let by_label = tag.get("id").is_some_and(|id| labelled.contains(id));
                let within = matches!(tag.get("type"), Some("radio" | "hidden"));
                assert!(
                    by_label || within || tag.get("aria-label").is_some(),
                    "{} without a label",
                    tag.name
                );
            }
            "th" => assert!(tag.get("scope").is_some(), "a head without a scope"),
            "svg" => assert!(
                tag.get("aria-hidden").is_some() || matches!(tag.get("role"), Some("img" | "group")),
                "a drawing without a role"
            ),
            "style" => panic!("inline style"),
            "script" => assert!(tag.get("src").is_some(), "inline script"),
            _ => {}
        }
        for reference in ["aria-describedby", "aria-labelledby"] {
            if let Some(id) = tag.get(reference) {
                assert!(ids.contains(id), "{reference}={id} leads nowhere");
            }
        }
    }
    for drawing in page.split("<svg").skip(1).map(|rest| rest.split("</svg>").next().unwrap_or(rest)) {
        let is_image = drawing.split('>').next().is_some_and(|tag| tag.contains("role=\"img\""));
        assert!(!is_image || !drawing.contains("<a "), "an image hides the links in it");
        let is_named = drawing.contains("<title>") && drawing.contains("<desc>");
        assert!(drawing.contains("aria-hidden") || is_named, "a drawing without title and description");
    }
    let count = |name| tags.iter().filter(|tag| tag.name == name).count();
    assert_eq!((count("h1"), count("main"), count("title") > 0), (1, 1, true));
    assert!(page.contains("class=\"skip\" href=\"#content\""));
}

/// Returns all opening tags, after a check that each one is closed.
fn balanced(page: &str) -> Vec<Tag<'_>> {
    let mut tags = Vec::new();
    let mut open = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("a document type");
    while let Some(begin) = rest.find('<') {
        let inside = &rest[begin + 1..];
        let end = inside.find('>').expect("an end of the tag");
        rest = &inside[end + 1..];
        let text = &inside[..end];
        if let Some(name) = text.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "closed in another order");
            continue;
        }
        let tag = parse(text);
        if !VOID.contains(&tag.name) {
            open.push(tag.name);
        }
        tags.push(tag);
    }
    assert!(open.is_empty(), "not closed: {open:?}");
    tags
}

fn parse(text: &str) -> Tag<'_> {
    let (name, mut rest) = text.split_once(' ').unwrap_or((text, ""));
    let mut attributes = Vec::new();
    while !rest.is_empty() {
        let end = rest.find([' ', '=']).unwrap_or(rest.len());
        let key = &rest[..end];
        let value;
        (value, rest) = match rest[end..].strip_prefix("=\"") {
            Some(quoted) => quoted.split_once('"').expect("an end of the value"),
            None => ("", &rest[end..]),
        };
        attributes.push((key, value));
        rest = rest.trim_start();
    }
    Tag { name, attributes }
}
