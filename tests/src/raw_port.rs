//! A port on which a test sends and receives any frame.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use serde_json::Value;
use taut_bench::front_end::{self, Event, Wanted};
use taut_virtq::driver::{Ram, RxDriver, TxDriver};
use taut_virtq::features;
use taut_virtq::header::NetHeader;
use vhost::vhost_user::Frontend;

use crate::{Taut, eventually};

const ENTRIES: u16 = 512;
const BUFFER: u32 = 2048;
const MEMORY: u64 = 16 << 20;
/// Features of a port with every offload.
const OFFLOADS: u64 = features::NET_CSUM
    | features::NET_GUEST_CSUM
    | features::NET_HOST_TSO4
    | features::NET_HOST_TSO6
    | features::NET_HOST_USO
    | features::NET_GUEST_TSO4
    | features::NET_GUEST_TSO6;

/// Driver end of a vNIC that taut did not start.
pub struct RawPort {
    /// Name of the port.
    pub name: String,
    /// Configured Ethernet address.
    pub mac: [u8; 6],
    rx: RxDriver,
    tx: TxDriver,
    kicks: [Event; 2],
    /// The event by which the fabric tells of received frames.
    call: Event,
    frame: Vec<u8>,
    _session: Frontend,
}

impl std::fmt::Debug for RawPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawPort").field("name", &self.name).finish_non_exhaustive()
    }
}

impl RawPort {
    /// Attaches an external port to a port group, with every offload, and starts its rings.
    pub fn attach(taut: &Taut, name: &str, portgroup: &str, mac: [u8; 6]) -> Self {
        Self::attach_with(OFFLOADS, taut, name, portgroup, mac)
    }

    /// Starts the rings of a port of any switch that listens at a vhost-user socket, with every
    /// offload that the switch has.
    ///
    /// # Panics
    /// If the switch takes no session.
    pub fn connect(socket: &Path, mac: [u8; 6]) -> Self {
        Self::connect_with(OFFLOADS, "port", socket, mac)
    }

    /// Attaches an external port whose guest's driver accepts no offloads, and starts its rings.
    pub fn attach_plain(taut: &Taut, name: &str, portgroup: &str, mac: [u8; 6]) -> Self {
        Self::attach_with(0, taut, name, portgroup, mac)
    }

    fn attach_with(offloads: u64, taut: &Taut, name: &str, portgroup: &str, mac: [u8; 6]) -> Self {
        let path = taut.dir().join(format!("{name}.sock"));
        let socket = path.to_str().expect("a temporary path is text");
        let address = mac.map(|octet| format!("{octet:02x}")).join(":");
        let words = ["port", "attach", name, "--portgroup", portgroup, "--mac", &address, "--path", socket];
        taut.ok(words.into_iter().chain(["--listen", "--offloads"]));
        let port = Self::connect_with(offloads, name, &path, mac);
        eventually("the port is up", || (port.info(taut)["link"] == "up").then_some(()));
        port
    }

    fn connect_with(offloads: u64, name: &str, socket: &Path, mac: [u8; 6]) -> Self {
        let stream = eventually("the port listens", || UnixStream::connect(socket).ok());
        let ram = Ram::new(MEMORY).expect("memory");
        let features = features::EVENT_IDX | features::NET_MRG_RXBUF | offloads;
        let mut made = None;
        let session = front_end::connect(
            stream,
            Wanted { features, entries: [ENTRIES; 2], ram, config: 0 },
            |mut link| {
                let mut rx =
                    RxDriver::new(&mut link.ram, link.rx.layout, link.features, BUFFER)?.expect("memory");
                rx.ring().publish();
                let tx =
                    TxDriver::new(&mut link.ram, link.tx.layout, link.features, BUFFER)?.expect("memory");
                made = Some((rx, tx, [link.rx.kick, link.tx.kick], link.rx.call));
                Ok(())
            },
        );
        let session = session.expect("the switch takes a session");
        let (rx, tx, kicks, call) = made.expect("a session that began has its queues");
        kicks.iter().for_each(Event::raise);
        let (name, frame) = (name.to_owned(), Vec::new());
        Self { name, mac, rx, tx, kicks, call, frame, _session: session }
    }

    /// Fills up the event by which the fabric tells of received frames, and makes it blocking: the
    /// fabric's next signal waits for ever. Its descriptor of the event shares the mode.
    pub fn block_interrupts(&self) {
        self.call.clear();
        rustix::io::write(&self.call, &(u64::MAX - 1).to_ne_bytes()).expect("there is room");
        let flags = fcntl_getfl(&self.call).expect("the flags");
        fcntl_setfl(&self.call, flags - OFlags::NONBLOCK).expect("the flags can be set");
    }

    /// Returns the port's entry of `taut port list`.
    pub fn info(&self, taut: &Taut) -> Value {
        let owner = format!("external/{}", self.name);
        let ports = taut.json(["port", "list"]);
        let found = ports.as_array().and_then(|all| all.iter().find(|port| port["owner"] == *owner).cloned());
        found.expect("an attached port is listed")
    }

    /// Puts a frame into the ring. Returns false, without any effect, if there is no room.
    pub fn send(&mut self, header: &NetHeader, frame: &[u8]) -> bool {
        self.tx.reclaim().expect("the fabric keeps the rules of the ring");
        self.tx.send(header, frame)
    }

    /// Publishes both rings and kicks the fabric if it asks for that.
    pub fn flush(&mut self) {
        for (ring, kick) in [(self.tx.ring(), &self.kicks[1]), (self.rx.ring(), &self.kicks[0])] {
            ring.publish();
            if ring.needs_kick() {
                kick.raise();
            }
        }
    }

    /// Returns true if the fabric has returned every sent frame.
    pub fn is_idle(&mut self) -> bool {
        self.tx.reclaim().expect("the fabric keeps the rules of the ring");
        self.tx.ring().free() == usize::from(ENTRIES)
    }

    /// Waits until the fabric reports a frame, or for `limit`. Some reports are spurious.
    pub fn await_frame(&mut self, limit: Duration) {
        self.call.clear();
        if self.rx.ring().arm_interrupts() {
            return;
        }
        let limit = Timespec { tv_sec: limit.as_secs().cast_signed(), tv_nsec: limit.subsec_nanos().into() };
        // An interrupted wait is one of the spurious reports.
        let _ = poll(&mut [PollFd::new(&self.call, PollFlags::IN)], Some(&limit));
    }

    /// Returns the next frame that has arrived.
    pub fn receive(&mut self) -> Option<&[u8]> {
        let header = self.rx.receive(&mut self.frame).expect("the fabric keeps the rules of the ring");
        header.map(|_| &self.frame[..])
    }
}
