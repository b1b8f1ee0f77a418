//! VMCI sockets (SPEC rows VC-1 to VC-5): the device end of guests' virtio-vsock devices, and the connections between them and
//! to the host.
//!
//! One thread ([`worker`]) serves all devices. It moves a guest's bytes from its transmit ring into the receiving guest's
//! buffers with one copy, and keeps none: what cannot be handed over yet stays where the guest put it, and is given back, in
//! whatever order, when it has been.
//!
//! * [`arrive`]: packets from guests: who may talk ([`policy`]), what a connection's state allows ([`connection`]).
//! * [`deliver`]: receivers' turns; the parts of one flow become one packet for a receiver of many small ones.
//! * [`host`]: Unix sockets on the host.
//! * [`lifetime`]: a connection from its request until both ends know that it is over.
//! * [`devices`]: devices come and go, and who knows whom.
//! * [`rings`]: rings come and go, guests start anew, another fabric takes over ([`table`]).

mod arrive;
mod connection;
mod deliver;
mod devices;
mod guest;
mod host;
mod hub;
mod lifetime;
mod moderation;
mod packets;
mod policy;
mod polling;
#[cfg(any(test, feature = "rig"))]
pub mod rig;
mod rings;
mod sharing;
mod table;
#[cfg(test)]
mod tests;
mod token;
mod worker;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use taut_api::fabric::PortId;
use taut_api::fabric::config::{SocketConfig, SocketWorker};
use taut_virtq::counters::SharedWords;

use crate::port::Failure;
use crate::sys::affinity::CpuAffinity;
use crate::sys::epoll::{EventFlags, Waker, Watched};
use crate::vhost_user::Device;
use hub::Hub;
use rings::SocketDevice;

/// What control has to know.
#[derive(Debug)]
pub enum News {
    /// A guest connects to the host.
    HostConnect {
        /// Its device.
        port: PortId,
        /// Given back with the answer.
        request: u32,
        /// The port that it connects to.
        to: u32,
    },
    /// A guest did what only an attacker or a broken driver does.
    Violation {
        /// Its device.
        port: PortId,
        /// What.
        what: String,
    },
    /// A ring stopped working.
    Broken {
        /// The device.
        port: PortId,
        /// Index of the queue.
        queue: usize,
        /// Why.
        failure: Failure,
    },
}

/// What control and the thread share.
#[derive(Debug)]
pub(crate) struct Shared {
    hub: Mutex<Hub>,
    /// How many wait for the lock besides the thread.
    wanted: AtomicUsize,
    /// Wakes the thread.
    waker: Waker,
    /// Wakes control.
    alarm: Waker,
}

impl Shared {
    /// For the thread.
    fn hub(&self) -> MutexGuard<'_, Hub> {
        self.hub.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For everybody else.
    fn enter(&self) -> MutexGuard<'_, Hub> {
        self.wanted.fetch_add(1, SeqCst);
        let hub = self.hub();
        self.wanted.fetch_sub(1, SeqCst);
        hub
    }
}

/// The control thread's handle to all devices.
#[derive(Debug)]
pub struct Sockets {
    shared: Arc<Shared>,
    thread: Option<(JoinHandle<()>, CpuAffinity)>,
    _woken: Watched<Waker>,
}

impl Sockets {
    /// Starts the thread, without devices.
    pub fn start(words: &Arc<SharedWords>) -> io::Result<Self> {
        let hub = Hub::new(words)?;
        let waker = Waker::new()?;
        let woken = hub.events.watch(waker.clone(), token::WAKER, EventFlags::IN)?;
        let shared = Arc::new(Shared {
            hub: Mutex::new(hub),
            wanted: AtomicUsize::new(0),
            waker,
            alarm: Waker::new()?,
        });
        let (thread, tid) = worker::start(Arc::clone(&shared))?;
        Ok(Self { shared, thread: Some((thread, CpuAffinity::new(tid))), _woken: woken })
    }

    /// Makes the devices what they are wanted to be; tells which could not be, and why. A device keeps its connections as far
    /// as their ends may still talk. Without a pCPU of its own the thread runs `near`, or anywhere if that is empty.
    pub fn configure(
        &mut self,
        devices: &[SocketConfig],
        worker: &SocketWorker,
        near: &[u32],
    ) -> Vec<(PortId, String)> {
        let refused = self.shared.enter().configure(devices, worker);
        self.bind(worker.cpu.as_ref().map_or(near, std::slice::from_ref));
        self.shared.waker.wake();
        refused
    }

    fn bind(&mut self, cpus: &[u32]) {
        if let Some((_, place)) = &mut self.thread
            && let Err(error) = place.put(cpus)
        {
            tracing::warn!(?cpus, %error, "the thread for sockets cannot be bound to these pCPUs");
        }
    }

    /// What a front end's session drives; `None` if it is not configured.
    pub fn device(&self, id: PortId) -> Option<Arc<dyn Device>> {
        SocketDevice::find(&self.shared, id).map(|device| Arc::new(device) as Arc<dyn Device>)
    }

    /// Where programs of the host's connect to a device's guest. Replaces the one before.
    pub fn host_listener(&mut self, id: PortId, listener: OwnedFd) {
        if let Err(error) = self.shared.enter().host_listener(id, listener) {
            tracing::warn!(%id, %error, "the socket for programs of the host cannot be used");
        }
        self.shared.waker.wake();
    }

    /// The answer to [`News::HostConnect`].
    pub fn host_connected(&mut self, id: PortId, request: u32, socket: Option<OwnedFd>) {
        self.shared.enter().host_connected(id, request, socket);
        self.shared.waker.wake();
    }

    /// Begins to serve, once, before any ring starts: at the first configuration, or when the other fabric has stopped. Goes
    /// on with the connections that it had if it has stopped by [`Self::stop`], with these sockets; otherwise resets them.
    pub fn begin(&mut self, streams: Vec<(u32, OwnedFd)>) {
        self.shared.enter().begin(streams);
        self.shared.waker.wake();
    }

    /// Readable when there is news.
    pub fn alarm(&self) -> &Waker {
        &self.shared.alarm
    }

    /// What has happened since the last call.
    pub fn take_news(&self) -> Vec<News> {
        self.shared.alarm.clear();
        std::mem::take(&mut self.shared.enter().news)
    }

    /// Stops serving and writes everything down for the next fabric; returns the Unix sockets that it needs.
    pub fn stop(&mut self) -> Vec<(u32, OwnedFd)> {
        let streams = self.shared.enter().stop();
        self.shared.waker.wake();
        if let Some((thread, _)) = self.thread.take() {
            // One that panicked has taken the process along.
            let _ = thread.join();
        }
        streams
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        self.shared.enter().quit = true;
        self.shared.waker.wake();
        if let Some((thread, _)) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
