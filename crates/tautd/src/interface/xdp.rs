//! An XDP socket that is bound to an interface.

use std::io;

use taut_api::error::ErrorKind;
use taut_api::fabric::message::Attachment;
use taut_api::uplink::UplinkBackend;
use taut_api::{ApiError, Name};
use taut_host::kernel::xdp::{MOST_MTU, XdpPort, open as open_socket};

use super::socket::{self, Socket};

const _: () = assert!(MOST_MTU == UplinkBackend::XDP_MTU, "admission knows the limit");

/// Opens a socket that sends and receives all frames of an interface, with all that belongs to it.
pub(super) fn open(name: &Name, interface: u32, mtu: u32, zero_copy: bool) -> Result<Socket, ApiError> {
    let refused = |why: String, hint: String| {
        ApiError::new(ErrorKind::Unavailable, format!("`{name}` gets no XDP socket: {why}"), hint)
    };
    let queues = queues(name).map_err(|error| super::failed("counting its queues", name, &error))?;
    if queues != 1 {
        return Err(refused(
            format!("it has {queues} receive queues, and the socket would have the frames of one"),
            format!("let it use a single one: taut pnic set {name} --channels 1"),
        ));
    }
    if mtu > MOST_MTU {
        return Err(refused(
            format!("its MTU is {mtu}, and frames of more than {MOST_MTU} do not fit"),
            format!("ip link set dev {name} mtu {MOST_MTU}; or use the backend packet"),
        ));
    }
    let port = open_socket(interface, zero_copy).map_err(|error| {
        let why = ApiError::new(
            ErrorKind::Unavailable,
            format!("`{name}` gets no XDP socket"),
            error.hint().replace("INTERFACE", name.as_str()),
        );
        why.because(&error)
    })?;
    let XdpPort { socket, memory, link, setup, mode, why_generic } = port;
    let failed = |error: io::Error| super::failed("setting it up", name, &error);
    let carrier = socket::carrier(name.as_str(), interface).map_err(failed)?;
    let promiscuous = socket::promiscuous(interface).map_err(failed)?;
    let missing = why_generic.map(|why| {
        format!(
            "XDP in the driver of the interface ({why}): the kernel runs the program itself, which is slower than the \
             backend packet"
        )
    });
    Ok(Socket {
        via: Attachment::Xdp(Box::new(setup)),
        fds: vec![socket, carrier, memory, link, promiscuous],
        xdp: Some(mode),
        missing: missing.into_iter().collect(),
    })
}

/// Returns the number of an interface's receive queues.
fn queues(name: &Name) -> io::Result<usize> {
    let all = std::fs::read_dir(format!("/sys/class/net/{name}/queues"))?;
    let names: io::Result<Vec<_>> = all.map(|entry| Ok(entry?.file_name())).collect();
    Ok(names?.iter().filter(|queue| queue.as_encoded_bytes().starts_with(b"rx-")).count())
}
