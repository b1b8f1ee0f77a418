//! What only the running kernel knows of network cards: moderation and LRO, asked over its ethtool netlink family.
//!
//! Asking needs no privileges. A kernel or driver that does not answer leaves the facts unknown.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};
use taut_api::check::{Card, Moderation};

// Numbers of <linux/netlink.h>, <linux/genetlink.h> and <linux/ethtool_netlink.h>.
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const NLA_F_NESTED: u16 = 0x8000;
const NLA_TYPE_MASK: u16 = 0x3fff;
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_MSG_COALESCE_GET: u8 = 19;
/// The header has this number in every message.
const ETHTOOL_A_HEADER: u16 = 1;
const ETHTOOL_A_HEADER_DEV_NAME: u16 = 2;
const ETHTOOL_A_COALESCE_RX_USECS: u16 = 2;
const ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX: u16 = 11;
const ETHTOOL_A_FEATURES_ACTIVE: u16 = 4;
const ETHTOOL_A_BITSET_BITS: u16 = 3;
const ETHTOOL_A_BITSET_BITS_BIT: u16 = 1;
const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;
/// Message header (16) and generic header (4).
const HEADERS: usize = 20;
/// Names of some sixty features fit several times.
const LONGEST: usize = 1 << 16;

/// Adds what the kernel answers to what is known of each card.
pub(super) fn complete(cards: &mut [Card]) {
    let Ok(ethtool) = Ethtool::open() else { return };
    for card in cards {
        card.moderation =
            ethtool.ask(ETHTOOL_MSG_COALESCE_GET, &card.name).ok().as_deref().and_then(moderation);
        card.lro = ethtool.ask(ETHTOOL_MSG_FEATURES_GET, &card.name).ok().as_deref().and_then(merges);
    }
}

/// Absent where the driver moderates nothing.
fn moderation(answer: &[u8]) -> Option<Moderation> {
    let rx_us = find(answer, ETHTOOL_A_COALESCE_RX_USECS).and_then(number);
    let adaptive = find(answer, ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX).and_then(|value| value.first().copied());
    if rx_us.is_none() && adaptive.is_none() {
        return None;
    }
    Some(Moderation { rx_us: rx_us.unwrap_or(0), adaptive_rx: adaptive.unwrap_or(0) != 0 })
}

/// Drivers call merging by the card or its back end one or the other.
fn merges(answer: &[u8]) -> Option<bool> {
    let bits = find(find(answer, ETHTOOL_A_FEATURES_ACTIVE)?, ETHTOOL_A_BITSET_BITS).unwrap_or_default();
    let name = |bit| find(bit, ETHTOOL_A_BITSET_BIT_NAME).unwrap_or_default();
    let merging = |name: &[u8]| [&b"rx-lro\0"[..], b"rx-gro-hw\0"].contains(&name);
    Some(attributes(bits).any(|(kind, bit)| kind == ETHTOOL_A_BITSET_BITS_BIT && merging(name(bit))))
}

/// A socket to the family.
struct Ethtool {
    socket: OwnedFd,
    family: u16,
}

impl Ethtool {
    fn open() -> io::Result<Self> {
        let protocol = SockProtocol::NetlinkGeneric;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
        let mut ethtool = Self { socket, family: GENL_ID_CTRL };
        let answer = ethtool.exchange(CTRL_CMD_GETFAMILY, &attribute(CTRL_ATTR_FAMILY_NAME, b"ethtool\0"))?;
        let id = find(&answer, CTRL_ATTR_FAMILY_ID).and_then(|value| value.try_into().ok());
        ethtool.family = id.map(u16::from_ne_bytes).ok_or(io::ErrorKind::InvalidData)?;
        Ok(ethtool)
    }

    fn ask(&self, command: u8, card: &str) -> io::Result<Vec<u8>> {
        let name = [card.as_bytes(), b"\0"].concat();
        let header = attribute(ETHTOOL_A_HEADER_DEV_NAME, &name);
        self.exchange(command, &attribute(ETHTOOL_A_HEADER | NLA_F_NESTED, &header))
    }

    /// Sends a request; returns the answer's attributes. The kernel answers before the sending call returns.
    fn exchange(&self, command: u8, body: &[u8]) -> io::Result<Vec<u8>> {
        let length = u32::try_from(HEADERS + body.len()).map_err(io::Error::other)?;
        let mut message = length.to_ne_bytes().to_vec();
        message.extend(self.family.to_ne_bytes());
        message.extend(NLM_F_REQUEST.to_ne_bytes());
        // Sequence, sender; then command, version, padding.
        message.extend([0; 8]);
        message.extend([command, 1, 0, 0]);
        message.extend(body);
        sendto(self.socket.as_raw_fd(), &message, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
        let mut answer = vec![0; LONGEST];
        let received = recv(self.socket.as_raw_fd(), &mut answer, MsgFlags::MSG_DONTWAIT)?;
        answer.truncate(received);
        let kind = answer.get(4..6).map(|kind| u16::from_ne_bytes([kind[0], kind[1]]));
        if kind == Some(NLMSG_ERROR) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        answer.get(HEADERS..).map(<[u8]>::to_vec).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// An attribute with its padding.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = u16::try_from(4 + value.len()).unwrap_or(u16::MAX).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Attributes one after the other; ends at one that is cut off.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let header = bytes.get(..4)?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & NLA_TYPE_MASK;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn find(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

fn number(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let us = |us: u32| attribute(ETHTOOL_A_COALESCE_RX_USECS, &us.to_ne_bytes());
        let adaptive = attribute(ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX, &[1]);
        assert_eq!(moderation(&us(20)), Some(Moderation { rx_us: 20, adaptive_rx: false }));
        let both = [us(0), adaptive].concat();
        assert_eq!(moderation(&both), Some(Moderation { rx_us: 0, adaptive_rx: true }));
        assert_eq!(moderation(&attribute(9, &[0; 4])), None);

        let bit = |name: &[u8]| {
            attribute(ETHTOOL_A_BITSET_BITS_BIT | NLA_F_NESTED, &attribute(ETHTOOL_A_BITSET_BIT_NAME, name))
        };
        let active = |bits: &[u8]| {
            attribute(ETHTOOL_A_FEATURES_ACTIVE, &attribute(ETHTOOL_A_BITSET_BITS | NLA_F_NESTED, bits))
        };
        assert_eq!(merges(&active(&[bit(b"rx-gro\0"), bit(b"rx-lro\0")].concat())), Some(true));
        assert_eq!(merges(&active(&bit(b"rx-gro\0"))), Some(false));
        assert_eq!(merges(&[]), None);
    }

    #[test]
    fn what_is_cut_off_ends_the_answer() {
        let whole = attribute(ETHTOOL_A_COALESCE_RX_USECS, &7_u32.to_ne_bytes());
        for length in 0..whole.len() {
            assert_eq!(moderation(&whole[..length]), None);
        }
        assert_eq!(attributes(&[0, 0, 1, 0, 1, 1]).count(), 0, "a length of nothing is no attribute");
    }

    #[test]
    fn the_kernel_of_this_machine_answers_or_says_nothing() {
        let mut cards = [
            Card { name: "lo".into(), ..Card::default() },
            Card { name: "absent".into(), ..Card::default() },
        ];
        complete(&mut cards);
        // The loopback has no moderation on any kernel.
        assert_eq!((cards[0].moderation, cards[1].moderation, cards[1].lro), (None, None, None));
    }
}
