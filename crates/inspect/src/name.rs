//! Names of other files inside an image.

/// Longest name of a file in a folder (`NAME_MAX`), in bytes.
const NAME_MAX: usize = 255;

/// Longest path (`PATH_MAX` without its NUL), in bytes.
const PATH_MAX: usize = 4095;

/// Why a name is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// Nothing.
    #[error("it is empty")]
    Empty,
    /// More bytes than the kernel takes.
    #[error("it has {len} bytes, more than {limit}")]
    TooLong {
        /// Its length in bytes.
        len: usize,
        /// The limit.
        limit: usize,
    },
    /// A path from the root.
    #[error("it is an absolute path")]
    Absolute,
    /// QEMU takes what stands before the colon for a protocol.
    #[error("it begins with a scheme, as `json:` or `nbd:` do")]
    Scheme,
    /// A component `..`.
    #[error("it leads out of its folder by `..`")]
    Parent,
    /// A separator in the name of an extent.
    #[error("it names another folder")]
    Folder,
    /// A newline, a NUL or the like.
    #[error("it has control characters")]
    Control,
    /// Bytes that are not text.
    #[error("it is not UTF-8")]
    Encoding,
}

/// Checks the name of a backing file: a relative path without `..`, of a file and not of a
/// protocol.
///
/// The caller resolves the name below the overlay's own folder by `openat2` with `RESOLVE_BENEATH`,
/// `RESOLVE_NO_SYMLINKS` and `RESOLVE_NO_MAGICLINKS`.
///
/// # Errors
/// Returns what is wrong with the name.
pub fn plain_name(name: &str) -> Result<&str, NameFault> {
    check_text(name, PATH_MAX)?;
    if name.starts_with('/') {
        return Err(NameFault::Absolute);
    }
    // QEMU's rule (path_has_protocol): a colon before the first slash.
    if name.split('/').next().is_some_and(|first| first.contains(':')) {
        return Err(NameFault::Scheme);
    }
    if name.split('/').any(|component| component == "..") {
        return Err(NameFault::Parent);
    }
    Ok(name)
}

/// Checks the name of an extent: one component, for a file in the descriptor's own folder.
///
/// # Errors
/// Returns what is wrong with the name.
pub fn bare_name(name: &str) -> Result<&str, NameFault> {
    plain_name(name)?;
    check_text(name, NAME_MAX)?;
    // Windows programs write backslashes.
    if name.contains(['/', '\\']) || name == "." {
        return Err(NameFault::Folder);
    }
    Ok(name)
}

fn check_text(name: &str, limit: usize) -> Result<(), NameFault> {
    if name.is_empty() {
        return Err(NameFault::Empty);
    }
    if name.len() > limit {
        return Err(NameFault::TooLong { len: name.len(), limit });
    }
    if name.chars().any(char::is_control) {
        return Err(NameFault::Control);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backing_file_is_a_relative_path() {
        for good in
            ["base.qcow2", "./base.img", "pool/base.img", "a..b", "...", "./10:30.img", "größe", "a b"]
        {
            assert_eq!(plain_name(good), Ok(good));
        }
        for (bad, fault) in [
            ("", NameFault::Empty),
            ("/etc/shadow", NameFault::Absolute),
            ("//etc/shadow", NameFault::Absolute),
            ("json:{\"driver\":\"file\"}", NameFault::Scheme),
            ("nbd://host/disk", NameFault::Scheme),
            ("nbd:unix:/run/x", NameFault::Scheme),
            ("file:base.img", NameFault::Scheme),
            ("/dev/fdset/1", NameFault::Absolute),
            ("..", NameFault::Parent),
            ("../base.img", NameFault::Parent),
            ("pool/../../base.img", NameFault::Parent),
            ("pool/..", NameFault::Parent),
            ("a\0b", NameFault::Control),
            ("a\nb", NameFault::Control),
            ("a\u{9b}b", NameFault::Control),
        ] {
            assert_eq!(plain_name(bad), Err(fault), "{bad:?}");
        }
        let long = "a".repeat(PATH_MAX + 1);
        assert_eq!(plain_name(&long), Err(NameFault::TooLong { len: long.len(), limit: PATH_MAX }));
    }

    #[test]
    fn an_extent_is_a_file_beside_the_descriptor() {
        for good in ["disk-flat.vmdk", "a..b", "...", "größe"] {
            assert_eq!(bare_name(good), Ok(good));
        }
        for (bad, fault) in [
            ("", NameFault::Empty),
            ("/etc/shadow", NameFault::Absolute),
            ("../x", NameFault::Parent),
            ("a/b", NameFault::Folder),
            ("./a", NameFault::Folder),
            ("a\\b", NameFault::Folder),
            ("..", NameFault::Parent),
            (".", NameFault::Folder),
            ("C:disk", NameFault::Scheme),
        ] {
            assert_eq!(bare_name(bad), Err(fault), "{bad:?}");
        }
        let long = "a".repeat(NAME_MAX + 1);
        assert_eq!(bare_name(&long), Err(NameFault::TooLong { len: long.len(), limit: NAME_MAX }));
    }
}
