//! Files that pages refer to. Their names contain a hash of their content, so that browsers may
//! keep them for ever and yet never use an old one.

/// A file that pages refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asset {
    /// Media type.
    pub media_type: &'static str,
    /// Content.
    pub content: &'static str,
    stem: &'static str,
    extension: &'static str,
    hash: u64,
}

/// The style sheet of all pages, for light and dark.
pub const STYLE: Asset =
    Asset::new("page", "css", "text/css; charset=utf-8", include_str!("assets/page.css"));
/// The script, which replaces what has changed. Pages work without it.
pub const SCRIPT: Asset =
    Asset::new("page", "js", "text/javascript; charset=utf-8", include_str!("assets/page.js"));
/// The icon that browsers show beside the title.
pub const ICON: Asset = Asset::new("icon", "svg", "image/svg+xml", include_str!("assets/icon.svg"));

/// Folder of assets in addresses.
pub const FOLDER: &str = "/assets/";

impl Asset {
    const fn new(
        stem: &'static str,
        extension: &'static str,
        media_type: &'static str,
        content: &'static str,
    ) -> Self {
        Self { media_type, content, stem, extension, hash: fnv(content.as_bytes()) }
    }

    /// Returns the asset with this file name.
    pub fn named(name: &str) -> Option<Self> {
        [STYLE, SCRIPT, ICON].into_iter().find(|asset| asset.name() == name)
    }

    /// Returns the file name.
    pub fn name(&self) -> String {
        format!("{}-{:016x}.{}", self.stem, self.hash, self.extension)
    }

    /// Returns the address on the same server.
    pub fn address(&self) -> String {
        format!("{FOLDER}{}", self.name())
    }
}

/// Returns the 64-bit FNV-1a hash. It tells versions of a file apart and protects nothing.
const fn fnv(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut index = 0;
    while index < bytes.len() {
        hash = (hash ^ bytes[index] as u64).wrapping_mul(0x0100_0000_01b3);
        index += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_content() {
        assert_eq!(fnv(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(Asset::named(&STYLE.name()), Some(STYLE));
        assert_eq!(Asset::named("page-0000000000000000.css"), None);
        assert_eq!(Asset::named("../page.css"), None);
    }

    #[test]
    fn the_script_stays_small_and_evaluates_no_text() {
        assert!(SCRIPT.content.lines().count() < 100);
        for word in ["eval(", "innerHTML", "Function("] {
            assert!(!SCRIPT.content.contains(word), "{word}");
        }
    }
}
