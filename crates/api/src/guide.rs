//! The guide's page of reason codes: each code has a section, whose heading is the kind of the code
//! and the code.

/// The page, as a path in the documents of taut.
pub const REASONS: &str = "docs/guide/reasons.md";

/// Returns the place of the section with this heading on the page.
pub fn section(kind: &str, code: &str) -> String {
    format!("{REASONS}#{}", anchor(&format!("{kind} {code}")))
}

/// Returns the anchor of a heading, by the rules of renderers of Markdown: small letters, digits,
/// hyphens and underscores stay, a space becomes a hyphen, and other characters are left out.
pub fn anchor(heading: &str) -> String {
    let each = |character: char| match character {
        ' ' => Some('-'),
        '-' | '_' => Some(character),
        _ => character.is_alphanumeric().then_some(character),
    };
    heading.to_lowercase().chars().filter_map(each).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;
    use crate::error::ErrorKind;
    use crate::fabric::DropReason;
    use crate::link::LinkReason;
    use crate::statistics::Wait;

    #[test]
    fn anchors_are_those_of_the_headings() {
        assert_eq!(section("check", "cpu.bare-metal"), "docs/guide/reasons.md#check-cpubare-metal");
        assert_eq!(DropReason::RingFull.guide(), "docs/guide/reasons.md#drop-ring-full");
    }

    /// The sections of checks are tested where the checks are.
    #[test]
    fn each_code_has_a_section_and_each_section_a_code() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(REASONS);
        let page = std::fs::read_to_string(page).unwrap();
        let headings = page.lines().filter_map(|line| line.strip_prefix("### "));
        let sections: BTreeSet<_> =
            headings.filter(|heading| !heading.starts_with("check ")).map(str::to_owned).collect();
        let codes = DropReason::ALL.iter().map(|reason| format!("drop {}", reason.code()));
        let codes = codes.chain(LinkReason::ALL.iter().map(|reason| format!("link {}", reason.code())));
        let codes = codes.chain(ErrorKind::ALL.iter().map(|kind| format!("refusal {}", kind.code())));
        let codes = codes.chain(Wait::ALL.iter().map(|wait| format!("wait {}", wait.code())));
        assert_eq!(sections, codes.collect());
    }
}
