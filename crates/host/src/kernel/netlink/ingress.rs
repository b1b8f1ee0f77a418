//! Frames that pass between an interface and the host's own network stack: all, or none.
//!
//! Filters drop them: a classic BPF program with one instruction in the queueing discipline
//! `clsact` (tc(8)). At the ingress, packet sockets get their copy of a frame before it. At the
//! egress, frames with a mark pass: those of the socket that serves the interface.

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
/// `BPF_LD | BPF_W | BPF_ABS`: load a word.
const LOAD: u16 = 0x20;
/// `BPF_JMP | BPF_JEQ | BPF_K`: compare the word with a constant.
const JUMP_IF_EQUAL: u16 = 0x15;
/// `SKF_AD_OFF + SKF_AD_MARK`: the place of a frame's mark.
const MARK_OF_FRAME: u32 = 0xffff_f014;
/// Verdict: drop the frame.
const TC_ACT_SHOT: u32 = 2;
/// Verdict: go on to the next filter.
const TC_ACT_UNSPEC: u32 = u32::MAX;

/// Mark (`SO_MARK`) of frames that pass [`silence`].
pub const MARK: u32 = 0x7a75_7400;

/// Priority of the filter, by which tc(8) shows it (`pref 31349`). Filters with a lower number come
/// first.
const PRIORITY: u32 = 0x7a75;

/// Returns whether an interface has a `clsact` or `ingress` queueing discipline.
pub fn has_clsact(links: &mut Links, interface: u32) -> io::Result<bool> {
    Ok(ingress_qdisc(links, interface)?.is_some())
}

/// Returns the `clsact` or `ingress` queueing discipline of an interface.
fn ingress_qdisc(links: &mut Links, interface: u32) -> io::Result<Option<Tcmsg>> {
    let all = links.0.list(Rtm::Getqdisc, message(interface, 0, 0, 0, [])?)?;
    let is_wanted =
        |qdisc: &Tcmsg| *qdisc.tcm_ifindex() == interface.cast_signed() && *qdisc.tcm_parent() == TC_H_CLSACT;
    Ok(all.into_iter().find(is_wanted))
}

/// Returns the kind of a queueing discipline, with its terminating zero.
fn kind_of(qdisc: &Tcmsg) -> Vec<u8> {
    let attributes = qdisc.rtattrs().get_attr_handle();
    let kind = attributes.get_attribute(Tca::Kind);
    kind.map(|kind| kind.rta_payload().as_ref().to_vec()).unwrap_or_default()
}

/// Keeps all frames of an interface from the host. Doing it again changes nothing.
pub fn hide(links: &mut Links, interface: u32) -> io::Result<()> {
    make_filter(links, interface, INGRESS_FILTERS, &[(RETURN, 0, 0, TC_ACT_SHOT)])
}

/// Keeps the host's own frames from an interface, for instance those of the bridge that the
/// interface is in. Frames with [`MARK`] pass. Doing it again changes nothing.
///
/// # Errors
/// The kernel refuses it, or the interface has the queueing discipline `ingress` in place of
/// `clsact`, which has no filters for sent frames.
pub fn silence(links: &mut Links, interface: u32) -> io::Result<()> {
    if ingress_qdisc(links, interface)?.is_some_and(|qdisc| kind_of(&qdisc) == b"ingress\0") {
        return Err(io::Error::other(
            "its queueing discipline `ingress` has no filters for what the host sends; hint: tc qdisc del dev \
             INTERFACE ingress",
        ));
    }
    let program = [
        (LOAD, 0, 0, MARK_OF_FRAME),
        // Skips no instruction if they are equal, and one otherwise.
        (JUMP_IF_EQUAL, 0, 1, MARK),
        (RETURN, 0, 0, TC_ACT_UNSPEC),
        (RETURN, 0, 0, TC_ACT_SHOT),
    ];
    make_filter(links, interface, EGRESS_FILTERS, &program)
}

/// Makes the filter of a direction with a classic BPF program: code, both jumps and a constant of
/// each instruction.
fn make_filter(
    links: &mut Links,
    interface: u32,
    direction: u32,
    program: &[(u16, u8, u8, u32)],
) -> io::Result<()> {
    make(links, Rtm::Newqdisc, clsact(interface)?)?;
    let mut bytes = Vec::new();
    for (code, if_true, if_false, constant) in program {
        bytes.extend(code.to_ne_bytes());
        bytes.extend([*if_true, *if_false]);
        bytes.extend(constant.to_ne_bytes());
    }
    let options = [
        (TCA_BPF_OPS_LEN, (program.len() as u16).to_ne_bytes().to_vec()),
        (TCA_BPF_OPS, bytes),
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
