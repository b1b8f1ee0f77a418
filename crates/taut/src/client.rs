//! HTTP with JSON bodies over the daemon's Unix socket.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST, IF_MATCH, IF_NONE_MATCH};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{PidfdFlags, pidfd_open};
use serde::Serialize;
use serde::de::DeserializeOwned;
use taut_api::error::ErrorKind;
use taut_api::{ApiError, Document};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Default Unix socket of tautd.
pub(crate) const SOCKET: &str = "/run/taut/tautd.sock";
/// Number of times that a change is begun anew because somebody else has changed the resource.
const ATTEMPTS: u32 = 20;

/// A client of the daemon. It opens one connection per request.
#[derive(Debug)]
pub(crate) struct Client {
    socket: PathBuf,
}

/// Outcome of a request for a resource that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Existing {
    /// The request takes effect.
    Replace,
    /// The request takes effect if the resource has this revision.
    ReplaceRevision(u64),
    /// The daemon refuses the request.
    Refuse,
}

/// The end of an answer that is read piece by piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// The daemon has ended the answer.
    Answer,
    /// The reader wanted no more.
    Enough,
    /// A user or a program has interrupted this one.
    Signal,
}

impl Client {
    /// Returns a client of the daemon that listens on `socket`.
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Opens the daemon's process, to wait for its end; `None` if it is not visible, such as from
    /// another PID namespace.
    pub(crate) fn process(&self) -> Result<Option<OwnedFd>, ApiError> {
        let stream = UnixStream::connect(&self.socket).map_err(|error| self.unreachable(&error))?;
        Ok(socket_peercred(&stream).and_then(|peer| pidfd_open(peer.pid, PidfdFlags::empty())).ok())
    }

    /// Reads a resource.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiError> {
        self.decoded(Method::GET, path, &())
    }

    /// Posts a request and returns the answer.
    pub(crate) fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ApiError> {
        self.decoded(Method::POST, path, body)
    }

    /// Posts a request and discards the answer.
    pub(crate) fn post_only(&self, path: &str, body: &impl Serialize) -> Result<(), ApiError> {
        self.request(Method::POST, path, body, Existing::Replace).map(drop)
    }

    /// Creates a resource, unless there is one at this path, and returns it.
    pub(crate) fn create<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ApiError> {
        parsed(path, &self.request(Method::PUT, path, body, Existing::Refuse)?)
    }

    /// Replaces a resource, or creates it, and returns it.
    pub(crate) fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ApiError> {
        self.decoded(Method::PUT, path, body)
    }

    /// Reads a resource, changes it, and returns it as it is then. Begins anew if somebody else has
    /// changed it in between, so that neither change is lost. A resource of revision 0 has its
    /// defaults, and no document yet.
    pub(crate) fn change<Spec, Status>(
        &self,
        path: &str,
        change: impl Fn(Spec) -> Spec,
    ) -> Result<Document<Spec, Status>, ApiError>
    where
        Spec: Serialize + DeserializeOwned,
        Status: DeserializeOwned,
    {
        let attempt = || -> Result<Document<Spec, Status>, ApiError> {
            let before: Document<Spec, Status> = self.get(path)?;
            let unchanged = match before.revision {
                0 => Existing::Refuse,
                revision => Existing::ReplaceRevision(revision),
            };
            parsed(path, &self.request(Method::PUT, path, &change(before.spec), unchanged)?)
        };
        for _ in 1..ATTEMPTS {
            match attempt() {
                Err(ApiError { kind: ErrorKind::Changed, .. }) => {}
                outcome => return outcome,
            }
        }
        attempt()
    }

    /// Changes a part of a resource and returns the whole resource.
    pub(crate) fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ApiError> {
        self.decoded(Method::PATCH, path, body)
    }

    /// Deletes a resource.
    pub(crate) fn delete(&self, path: &str) -> Result<(), ApiError> {
        self.request(Method::DELETE, path, &(), Existing::Replace).map(drop)
    }

    fn decoded<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ApiError> {
        parsed(path, &self.request(method, path, body, Existing::Replace)?)
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
        existing: Existing,
    ) -> Result<Bytes, ApiError> {
        let without_body = matches!(method, Method::GET | Method::DELETE);
        let body =
            if without_body { Vec::new() } else { serde_json::to_vec(body).expect("our own types are JSON") };
        event_loop()?.block_on(async {
            let stream = tokio::net::UnixStream::connect(&self.socket)
                .await
                .map_err(|error| self.unreachable(&error))?;
            let exchange = async {
                let (mut sender, connection) =
                    hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
                tokio::spawn(connection);
                let mut request = Request::builder()
                    .method(method)
                    .uri(path)
                    .header(HOST, "tautd")
                    .header(CONTENT_TYPE, "application/json");
                match existing {
                    Existing::Replace => {}
                    Existing::ReplaceRevision(revision) => {
                        request = request.header(IF_MATCH, format!("\"{revision}\""));
                    }
                    Existing::Refuse => request = request.header(IF_NONE_MATCH, "*"),
                }
                let request =
                    request.body(Full::new(Bytes::from(body))).expect("paths are made of checked names");
                let response = sender.send_request(request).await?;
                let status = response.status();
                Ok::<_, hyper::Error>((status, response.into_body().collect().await?.to_bytes()))
            };
            let (status, bytes) = exchange.await.map_err(|error| broken_off(path, &error))?;
            if status.is_success() { Ok(bytes) } else { Err(refusal(path, status.as_u16(), &bytes)) }
        })
    }

    /// Reads an answer that may have no end, and gives `take` each piece of it as soon as it comes.
    /// SIGINT and SIGTERM end it as well, and are no errors.
    pub(crate) fn stream(
        &self,
        path: &str,
        mut take: impl FnMut(&[u8]) -> Result<ControlFlow<()>, ApiError>,
    ) -> Result<StreamEnd, ApiError> {
        event_loop()?.block_on(async {
            let [mut interrupt, mut terminate] = ending_signals()?;
            let stream = tokio::net::UnixStream::connect(&self.socket)
                .await
                .map_err(|error| self.unreachable(&error))?;
            let answer = async {
                let (mut sender, connection) =
                    hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
                tokio::spawn(connection);
                let request = Request::builder().uri(path).header(HOST, "tautd");
                let request =
                    request.body(Full::<Bytes>::default()).expect("paths are made of checked names");
                let answer = sender.send_request(request).await?;
                Ok::<_, hyper::Error>((answer, sender))
            };
            let answer = tokio::select! {
                answer = answer => answer,
                _ = interrupt.recv() => return Ok(StreamEnd::Signal),
                _ = terminate.recv() => return Ok(StreamEnd::Signal),
            };
            // The connection stays open as long as there is a sender.
            let (answer, _sender) = answer.map_err(|error| broken_off(path, &error))?;
            let (status, mut body) = (answer.status(), answer.into_body());
            if !status.is_success() {
                let whole = body.collect().await.map_err(|error| broken_off(path, &error))?;
                return Err(refusal(path, status.as_u16(), &whole.to_bytes()));
            }
            loop {
                let piece = tokio::select! {
                    piece = body.frame() => piece,
                    _ = interrupt.recv() => return Ok(StreamEnd::Signal),
                    _ = terminate.recv() => return Ok(StreamEnd::Signal),
                };
                let Some(piece) = piece else { return Ok(StreamEnd::Answer) };
                let piece = piece.map_err(|error| broken_off(path, &error))?;
                // Pieces without data are trailers, which the daemon does not send.
                let bytes = piece.into_data().unwrap_or_default();
                if take(&bytes)?.is_break() {
                    return Ok(StreamEnd::Enough);
                }
            }
        })
    }

    fn unreachable(&self, error: &std::io::Error) -> ApiError {
        let socket = self.socket.display();
        let hint = match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                "run taut as root, or as a member of the group that the roles file names".to_owned()
            }
            _ => "start tautd, or name its socket with --socket or TAUT_SOCKET".to_owned(),
        };
        ApiError::new(ErrorKind::Unavailable, format!("no daemon answers on {socket}"), hint).because(error)
    }
}

fn event_loop() -> Result<Runtime, ApiError> {
    Builder::new_current_thread().enable_all().build().map_err(|error| no_event_loop(&error))
}

/// Returns the signals that end an answer without an end: from now on they do not end the process.
fn ending_signals() -> Result<[Signal; 2], ApiError> {
    let listen = |kind| signal(kind).map_err(|error| no_event_loop(&error));
    Ok([listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?])
}

fn no_event_loop(error: &io::Error) -> ApiError {
    ApiError::new(ErrorKind::Internal, "cannot create an event loop", "raise the limit of open files")
        .because(error)
}

fn broken_off(path: &str, error: &hyper::Error) -> ApiError {
    ApiError::new(
        ErrorKind::Unavailable,
        format!("the daemon closed the connection before it had answered {path}"),
        "read the daemon's log, then try again",
    )
    .because(error)
}

/// Parses the daemon's answer.
fn parsed<T: DeserializeOwned>(path: &str, answer: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(answer).map_err(|error| {
        ApiError::new(
            ErrorKind::Internal,
            format!("the daemon's answer to {path} does not match this version of taut"),
            "use taut and tautd of the same version",
        )
        .because(&error)
    })
}

/// Parses the daemon's error; makes one if the answer is not JSON.
fn refusal(path: &str, status: u16, body: &[u8]) -> ApiError {
    serde_json::from_slice(body).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(body);
        ApiError::new(
            ErrorKind::Internal,
            format!("the daemon answered {path} with status {status}: {}", text.trim()),
            "use taut and tautd of the same version",
        )
    })
}
