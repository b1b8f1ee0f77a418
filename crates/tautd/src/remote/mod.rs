//! Access over TCP: TLS, tokens, and bounds for whoever can reach the port.
//!
//! TCP is off unless the command line asks for it. One thread of lower priority serves all
//! connections, so that a flood takes little from others:
//!
//! - [`certificate`] reads the certificate, or makes one.
//! - [`addresses`] and [`bucket`] bound what each address may do; [`sessions`] keeps those of
//!   browsers. They are pure state machines on a clock that the caller reads. [`login`] serves the
//!   form that begins a session.
//! - [`connection`] serves one connection, and [`service`] decides about each request. It hands
//!   requests to the routers of the API and of the page, which ask for the role as always.

mod addresses;
mod bucket;
mod certificate;
mod connection;
mod login;
mod service;
mod sessions;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::process::setpriority_process;
use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_api::token::RemoteInfo;
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::http::App;
use crate::http::threads::IDLE;
use certificate::{Files, Identity};
use service::{Client, Service};

/// Name of the threads.
const NAME: &str = "remote";
/// Nice value of the threads.
const NICE: i32 = 10;
/// Maximum number of threads for work that may block.
const BLOCKING: usize = 16;
/// Bytes of a connection that the kernel keeps until they are read.
const RECEIVED: usize = 64 << 10;
/// Pause after a connection that could not be accepted, such as for want of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Time that clients have at the daemon's end, to take their answers.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// A socket that listens, and the certificate to show.
#[derive(Debug)]
pub(crate) struct Remote {
    listener: TcpListener,
    identity: Identity,
    info: RemoteInfo,
}

/// The thread that serves, and the way to its end.
#[derive(Debug)]
pub(crate) struct Serving {
    closing: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

impl Remote {
    /// Reads or makes the certificate, and listens.
    pub(crate) fn open(
        listen: SocketAddr,
        files: Option<(PathBuf, PathBuf)>,
        state_dir: &Path,
    ) -> Result<Self, ApiError> {
        let self_signed = files.is_none();
        let files = match files {
            Some((certificate, key)) => Files { certificate, key },
            None => certificate::own(state_dir, listen)?,
        };
        let identity = certificate::read(&files)?;
        let cannot = |error: &std::io::Error| {
            let hint = "name an address of this host and a free port: --listen 192.0.2.7:8443";
            ApiError::new(ErrorKind::Unavailable, format!("tautd cannot listen at {listen}"), hint)
                .because(error)
        };
        let listener = TcpListener::bind(listen).map_err(|error| cannot(&error))?;
        listener.set_nonblocking(true).map_err(|error| cannot(&error))?;
        set_socket_recv_buffer_size(&listener, RECEIVED).map_err(|error| cannot(&error.into()))?;
        let address = listener.local_addr().map_err(|error| cannot(&error))?;
        let fingerprint = identity.fingerprint.clone();
        Ok(Self { listener, identity, info: RemoteInfo { address, fingerprint, self_signed } })
    }

    /// Returns what clients have to know.
    pub(crate) fn info(&self) -> RemoteInfo {
        self.info.clone()
    }

    /// Starts the thread.
    pub(crate) fn start(self, app: Arc<App>) -> std::io::Result<Serving> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .thread_name(NAME)
            .max_blocking_threads(BLOCKING)
            .thread_keep_alive(IDLE)
            .build()?;
        let listener = {
            let _guard = runtime.enter();
            tokio::net::TcpListener::from_std(self.listener)?
        };
        let tls = TlsAcceptor::from(self.identity.config);
        let (closing, closed) = watch::channel(false);
        let thread = thread::Builder::new().name(NAME.to_owned()).spawn(move || {
            // Threads for work that may block inherit the value.
            if let Err(error) = setpriority_process(None, NICE) {
                tracing::warn!(%error, "access over TCP has the priority of everything else");
            }
            runtime.block_on(serve(listener, Arc::new(Service::new(app)), tls, closed));
            // Work that blocks is left behind.
            runtime.shutdown_background();
        })?;
        Ok(Serving { closing, thread })
    }
}

impl Serving {
    /// Stops accepting connections, and waits until requests under way are answered.
    pub(crate) fn end(self) {
        // An error means that the thread has ended.
        let _ = self.closing.send(true);
        if self.thread.join().is_err() {
            tracing::error!("the thread for access over TCP has panicked");
        }
    }
}

/// Accepts connections and serves each in a task of its own.
async fn serve(
    listener: tokio::net::TcpListener,
    service: Arc<Service>,
    tls: TlsAcceptor,
    closed: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    let mut ending = closed.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            _ = ending.wait_for(|closing| *closing) => break,
        };
        let (socket, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "a connection could not be accepted");
                sleep(PAUSE).await;
                continue;
            }
        };
        let address = from.ip().to_canonical();
        let Some(key) = service.open(address) else { continue };
        let open = Open { service: service.clone(), peer: Arc::new(Client::new(address, key)) };
        let (tls, closed) = (tls.clone(), closed.clone());
        connections.spawn(async move {
            connection::serve(&open.service, open.peer.clone(), socket, tls, closed).await;
        });
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    if timeout(LAST_ANSWERS, all).await.is_err() {
        tracing::warn!("some clients over TCP did not take their answers within {LAST_ANSWERS:?}");
    }
}

/// A connection that counts until this is dropped, also if its task panics.
#[derive(Debug)]
struct Open {
    service: Arc<Service>,
    peer: Arc<Client>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.service.close(self.peer.key);
    }
}
