//! Finds QEMU, and tests whether KVM runs guests on this host.

mod guest;

use std::env;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_api::host::QemuInfo;

pub use guest::accelerator;

const BINARY: &str = "qemu-system-x86_64";

/// Finds QEMU on `PATH`.
///
/// # Errors
/// [`ErrorKind::Unavailable`] when QEMU is missing or does not start.
pub fn qemu() -> Result<QemuInfo, ApiError> {
    let hint = "install qemu-system-x86 (10.0 preferred, 7.2 works)";
    let unavailable = |message: String| ApiError::new(ErrorKind::Unavailable, message, hint);
    let path = find(BINARY)
        .ok_or_else(|| unavailable(format!("QEMU is not installed: `{BINARY}` is not on the PATH")))?;
    let shown = path.to_string_lossy().into_owned();
    let output = Command::new(&path)
        .arg("--version")
        .output()
        .map_err(|error| unavailable(format!("QEMU does not start: `{shown}`")).because(&error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = version(&text).ok_or_else(|| {
        let said: String = text.chars().take(200).collect();
        unavailable(format!("`{shown} --version` printed no version but `{}`", said.trim()))
    })?;
    Ok(QemuInfo { path: shown, version })
}

fn find(program: &str) -> Option<PathBuf> {
    let executable = |path: &Path| {
        path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(program)).find(|path| executable(path))
}

/// Reads `major.minor.micro` from "QEMU emulator version 10.0.2 (Debian …)".
fn version(text: &str) -> Option<String> {
    let rest = text.split("version ").nth(1)?;
    let version: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    version.starts_with(|c: char| c.is_ascii_digit()).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_distributions_are_read() {
        let debian = "QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)\nCopyright (c) 2003-2025\n";
        assert_eq!(version(debian).as_deref(), Some("10.0.2"));
        assert_eq!(version("QEMU emulator version 7.2.22\n").as_deref(), Some("7.2.22"));
        assert_eq!(version("QEMU emulator version unknown"), None);
        assert_eq!(version("something else 10.0.2"), None);
    }
}
