//! Tests of a port's entry.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use taut_api::MacAddr;
use taut_api::fabric::config::SegmentId;

use super::*;
use crate::port::vnic_device::VnicDevice;
use crate::sys::counters::{PortBlock, empty_words};
use crate::wake::mailbox::Mailboxes;

/// A port's entry with a device attached.
fn entry() -> Entry {
    let words = empty_words();
    let mac = MacAddr([2, 0, 0, 0, 0, 1]);
    let config = PortConfig::new(PortId(1), "vm/a/nic0".into(), PortKind::Stream, SegmentId(1), mac);
    let port = Arc::new(Port::new(config.id, config.kind, PortBlock::new(&words, config.id)));
    let mailboxes = Arc::new(Mailboxes::new().unwrap());
    let device = VnicDevice { port, mailboxes };
    attach(&device);
    Entry::of_port(config, device)
}

fn attach(device: &VnicDevice) {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let ours = ForeignFd::new(OwnedFd::from(ours), &ClosingQueue::new(device.port.id));
    device.port.attach_stream(ours, &device.mailboxes).unwrap();
}

#[test]
fn a_cut_off_port_receives_nothing_so_it_is_neither_announced_nor_asked() {
    let mut entry = entry();
    assert!(entry.receives() && entry.first_start() == Some(1));
    let mut set = |effective: Option<u8>, accepts| {
        let Kind::Port(config, _) = &mut entry.kind else { unreachable!() };
        config.effective = effective.map(|last| MacAddr([2, 0, 0, 0, 0, last]));
        config.security.mac_changes = accepts;
        (entry.receives(), entry.first_start())
    };
    assert_eq!(set(Some(9), false), (false, None));
    assert_eq!(set(Some(9), true), (true, Some(1)));
    assert_eq!(set(Some(1), false), (true, Some(1)), "it has its configured address");
    assert_eq!(set(None, false), (true, Some(1)), "the address is not known");
}

#[test]
fn each_start_of_the_first_queue_has_another_number() {
    let entry = entry();
    let Kind::Port(_, device) = &entry.kind else { unreachable!() };
    attach(device);
    assert_eq!(entry.first_start(), Some(2));
    device.port.stop_ring(QueueIdx::receive(crate::net::queue::PairIdx::FIRST));
    assert!(!entry.receives() && entry.first_start().is_none());
}
