//! Frames that pass between an interface and the host's own network stack: all, or none.
//!
//! Filters drop them: a classic BPF program with one instruction in the queueing discipline
//! `clsact` (tc(8)). At the ingress, packet sockets get their copy of a frame before it. At the
//! egress, frames of a packet socket that bypasses queueing disciplines do not meet it.

use std::io;

use neli::consts::nl::NlmF;
use neli::consts::rtnl::{Rtm, Tca};
use neli::rtnl::{Rtattr, RtattrBuilder, Tcmsg, TcmsgBuilder};
use neli::types::{Buffer, RtBuffer};
use nix::errno::Errno;
use nix::libc;

use super::Links;

// Numbers of <linux/pkt_sched.h>, <linux/pkt_cls.h> and <linux/bpf_common.h>.
const TC_H_CLSACT: u32 = 0xffff_fff1;
/// `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)`: the filters for received frames.
const INGRESS_FILTERS: u32 = 0xffff_fff2;
/// `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_EGRESS)`: the filters for sent frames.
const EGRESS_FILTERS: u32 = 0xffff_fff3;
const CLSACT_HANDLE: u32 = 0xffff_0000;
const TCA_BPF_OPS_LEN: u16 = 4;
const TCA_BPF_OPS: u16 = 5;
const TCA_BPF_FLAGS: u16 = 8;
/// The program's result is the verdict.
const TCA_BPF_FLAG_ACT_DIRECT: u32 = 1;
/// `BPF_RET | BPF_K`: return a constant.
const RETURN: u16 = 0x06;
/// Verdict: drop the frame.
const TC_ACT_SHOT: u32 = 2;

/// Priority of the filter, by which tc(8) shows it (`pref 31349`). Filters with a lower number come
/// first.
const PRIORITY: u32 = 0x7a75;

/// Returns whether an interface has a `clsact` or `ingress` queueing discipline.
pub fn has_clsact(links: &mut Links, interface: u32) -> io::Result<bool> {
    let all = links.0.list(Rtm::Getqdisc, message(interface, 0, 0, 0, [])?)?;
    let is_clsact =
        |qdisc: &Tcmsg| *qdisc.tcm_ifindex() == interface.cast_signed() && *qdisc.tcm_parent() == TC_H_CLSACT;
    Ok(all.iter().any(is_clsact))
}

/// Keeps all frames of an interface from the host. Doing it again changes nothing.
pub fn hide(links: &mut Links, interface: u32) -> io::Result<()> {
    drop_all(links, interface, INGRESS_FILTERS)
}

/// Keeps the host's own frames from an interface, for instance those of the bridge that the
/// interface is in. Doing it again changes nothing.
pub fn silence(links: &mut Links, interface: u32) -> io::Result<()> {
    drop_all(links, interface, EGRESS_FILTERS)
}

/// Makes the filter that drops all frames of a direction.
fn drop_all(links: &mut Links, interface: u32, direction: u32) -> io::Result<()> {
    make(links, Rtm::Newqdisc, clsact(interface)?)?;
    let mut program = RETURN.to_ne_bytes().to_vec();
    // No jumps.
    program.extend([0, 0]);
    program.extend(TC_ACT_SHOT.to_ne_bytes());
    let options = [
        (TCA_BPF_OPS_LEN, 1_u16.to_ne_bytes().to_vec()),
        (TCA_BPF_OPS, program),
        (TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT.to_ne_bytes().to_vec()),
    ];
    let mut nested = attribute(Tca::Options, Buffer::new())?;
    for (kind, bytes) in options {
        let option = RtattrBuilder::default().rta_type(kind).rta_payload(Buffer::from(bytes)).build();
        nested = nested.nest(&option.map_err(io::Error::other)?).map_err(io::Error::other)?;
    }
    let filter = message(interface, 1, direction, info(), [kind("bpf")?, nested])?;
    make(links, Rtm::Newtfilter, filter)
}

/// Lets frames pass between an interface and the host again. `and_clsact` removes the queueing
/// discipline as well, unless somebody else has a filter in it by now. What is absent already is no
/// error.
pub fn show(links: &mut Links, interface: u32, and_clsact: bool) -> io::Result<()> {
    for direction in [INGRESS_FILTERS, EGRESS_FILTERS] {
        let filter = message(interface, 1, direction, info(), [kind("bpf")?])?;
        remove(links, Rtm::Deltfilter, filter)?;
    }
    if and_clsact && !has_filters(links, interface)? {
        remove(links, Rtm::Delqdisc, clsact(interface)?)?;
    }
    Ok(())
}

/// Returns whether there is a filter in the queueing discipline `clsact` of an interface.
fn has_filters(links: &mut Links, interface: u32) -> io::Result<bool> {
    for parent in [INGRESS_FILTERS, EGRESS_FILTERS] {
        if !links.0.list(Rtm::Gettfilter, message(interface, 0, parent, 0, [])?)?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Makes a queueing discipline or filter, unless it is there already.
fn make(links: &mut Links, request: Rtm, what: Tcmsg) -> io::Result<()> {
    match links.0.request(request, NlmF::ACK | NlmF::CREATE | NlmF::EXCL, what) {
        Err(error) if !is(&error, Errno::EEXIST) => Err(error),
        _ => Ok(()),
    }
}

/// Removes a queueing discipline or filter, if it is there.
fn remove(links: &mut Links, request: Rtm, what: Tcmsg) -> io::Result<()> {
    let absent = |error: &io::Error| {
        [Errno::ENOENT, Errno::EINVAL, Errno::ENODEV].into_iter().any(|number| is(error, number))
    };
    match links.0.request(request, NlmF::ACK, what) {
        Err(error) if !absent(&error) => Err(error),
        _ => Ok(()),
    }
}

fn clsact(interface: u32) -> io::Result<Tcmsg> {
    message(interface, CLSACT_HANDLE, TC_H_CLSACT, 0, [kind("clsact")?])
}

fn is(error: &io::Error, number: Errno) -> bool {
    error.raw_os_error() == Some(number as i32)
}

/// Returns priority and protocol of the filter, which is for frames of every protocol.
fn info() -> u32 {
    PRIORITY << 16 | u32::from((libc::ETH_P_ALL as u16).to_be())
}

fn kind(name: &str) -> io::Result<Rtattr<Tca, Buffer>> {
    attribute(Tca::Kind, Buffer::from([name.as_bytes(), b"\0"].concat()))
}

fn attribute(kind: Tca, payload: Buffer) -> io::Result<Rtattr<Tca, Buffer>> {
    RtattrBuilder::default().rta_type(kind).rta_payload(payload).build().map_err(io::Error::other)
}

fn message<const N: usize>(
    interface: u32,
    handle: u32,
    parent: u32,
    info: u32,
    attributes: [Rtattr<Tca, Buffer>; N],
) -> io::Result<Tcmsg> {
    TcmsgBuilder::default()
        .tcm_family(libc::AF_UNSPEC as u8)
        .tcm_ifindex(interface.cast_signed())
        .tcm_handle(handle)
        .tcm_parent(parent)
        .tcm_info(info)
        .rtattrs(RtBuffer::from_iter(attributes))
        .build()
        .map_err(io::Error::other)
}
