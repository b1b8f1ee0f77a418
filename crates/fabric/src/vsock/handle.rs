//! The control thread's handle to all vsock devices.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use taut_api::fabric::PortId;
use taut_api::fabric::config::{SocketConfig, SocketWorker};
use taut_virtq::counters::SharedWords;

use super::device::VsockDevice;
use super::engine::{VsockEvent, VsockSwitch};
use super::guest::EventSource;
use super::queue_pair::{GuestRegion, RegionPlace, RegionRefused};
use super::thread::{self, Shared};
use crate::sys::epoll::{EventFlags, Waker, Watched};
use crate::sys::thread::Thread;
use crate::sys::timer::Timer;
use crate::vhost_user::Device;

/// The devices and the thread that serves them.
#[derive(Debug)]
pub struct VsockHandle {
    shared: Arc<Shared>,
    thread: Option<Thread>,
    _woken: Watched<Waker>,
}

impl VsockHandle {
    /// Starts the thread, without devices.
    pub fn start(words: &Arc<SharedWords>) -> io::Result<Self> {
        let switch = VsockSwitch::new(words)?;
        let waker = Waker::new()?;
        let woken = switch.epoll.watch(waker.clone(), EventSource::Waker.token(), EventFlags::IN)?;
        let timer = switch.epoll.watch(Timer::new()?, EventSource::Timer.token(), EventFlags::IN)?;
        let shared = Arc::new(Shared::new(switch, waker)?);
        let thread = thread::start(Arc::clone(&shared), timer)?;
        Ok(Self { shared, thread: Some(thread), _woken: woken })
    }

    /// Applies a configuration. Returns the devices that were refused, with the reasons. A device
    /// keeps its connections as far as their ends may still talk.
    ///
    /// Without a pCPU of its own the thread runs on the pCPUs `near`, or anywhere if there are
    /// none.
    pub fn configure(
        &mut self,
        devices: &[SocketConfig],
        worker: &SocketWorker,
        near: &[u32],
    ) -> Vec<(PortId, String)> {
        let mut switch = self.shared.enter();
        let refused = switch.configure(devices, worker);
        switch.bind_to = Some(worker.cpu.map_or_else(|| near.to_vec(), |own| vec![own]));
        drop(switch);
        self.shared.waker.wake();
        refused
    }

    /// The device that a front end's session drives; `None` if it is not configured.
    pub fn device(&self, id: PortId) -> Option<Arc<dyn Device>> {
        VsockDevice::find(&self.shared, id).map(|device| Arc::new(device) as Arc<dyn Device>)
    }

    /// Sets the memory of a device's queue pairs: a part of a file, which has to be sealed against
    /// shrinking. Does nothing if the device has this memory already; if it has other memory, all
    /// connections that use it are reset.
    ///
    /// To go on with the connections of another fabric, set it before [`Self::begin`].
    pub fn set_region(
        &mut self,
        id: PortId,
        file: &OwnedFd,
        place: RegionPlace,
    ) -> Result<(), RegionRefused> {
        if self.shared.enter().has_region(id, file, place) {
            return Ok(());
        }
        // Without the lock: this touches a page of each channel, and the thread would stand still.
        let region = GuestRegion::map(file, place)?;
        self.shared.enter().set_region(id, region);
        self.shared.waker.wake();
        Ok(())
    }

    /// Takes the memory for queue pairs from a device. All connections that use it are reset.
    pub fn remove_region(&mut self, id: PortId) {
        self.shared.enter().remove_region(id);
        self.shared.waker.wake();
    }

    /// Replaces the socket at which programs on the host connect to a device's guest.
    pub fn host_listener(&mut self, id: PortId, listener: OwnedFd) {
        if let Err(error) = self.shared.enter().host_listener(id, listener) {
            tracing::warn!(%id, %error, "the vsock listener for programs on the host cannot be used");
        }
        self.shared.waker.wake();
    }

    /// Takes the answer to [`VsockEvent::HostConnect`]: the program's socket, or a refusal.
    pub fn host_connected(&mut self, id: PortId, request: u32, socket: Option<OwnedFd>) {
        self.shared.enter().host_connected(id, request, socket);
        self.shared.waker.wake();
    }

    /// Begins to serve. Call it once, before any ring starts: at the first configuration, or when
    /// the other fabric has stopped.
    ///
    /// Connections of a fabric that stopped by [`Self::stop`] go on, with the sockets that it
    /// returned. Connections of a fabric that was killed are reset.
    pub fn begin(&mut self, streams: Vec<(u32, OwnedFd)>) {
        self.shared.enter().begin(streams, Instant::now());
        self.shared.waker.wake();
    }

    /// The number of passes that the thread has made; `None` while it sleeps.
    pub fn progress(&self) -> Option<u64> {
        self.shared.progress()
    }

    /// Readable when there are events.
    pub fn alarm(&self) -> &Waker {
        &self.shared.alarm
    }

    /// Takes the events since the last call.
    pub fn take_events(&self) -> Vec<VsockEvent> {
        self.shared.alarm.clear();
        std::mem::take(&mut self.shared.enter().events)
    }

    /// Stops serving and writes everything down for the next fabric. Returns the Unix sockets that
    /// it needs.
    pub fn stop(&mut self) -> Vec<(u32, OwnedFd)> {
        let streams = self.shared.enter().stop();
        self.shared.waker.wake();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
        streams
    }
}

impl Drop for VsockHandle {
    fn drop(&mut self) {
        self.shared.enter().quit = true;
        self.shared.waker.wake();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}
