//! One connection: its first byte, the TLS handshake, and its requests, each within a time.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt::{set_tcp_nodelay, set_tcp_user_timeout};
use taut_api::ApiError;
use taut_api::error::ErrorKind;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{interval, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::service::{Client, Service};
use crate::access::refusals::Reason;

/// Time limit from accepting a connection to the end of the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Time in which the whole head of a request has to arrive, pauses between requests included.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// Longest head of a request in bytes.
const HEAD: usize = 16 << 10;
/// Maximum number of header lines.
const HEADERS: usize = 64;
/// Time after which the kernel ends a connection whose client takes nothing, in milliseconds.
const UNREAD_MS: u32 = 30_000;
/// Interval at which open connections are checked for an expired token.
const EXPIRY: Duration = Duration::from_secs(5);
/// First byte of a TLS handshake.
const TLS: u8 = 0x16;
/// Time in which a request under way is still answered when its token is deleted or expires.
const GRACE: Duration = Duration::from_secs(2);

/// Serves a connection until its end.
pub(super) async fn serve(
    service: &Service,
    peer: Arc<Client>,
    socket: TcpStream,
    tls: TlsAcceptor,
    closing: watch::Receiver<bool>,
) {
    // Both calls succeed for a TCP socket; without them the connection is slower, or longer open.
    let _ = (set_tcp_nodelay(&socket, true), set_tcp_user_timeout(&socket, UNREAD_MS));
    match timeout(HANDSHAKE, shake_hands(socket, &tls)).await {
        Ok(Ok(stream)) => requests(service, peer, stream, closing).await,
        Ok(Err(reason)) => service.note(reason, peer.address),
        Err(_) => service.note(Reason::Handshake, peer.address),
    }
}

async fn shake_hands(mut socket: TcpStream, tls: &TlsAcceptor) -> Result<TlsStream<TcpStream>, Reason> {
    let mut first = [0];
    match socket.peek(&mut first).await {
        Ok(1) if first[0] == TLS => tls.accept(socket).await.map_err(|_| Reason::Handshake),
        Ok(1) if first[0].is_ascii_uppercase() => {
            // A client that takes it is told why; the connection ends in any case.
            let _ = socket.write_all(plain_answer().as_bytes()).await;
            let _ = socket.shutdown().await;
            Err(Reason::PlainHttp)
        }
        _ => Err(Reason::Handshake),
    }
}

/// Answers requests, until the client leaves, is too slow, or its token is gone.
async fn requests(
    service: &Service,
    peer: Arc<Client>,
    stream: TlsStream<TcpStream>,
    mut closing: watch::Receiver<bool>,
) {
    let mut tokens = service.app.store.watch_tokens();
    // True from the first byte of a request until its answer, and before the first request.
    let begun = Arc::new(AtomicBool::new(true));
    let answer = service_fn(|request: Request<Incoming>| {
        let (peer, begun) = (peer.clone(), begun.clone());
        async move {
            let answer = service.answer(&peer, request.map(Body::new)).await;
            begun.store(false, Relaxed);
            Ok::<_, Infallible>(answer)
        }
    });
    let stream = Watched { stream, begun: begun.clone() };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD)
        .max_headers(HEADERS)
        .serve_connection(TokioIo::new(stream), answer);
    let mut connection = pin!(connection);
    let mut expiry = interval(EXPIRY);
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                // A connection that is only kept open between requests is closed as well, and is
                // not refused anything.
                if ended.is_err_and(|error| error.is_timeout()) && begun.load(Relaxed) {
                    service.note(Reason::Slow, peer.address);
                }
                return;
            }
            changed = tokens.changed() => {
                if changed.is_err() || !peer.is_welcome(&tokens.borrow_and_update()) {
                    break;
                }
            }
            _ = expiry.tick() => {
                if !peer.is_welcome(&tokens.borrow()) {
                    break;
                }
            }
            // The request under way is still answered.
            () = closed(&mut closing) => {
                connection.as_mut().graceful_shutdown();
                // A connection that does not end is ended with the thread.
                let _ = connection.await;
                return;
            }
        }
    }
    // The request that deletes its own token is answered, too.
    connection.as_mut().graceful_shutdown();
    let _ = timeout(GRACE, connection).await;
}

/// A stream that notes whether bytes have come.
#[derive(Debug)]
struct Watched {
    stream: TlsStream<TcpStream>,
    begun: Arc<AtomicBool>,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.begun.store(true, Relaxed);
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Waits until the daemon ends or the sender is dropped.
async fn closed(closing: &mut watch::Receiver<bool>) {
    let _ = closing.wait_for(|closing| *closing).await;
}

/// Returns the answer to a client that speaks HTTP without TLS.
fn plain_answer() -> String {
    let hint = "begin the address with https:// instead of http://";
    let error = ApiError::new(ErrorKind::Invalid, "this port speaks TLS alone", hint);
    let body = serde_json::to_string(&error).unwrap_or_default();
    format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}
