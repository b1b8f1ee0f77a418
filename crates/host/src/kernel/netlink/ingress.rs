//! Frames that an interface passes on to the host's own network stack: all, or none.
//!
//! Packet sockets see a frame before. What drops it afterwards is a filter at the interface's
//! ingress (tc(8), `clsact`), a classic BPF program with one instruction.

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
const TC_H_INGRESS: u32 = 0xffff_fff2;
const CLSACT_HANDLE: u32 = 0xffff_0000;
const TCA_BPF_OPS_LEN: u16 = 4;
const TCA_BPF_OPS: u16 = 5;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
/// The program's result is the verdict.
const TCA_BPF_FLAG_ACT_DIRECT: u32 = 1;
/// `BPF_RET | BPF_K`: return a constant.
const RETURN: u16 = 0x06;
/// Verdict: drop the frame.
const TC_ACT_SHOT: u32 = 2;

/// Priority of the filter: others come first.
const PRIORITY: u32 = 0x7a75;
/// Name of the filter, which tc(8) shows.
const NAME: &[u8] = b"taut-uplink\0";

/// Returns whether an interface has a place for filters at its ingress already.
pub fn has_place(links: &mut Links, interface: u32) -> io::Result<bool> {
    let all = links.0.list(Rtm::Getqdisc, message(interface, 0, 0, 0, [])?)?;
    let is_place =
        |qdisc: &Tcmsg| *qdisc.tcm_ifindex() == interface.cast_signed() && *qdisc.tcm_parent() == TC_H_CLSACT;
    Ok(all.iter().any(is_place))
}

/// Keeps all frames of an interface from the host. Doing it again changes nothing.
pub fn hide(links: &mut Links, interface: u32) -> io::Result<()> {
    let place = message(interface, CLSACT_HANDLE, TC_H_CLSACT, 0, [kind("clsact")?])?;
    links
        .0
        .request(Rtm::Newqdisc, NlmF::ACK | NlmF::CREATE | NlmF::EXCL, place)
        .map(drop)
        .or_else(present)?;
    let mut program = RETURN.to_ne_bytes().to_vec();
    // No jumps.
    program.extend([0, 0]);
    program.extend(TC_ACT_SHOT.to_ne_bytes());
    let options = [
        (TCA_BPF_OPS_LEN, 1_u16.to_ne_bytes().to_vec()),
        (TCA_BPF_OPS, program),
        (TCA_BPF_NAME, NAME.to_vec()),
        (TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT.to_ne_bytes().to_vec()),
    ];
    let mut nested = attribute(Tca::Options, Buffer::new())?;
    for (kind, bytes) in options {
        let option = RtattrBuilder::default().rta_type(kind).rta_payload(Buffer::from(bytes)).build();
        nested = nested.nest(&option.map_err(io::Error::other)?).map_err(io::Error::other)?;
    }
    let filter = message(interface, 1, TC_H_INGRESS, info(), [kind("bpf")?, nested])?;
    links.0.request(Rtm::Newtfilter, NlmF::ACK | NlmF::CREATE | NlmF::EXCL, filter).map(drop).or_else(present)
}

/// Passes the frames of an interface on to the host again. `whole` removes the place for filters as
/// well. What is absent already is no error.
pub fn show(links: &mut Links, interface: u32, whole: bool) -> io::Result<()> {
    let filter = message(interface, 1, TC_H_INGRESS, info(), [kind("bpf")?])?;
    let removed = links.0.request(Rtm::Deltfilter, NlmF::ACK, filter);
    let removed = removed.map(drop).or_else(absent);
    if !whole {
        return removed;
    }
    let place = message(interface, CLSACT_HANDLE, TC_H_CLSACT, 0, [kind("clsact")?])?;
    links.0.request(Rtm::Delqdisc, NlmF::ACK, place).map(drop).or_else(absent)
}

/// Returns no error if what is to be made is there already.
fn present(error: io::Error) -> io::Result<()> {
    if is(&error, Errno::EEXIST) { Ok(()) } else { Err(error) }
}

/// Returns no error if there is nothing to remove.
fn absent(error: io::Error) -> io::Result<()> {
    let absent = [Errno::ENOENT, Errno::EINVAL, Errno::ENODEV];
    if absent.into_iter().any(|number| is(&error, number)) { Ok(()) } else { Err(error) }
}

fn is(error: &io::Error, number: Errno) -> bool {
    error.raw_os_error() == Some(number as i32)
}

/// Returns priority and protocol of the filter: it is for frames of any.
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
