//! A VMCI device whose guest sends any packet that a test wants.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use taut_bench::front_end::{self, Event, Wanted};
use taut_virtq::SocketHeader;
use taut_virtq::driver::{Ram, Shape, SocketRxDriver, SocketTxDriver};
use taut_virtq::features;
use taut_virtq::socket_header::{REQUEST, STREAM};
use vhost::vhost_user::Frontend;

use crate::{Taut, bin_dir, eventually};

const ENTRIES: u16 = 128;
const PAYLOAD: u32 = 4096;
const MEMORY: u64 = 16 << 20;
/// Receive buffer of a connection, in bytes.
const ROOM: u32 = 64 << 10;

/// Driver end of the VMCI device of a microguest that runs nothing.
pub struct RawVmci {
    /// Context ID, read from the device.
    pub cid: u64,
    rx: SocketRxDriver,
    tx: SocketTxDriver,
    kicks: [Event; 2],
    _session: Frontend,
}

impl std::fmt::Debug for RawVmci {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawVmci").field("cid", &self.cid).finish_non_exhaustive()
    }
}

/// Makes a folder of taut's programs in which microguests do nothing, for the daemon's `--libexec`.
pub fn idle_microguests(dir: &Path) -> PathBuf {
    let libexec = dir.join("libexec");
    std::fs::create_dir(&libexec).expect("the directory is ours");
    for program in ["taut-console", "taut-fabric", "taut-inspect", "taut-launch"] {
        std::os::unix::fs::symlink(bin_dir().join(program), libexec.join(program)).expect("likewise");
    }
    let micro = libexec.join("taut-micro");
    // It closes the sockets that it inherits, so that tests can listen in its place.
    let idle = "#!/bin/bash\nexec 10>&- 11>&- 12>&- 13>&- 14>&- 15>&-\nexec sleep 3600\n";
    std::fs::write(&micro, idle).expect("likewise");
    std::fs::set_permissions(&micro, PermissionsExt::from_mode(0o755)).expect("likewise");
    libexec
}

impl RawVmci {
    /// Takes the place of the guest of a microguest with a VMCI device that was just started, and
    /// starts the rings.
    pub fn start(taut: &Taut, vm: &str) -> Self {
        let pid = || taut.json(["vm", "show", vm])["status"]["pid"].as_i64();
        eventually("the VM's process is there", pid);
        let front = taut.dir().join(format!("run/vms/{vm}/vmci.front.sock"));
        eventually("its process has closed its socket", || UnixStream::connect(&front).err());
        std::fs::remove_file(&front).expect("the directory is ours");
        let listener = UnixListener::bind(front);
        let (stream, _) = listener.and_then(|listener| listener.accept()).expect("the daemon connects");
        let ram = Ram::new(MEMORY).expect("memory");
        let features = features::EVENT_IDX;
        let wanted = Wanted { features, entries: [ENTRIES; 2], ram, config: 8 };
        let mut made = None;
        let session = front_end::connect(stream, wanted, |mut link| {
            let cid = link.config.try_into().map(u64::from_le_bytes).expect("eight bytes were asked for");
            let mut rx =
                SocketRxDriver::new(&mut link.ram, link.rx.layout, link.features, Shape::Whole, PAYLOAD)?
                    .expect("memory");
            rx.ring().publish();
            let tx =
                SocketTxDriver::new(&mut link.ram, link.tx.layout, link.features, Shape::Apart, PAYLOAD)?
                    .expect("memory");
            made = Some((cid, rx, tx, [link.rx.kick, link.tx.kick]));
            Ok(())
        });
        let session = session.expect("the fabric takes a session");
        let (cid, rx, tx, kicks) = made.expect("a session that began has its queues");
        kicks.iter().for_each(Event::raise);
        let link = || taut.json(["vm", "show", vm])["status"]["vmci"]["link"].clone();
        eventually("the device is up", || (link() == "up").then_some(()));
        Self { cid, rx, tx, kicks, _session: session }
    }

    /// Returns the header of a connection request.
    pub fn request(&self, from_port: u32, to: (u64, u32)) -> SocketHeader {
        SocketHeader {
            src_cid: self.cid,
            dst_cid: to.0,
            src_port: from_port,
            dst_port: to.1,
            kind: STREAM,
            op: REQUEST,
            buf_alloc: ROOM,
            ..SocketHeader::default()
        }
    }

    /// Sends a packet.
    pub fn send(&mut self, header: SocketHeader, payload: &[u8]) {
        eventually("there is room in the ring", || {
            self.tx.reclaim().expect("the fabric keeps the rules of the ring");
            self.tx.send(header, &[payload]).then_some(())
        });
        self.flush();
    }

    /// Waits for the next packet and returns it.
    pub fn receive(&mut self) -> (SocketHeader, Vec<u8>) {
        let packet = eventually("a packet arrives", || {
            let packet = self.rx.receive(|header, payload| {
                let mut bytes = vec![0; payload.left()];
                payload.read(&mut bytes);
                (header, bytes)
            });
            packet.expect("the fabric keeps the rules of the ring")
        });
        self.flush();
        packet
    }

    fn flush(&mut self) {
        for (ring, kick) in [(self.tx.ring(), &self.kicks[1]), (self.rx.ring(), &self.kicks[0])] {
            ring.publish();
            if ring.needs_kick() {
                kick.raise();
            }
        }
    }
}
