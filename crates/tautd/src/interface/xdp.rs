//! XDP sockets that are bound to the queues of an interface.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use taut_api::error::ErrorKind;
use taut_api::fabric::message::Attachment;
use taut_api::pnic::{Offload, OffloadFacts};
use taut_api::uplink::UplinkBackend;
use taut_api::{ApiError, Name};
use taut_host::kernel::xdp::{MOST_MTU, XdpPort, XdpQueue, detach, open as open_sockets};
use taut_host::observe::cards;

use super::socket::{self, Socket};

const _: () = assert!(MOST_MTU == UplinkBackend::XDP_MTU, "admission knows the limit");

/// Most receive queues of an interface. Each pins 8 MiB of memory.
const MOST_QUEUES: u32 = 32;

/// Opens sockets that send and receive all frames of an interface, with all that belongs to them.
pub(super) fn open(name: &Name, interface: u32, mtu: u32, zero_copy: bool) -> Result<Socket, ApiError> {
    let refused = |why: String, hint: String| {
        ApiError::new(ErrorKind::Unavailable, format!("`{name}` gets no XDP socket: {why}"), hint)
    };
    let queues = queues(name).map_err(|error| super::failed("counting its queues", name, &error))?;
    if !(1..=MOST_QUEUES).contains(&queues) {
        return Err(refused(
            format!("it has {queues} receive queues, and each of at most {MOST_QUEUES} gets a socket"),
            format!("let it use fewer: taut pnic set {name} --channels {MOST_QUEUES}, or --rx-channels"),
        ));
    }
    let offloads =
        offloads(name).map_err(|error| super::failed("asking about its offloads", name, &error))?;
    if let Some(OffloadFacts { on: true, fixed }) = offloads.get(&Offload::RxVlan) {
        let leave = format!("let it leave them there: taut pnic set {name} --offload rxvlan=off");
        return Err(refused(
            "it takes VLAN tags out of received frames, which would come as if they had none".to_owned(),
            if *fixed { without_xdp() } else { leave },
        ));
    }
    if offloads.get(&Offload::Lro).is_some_and(|lro| lro.on) {
        return Err(refused(
            "it merges received segments (LRO), and merged ones do not fit".to_owned(),
            format!(
                "`taut pnic show {name}` tells why that cannot be switched off, or who has switched it on; or {}",
                without_xdp()
            ),
        ));
    }
    if mtu > MOST_MTU {
        return Err(refused(
            format!("its MTU is {mtu}, and frames of more than {MOST_MTU} do not fit"),
            format!("ip link set dev {name} mtu {MOST_MTU}; or {}", without_xdp()),
        ));
    }
    let port = open_sockets(interface, queues, zero_copy).map_err(|error| {
        let why = ApiError::new(
            ErrorKind::Unavailable,
            format!("`{name}` gets no XDP socket"),
            error.hint().replace("INTERFACE", name.as_str()),
        );
        why.because(&error)
    })?;
    let XdpPort { first, others, link, setup, mode, why_generic } = port;
    let failed = |error: io::Error| super::failed("setting it up", name, &error);
    let carrier = socket::carrier(name.as_str(), interface).map_err(failed)?;
    let promiscuous = socket::promiscuous(interface).map_err(failed)?;
    let missing = why_generic.map(|why| {
        format!(
            "XDP in the driver of the interface ({why}): the kernel runs the program itself, which is slower than the \
             backend packet"
        )
    });
    let others = others.into_iter().flat_map(|XdpQueue { socket, memory }| [socket, memory]);
    Ok(Socket {
        via: Attachment::Xdp(Box::new(setup)),
        fds: [first.socket, carrier, first.memory, link, promiscuous].into_iter().chain(others).collect(),
        xdp: Some(mode),
        missing: missing.into_iter().collect(),
    })
}

/// Returns the way out that every interface has.
fn without_xdp() -> String {
    "remove the uplink and add it again with --backend packet".to_owned()
}

/// Takes the XDP program of a link from its interface.
pub(crate) fn detach_program(link: &impl AsFd) {
    // A link that cannot be detached ends when the last process has closed it.
    if let Err(error) = detach(link) {
        tracing::warn!(%error, "an XDP program stays attached until the fabric has closed its link");
    }
}

/// Returns the offloads of a physical card that its driver tells. At other interfaces, the other
/// end decides what frames look like.
fn offloads(name: &Name) -> io::Result<BTreeMap<Offload, OffloadFacts>> {
    if !Path::new(&format!("/sys/class/net/{name}/device")).exists() {
        return Ok(BTreeMap::new());
    }
    Ok(cards::facts(name)?.map(|facts| facts.offloads).unwrap_or_default())
}

/// Returns the number of an interface's receive queues that are in use.
pub(crate) fn queues(name: &Name) -> io::Result<u32> {
    let all = std::fs::read_dir(format!("/sys/class/net/{name}/queues"))?;
    let names: io::Result<Vec<_>> = all.map(|entry| Ok(entry?.file_name())).collect();
    Ok(names?.iter().filter(|queue| queue.as_encoded_bytes().starts_with(b"rx-")).count() as u32)
}
