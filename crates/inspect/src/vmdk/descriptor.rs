//! The descriptor of a VMDK: a text of comments, settings and extents. Every line must be known.

use crate::image::Subformat;
use crate::name::bare_name;
use crate::refusal::{Place, Refusal};

/// What a text-only descriptor begins with.
pub(crate) const FIRST_LINE: &str = "# Disk DescriptorFile";

/// Longest descriptor in bytes; QEMU reads as much.
pub(crate) const MAX_DESCRIPTOR: u64 = (1 << 20) - 1;

/// QEMU searches the whole text for this word, comments included, and opens what follows.
const PARENT_NAME: &str = "parentFileNameHint";

/// Value of `parentCID` in a disk without parent.
const NO_PARENT: &str = "ffffffff";

/// Settings that may occur once each, besides those that begin with `ddb.`. `changeTrackPath` names
/// a file of VMware's that QEMU does not use.
const KEYS: [&str; 7] =
    ["version", "encoding", "CID", "parentCID", "createType", "isNativeSnapshot", "changeTrackPath"];

/// Kinds of access and of extents (VMware, Virtual Disk Format 5.0).
const ACCESS: [&str; 3] = ["RW", "RDONLY", "NOACCESS"];
const KINDS: [&str; 8] = ["FLAT", "SPARSE", "ZERO", "VMFS", "VMFSSPARSE", "VMFSRDM", "VMFSRAW", "SESPARSE"];

/// Most characters of a line that an error repeats.
const EXCERPT: usize = 120;

/// A line such as `RW 4096 FLAT "disk-flat.vmdk" 0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExtentLine {
    access: &'static str,
    pub(super) sectors: u64,
    kind: &'static str,
    pub(super) name: String,
    /// First sector of the part of the file.
    pub(super) offset: u64,
}

/// A descriptor whose lines are all known. What they mean together is not checked yet.
#[derive(Debug, Default)]
pub(super) struct Descriptor {
    create_type: String,
    parent: String,
    extents: usize,
    first: Option<ExtentLine>,
}

impl Descriptor {
    /// Parses a descriptor. Zeros may follow the text, and nothing else.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        let (text, padding) = bytes.split_at(end);
        if padding.iter().any(|byte| *byte != 0) {
            return Err(Refusal::DescriptorEnd { bytes: bytes.len() as u64 });
        }
        let text = str::from_utf8(text)
            .map_err(|error| Refusal::DescriptorEncoding { at: error.valid_up_to() as u64 })?;
        if text.contains(PARENT_NAME) {
            return Err(Refusal::ParentName);
        }
        let mut descriptor = Self::default();
        let mut seen = Vec::with_capacity(KEYS.len());
        for (index, line) in text.split('\n').enumerate() {
            let (number, line) = (index + 1, line.trim());
            let unknown = || Refusal::DescriptorLine { number, line: line.chars().take(EXCERPT).collect() };
            if line.chars().any(|c| c.is_control() && c != '\t') {
                return Err(unknown());
            }
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(extent) = ExtentLine::parse(line) {
                descriptor.extents += 1;
                descriptor.first.get_or_insert(extent);
                continue;
            }
            let (key, value) = setting(line).ok_or_else(unknown)?;
            if is_database_key(key) {
                continue;
            }
            let key = KEYS.into_iter().find(|known| *known == key).ok_or_else(unknown)?;
            if seen.contains(&key) {
                return Err(Refusal::DescriptorRepeats { number, key });
            }
            seen.push(key);
            match key {
                "createType" => value.clone_into(&mut descriptor.create_type),
                "parentCID" => value.clone_into(&mut descriptor.parent),
                _ => {}
            }
        }
        match ["CID", "parentCID", "createType"].into_iter().find(|key| !seen.contains(key)) {
            Some(key) => Err(Refusal::DescriptorLacks { key }),
            None => Ok(descriptor),
        }
    }

    /// Checks a descriptor inside a sparse image. QEMU takes the image's only extent from the
    /// binary header.
    pub(super) fn check_sparse(self) -> Result<Subformat, Refusal> {
        let subformat = match &*self.create_type {
            "monolithicSparse" => Subformat::MonolithicSparse,
            "streamOptimized" => Subformat::StreamOptimized,
            _ => return Err(self.wrong_type(Place::Image)),
        };
        let extent = self.only_extent()?;
        if extent.kind != "SPARSE" || extent.access == "NOACCESS" {
            return Err(extent.wrong_kind("RW or RDONLY with SPARSE"));
        }
        Ok(subformat)
    }

    /// Returns the only extent of a descriptor in a file of its own.
    pub(super) fn into_flat(self) -> Result<ExtentLine, Refusal> {
        if self.create_type != "monolithicFlat" {
            return Err(self.wrong_type(Place::File));
        }
        let extent = self.only_extent()?;
        if extent.kind != "FLAT" || extent.access != "RW" {
            return Err(extent.wrong_kind("RW with FLAT"));
        }
        Ok(extent)
    }

    /// Returns the extent of an image without parent that has only one.
    fn only_extent(self) -> Result<ExtentLine, Refusal> {
        if !self.parent.eq_ignore_ascii_case(NO_PARENT) {
            return Err(Refusal::Parent { cid: excerpt(&self.parent) });
        }
        let extent = match (self.extents, self.first) {
            (1, Some(extent)) => extent,
            (count, _) => return Err(Refusal::ExtentCount { count }),
        };
        // An extent of zeros has no name; its kind is refused.
        if extent.kind != "ZERO"
            && let Err(fault) = bare_name(&extent.name)
        {
            return Err(Refusal::ExtentName { name: excerpt(&extent.name), fault });
        }
        Ok(extent)
    }

    fn wrong_type(&self, place: Place) -> Refusal {
        Refusal::CreateType { create_type: excerpt(&self.create_type), place }
    }
}

impl ExtentLine {
    /// Parses a line: access, sectors, kind, then a quoted name and an offset, as far as the kind
    /// has them. Returns `None` for any other line.
    fn parse(line: &str) -> Option<Self> {
        let (access, rest) = word(line)?;
        let access = ACCESS.into_iter().find(|known| *known == access)?;
        let (sectors, rest) = word(rest)?;
        let (kind, rest) = word(rest)?;
        let kind = KINDS.into_iter().find(|known| *known == kind)?;
        let sectors = number(sectors)?;
        if rest.is_empty() {
            return (kind == "ZERO").then(|| Self { access, sectors, kind, name: String::new(), offset: 0 });
        }
        let (name, rest) = rest.strip_prefix('"')?.split_once('"')?;
        let offset = match rest.trim() {
            "" => 0,
            // A device has more words behind the offset.
            rest => number(word(rest)?.0)?,
        };
        Some(Self { access, sectors, kind, name: name.to_owned(), offset })
    }

    fn wrong_kind(self, expected: &'static str) -> Refusal {
        Refusal::ExtentKind { kind: self.kind.to_owned(), access: self.access, expected }
    }
}

/// Splits off the first word. The rest begins with the next one.
fn word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let (word, rest) = text.split_once([' ', '\t']).unwrap_or((text, ""));
    (!word.is_empty()).then(|| (word, rest.trim_start()))
}

/// Parses digits without a sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Splits `key = "value"`; the quotes may be missing.
fn setting(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once('=')?;
    let value = value.trim();
    let value = match value.strip_prefix('"') {
        Some(quoted) => quoted.strip_suffix('"')?,
        None => value,
    };
    (!value.contains('"')).then(|| (key.trim(), value))
}

/// Returns true for a key of the disk's database, which describes geometry and hardware.
fn is_database_key(key: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    key.strip_prefix("ddb.").is_some_and(|rest| !rest.is_empty() && rest.chars().all(is_part))
}

fn excerpt(text: &str) -> String {
    text.chars().take(EXCERPT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_read_as_vmware_and_qemu_write_them() {
        let parsed = |line| ExtentLine::parse(line).map(|e| (e.access, e.sectors, e.kind, e.name, e.offset));
        let name = || "a b.vmdk".to_owned();
        assert_eq!(parsed("RW 63 FLAT \"a b.vmdk\" 7"), Some(("RW", 63, "FLAT", name(), 7)));
        assert_eq!(parsed("RDONLY\t63  SPARSE  \"a b.vmdk\""), Some(("RDONLY", 63, "SPARSE", name(), 0)));
        assert_eq!(parsed("NOACCESS 1 ZERO"), Some(("NOACCESS", 1, "ZERO", String::new(), 0)));
        let device = parsed("RW 63 FLAT \"/dev/sda\" 0 partitionUUID /dev/sda");
        assert_eq!(device, Some(("RW", 63, "FLAT", "/dev/sda".to_owned(), 0)));
        for other in [
            "",
            "RW",
            "RW 63",
            "RW 63 FLAT",
            "RW -1 FLAT \"a\" 0",
            "RW +1 FLAT \"a\" 0",
            "RW 99999999999999999999 FLAT \"a\" 0",
            "rw 63 FLAT \"a\" 0",
            "RW 63 FLOT \"a\" 0",
            "RW 63 FLAT \"a",
            "RW 63 FLAT a 0",
            "RW 63 FLAT \"a\" x",
            "RW 63 FLAT 'a' 0",
        ] {
            assert_eq!(parsed(other), None, "{other}");
        }
    }

    #[test]
    fn settings_have_quotes_or_none() {
        assert_eq!(setting("CID=fffffffe"), Some(("CID", "fffffffe")));
        assert_eq!(setting("ddb.adapterType = \"ide\""), Some(("ddb.adapterType", "ide")));
        for bad in ["CID", "a=\"b", "a=b\"", "a=\"b\"c\""] {
            assert_eq!(setting(bad), None, "{bad}");
        }
        assert!(is_database_key("ddb.geometry.biosCylinders"));
        assert!(!is_database_key("ddb.") && !is_database_key("ddb.a b") && !is_database_key("ddc.a"));
    }

    #[test]
    fn windows_line_ends_are_accepted() {
        let text = "# Disk DescriptorFile\r\nversion=1\r\nCID=1\r\nparentCID=FFFFFFFF\r\n\r\n\
                    createType=\"monolithicFlat\"\r\nRW 8 FLAT \"x\" 0\r\n\0\0";
        assert_eq!(Descriptor::parse(text.as_bytes()).unwrap().into_flat().unwrap().name, "x");
    }
}
