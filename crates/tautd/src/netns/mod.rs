//! Network namespaces with a TAP device on a port.

mod tap;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use taut_api::error::ErrorKind;
use taut_api::network::NetnsSpec;
use taut_api::{ApiError, MacAddr};

pub(crate) use tap::Tap;

/// Where `ip netns` keeps its names.
const NAMES: &str = "/run/netns";

/// Is there a namespace of this name?
pub(crate) fn exists(name: &str) -> bool {
    path(name).exists()
}

/// Makes what is missing of the namespace and its TAP device and sets the device up. Doing it again changes nothing; the
/// descriptor is the device's.
pub(crate) fn attach(spec: &NetnsSpec, mac: MacAddr) -> Result<Tap, ApiError> {
    let failed = |what: &str, error: &io::Error| {
        let message = format!("{what} in namespace `{}` failed", spec.netns);
        ApiError::new(ErrorKind::Unavailable, message, "see the cause; taut tries again each second")
            .because(error)
    };
    if !exists(&spec.netns) {
        ip(&["netns", "add", &spec.netns], "").map_err(|error| failed("making it", &error))?;
    }
    let tap = tap::open(&path(&spec.netns), &spec.ifname)
        .map_err(|error| failed(&format!("opening the TAP device `{}`", spec.ifname), &error))?;
    let mut batch = format!("link set dev lo up\nlink set dev {} address {mac}\n", spec.ifname);
    if let Some(net) = spec.ip {
        batch.push_str(&format!("addr replace {net} dev {}\n", spec.ifname));
    }
    batch.push_str(&format!("link set dev {} up\n", spec.ifname));
    ip(&["-n", &spec.netns, "-batch", "-"], &batch).map_err(|error| failed("setting it up", &error))?;
    Ok(tap)
}

/// Removes the TAP device, and the namespace too if `whole`. What is not there any more is fine.
pub(crate) fn detach(spec: &NetnsSpec, whole: bool) -> io::Result<()> {
    if !exists(&spec.netns) {
        return Ok(());
    }
    if let Err(error) = ip(&["-n", &spec.netns, "link", "del", "dev", &spec.ifname], "") {
        // Not being able to remove it is an error only if it is still there.
        if ip(&["-n", &spec.netns, "link", "show", "dev", &spec.ifname], "").is_ok() {
            return Err(error);
        }
    }
    if whole { ip(&["netns", "del", &spec.netns], "") } else { Ok(()) }
}

fn path(name: &str) -> PathBuf {
    Path::new(NAMES).join(name)
}

/// Runs `ip`; what it complained about becomes the error.
fn ip(args: &[&str], input: &str) -> io::Result<()> {
    let mut child = Command::new("ip")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| {
            io::Error::new(error.kind(), format!("`ip` cannot be run ({error}); install iproute2"))
        })?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("ip {}: {}", args.join(" "), said.trim())))
}
