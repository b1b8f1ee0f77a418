//! A client of the API over TCP, which pins the daemon's certificate.

use std::fmt::Write as _;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection with TLS.
#[derive(Debug)]
pub struct TlsClient {
    stream: BufReader<StreamOwned<ClientConnection, TcpStream>>,
}

/// An answer.
#[derive(Debug)]
pub struct TlsAnswer {
    /// Status.
    pub status: u16,
    /// Header lines.
    pub head: String,
    /// Body.
    pub body: String,
}

impl TlsAnswer {
    /// Returns the body as JSON; null if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

impl TlsClient {
    /// Connects to a daemon that shows a certificate with this SHA-256.
    pub fn connect(address: SocketAddr, fingerprint: &str) -> io::Result<Self> {
        Self::over(TcpStream::connect(address)?, fingerprint)
    }

    /// Like [`TlsClient::connect`], from an address of this host.
    pub fn connect_from(from: IpAddr, address: SocketAddr, fingerprint: &str) -> io::Result<Self> {
        let family = if from.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddr::new(from, 0))?;
        connect(&socket, &address)?;
        Self::over(socket.into(), fingerprint)
    }

    fn over(socket: TcpStream, fingerprint: &str) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let provider = Arc::new(default_provider());
        let pinned = Pinned {
            fingerprint: fingerprint.to_owned(),
            algorithms: provider.signature_verification_algorithms,
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(pinned))
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        let mut tls = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        let mut socket = socket;
        while tls.is_handshaking() {
            tls.complete_io(&mut socket)?;
        }
        Ok(Self { stream: BufReader::new(StreamOwned::new(tls, socket)) })
    }

    /// Writes text as it is.
    pub fn write(&mut self, text: &str) -> io::Result<()> {
        let stream = self.stream.get_mut();
        stream.write_all(text.as_bytes())?;
        stream.flush()
    }

    /// Sends a request and reads its answer. `head` has further header lines, each with its end.
    pub fn ask(&mut self, method: &str, path: &str, head: &str, body: &str) -> io::Result<TlsAnswer> {
        let length = body.len();
        self.write(&format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\n{head}content-length: {length}\r\n\r\n{body}"
        ))?;
        self.read()
    }

    /// Like [`TlsClient::ask`], with a token.
    pub fn ask_with(&mut self, token: &str, method: &str, path: &str, body: &str) -> io::Result<TlsAnswer> {
        self.ask(method, path, &format!("authorization: Bearer {token}\r\n"), body)
    }

    /// Reads an answer with a stated length.
    pub fn read(&mut self) -> io::Result<TlsAnswer> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.stream.read_line(&mut head)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no status: {head}")))?;
        let lower = head.to_lowercase();
        let length = lower.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length = length.and_then(|length| length.trim().parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok(TlsAnswer { status, head, body: String::from_utf8_lossy(&body).into_owned() })
    }

    /// Returns the statuses of all answers that are there, without waiting for more.
    pub fn statuses(&mut self) -> io::Result<Vec<u16>> {
        let stream = self.stream.get_mut();
        stream.sock.set_nonblocking(true)?;
        let mut bytes = Vec::new();
        let read = stream.read_to_end(&mut bytes);
        stream.sock.set_nonblocking(false)?;
        match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
            Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        // Heads begin at the begin of a record, which is read as a whole.
        let text = String::from_utf8_lossy(&bytes);
        let heads = text.split("HTTP/1.1 ").skip(1);
        Ok(heads.filter_map(|head| head.get(..3)?.parse().ok()).collect())
    }

    /// Reads until the daemon closes the connection, and returns the number of bytes.
    pub fn read_to_end(&mut self) -> usize {
        let mut bytes = Vec::new();
        // Without a farewell of TLS, which a connection that is cut off lacks, this is an error.
        let _ = self.stream.read_to_end(&mut bytes);
        bytes.len()
    }
}

/// Accepts one certificate alone.
#[derive(Debug)]
struct Pinned {
    fingerprint: String,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let mut text = String::new();
        for byte in Sha256::digest(certificate) {
            let _ = write!(text, "{}{byte:02X}", if text.is_empty() { "" } else { ":" });
        }
        if text == self.fingerprint {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(Error::General(format!("the certificate has the SHA-256 {text}")))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
