//! Network namespaces with a TAP device on a port.

mod tap;

use std::io;

use taut_api::error::ErrorKind;
use taut_api::network::NetnsSpec;
use taut_api::vm::NicSpec;
use taut_api::{ApiError, MacAddr, Mtu};
use taut_host::kernel::namespace;
use taut_host::kernel::netlink::{Ethtool, Links};

pub(crate) use tap::Tap;
pub(crate) use taut_host::kernel::namespace::{exists, identity};

/// Makes what is missing of the namespace and its TAP device, and sets the device up.
///
/// Doing it again changes nothing. The returned descriptor is the device's.
pub(crate) fn attach(spec: &NetnsSpec, mac: MacAddr, mtu: Mtu) -> Result<Tap, ApiError> {
    let failed = |step: &str, error: &io::Error| {
        let message = format!("{step} in network namespace `{}` failed", spec.netns);
        ApiError::new(ErrorKind::Unavailable, message, "see the cause; taut tries again each second")
            .because(error)
    };
    if !exists(&spec.netns) {
        namespace::create(&spec.netns).map_err(|error| failed("making it", &error))?;
    }
    let tap = tap::open(&spec.netns, &spec.ifname)
        .map_err(|error| failed(&format!("opening the TAP device `{}`", spec.ifname), &error))?;
    namespace::within(&spec.netns, || set_up(spec, mac, mtu))
        .map_err(|error| failed("setting it up", &error))?;
    Ok(tap)
}

/// Returns whether the TAP device is in its namespace.
pub(crate) fn has_device(spec: &NetnsSpec) -> io::Result<bool> {
    if !exists(&spec.netns) {
        return Ok(false);
    }
    namespace::within(&spec.netns, || Ok(Links::open()?.index(&spec.ifname)?.is_some()))
}

/// Sets up the loopback and the TAP device of the namespace that this thread is in.
fn set_up(spec: &NetnsSpec, mac: MacAddr, mtu: Mtu) -> io::Result<()> {
    let mut links = Links::open()?;
    links.set_up(Links::LOOPBACK)?;
    let device = links.index(&spec.ifname)?.ok_or(io::ErrorKind::NotFound)?;
    links.set_mac(device, mac.0)?;
    links.set_mtu(device, mtu.into())?;
    if let Some(net) = spec.ip {
        links.set_ip(device, net)?;
    }
    links.set_up(device)?;
    // Without it the device states 10 Mbit/s. Programs work all the same if the kernel refuses.
    let _ = Ethtool::open().and_then(|mut ethtool| ethtool.state_speed(device, NicSpec::SPEED_MBIT));
    spec.gateway.map_or(Ok(()), |gateway| links.set_gateway(gateway))
}

/// Sets the MTU of the TAP device.
pub(crate) fn set_mtu(spec: &NetnsSpec, mtu: Mtu) -> io::Result<()> {
    namespace::within(&spec.netns, || {
        let mut links = Links::open()?;
        let device = links.index(&spec.ifname)?.ok_or(io::ErrorKind::NotFound)?;
        links.set_mtu(device, mtu.into())
    })
}

/// Removes the TAP device, and the namespace too if `whole`. What is absent already is no error.
pub(crate) fn detach(spec: &NetnsSpec, whole: bool) -> io::Result<()> {
    if !exists(&spec.netns) {
        return Ok(());
    }
    let device = |links: &Links| links.index(&spec.ifname);
    let removed = namespace::within(&spec.netns, || {
        let mut links = Links::open()?;
        device(&links)?.map_or(Ok(()), |device| links.remove(device))
    });
    if let Err(error) = removed {
        // A failure matters only if the device is still there.
        let left = namespace::within(&spec.netns, || device(&Links::open()?));
        if left.is_ok_and(|device| device.is_some()) {
            return Err(error);
        }
    }
    if whole { namespace::remove(&spec.netns) } else { Ok(()) }
}
