//! The certificate: one that the command line names, or one that the daemon has made itself.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::TLS13;
use sha2::{Digest as _, Sha256};
use taut_api::ApiError;
use taut_api::error::ErrorKind;

/// Name of the file with the daemon's own certificate, in the state directory.
const CERTIFICATE: &str = "remote-cert.pem";
/// Name of the file with its key.
const KEY: &str = "remote-key.pem";

/// Files with a certificate, and those it depends on, and with its key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Files {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

/// Certificate and key in use.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    /// Settings of TLS with them.
    pub(super) config: Arc<ServerConfig>,
    /// SHA-256 of the certificate.
    pub(super) fingerprint: String,
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadCertificate {
    /// A file cannot be read, or is no PEM.
    #[error("cannot read {0}")]
    Unreadable(PathBuf, #[source] rustls::pki_types::pem::Error),
    /// A file contains no certificate.
    #[error("{0} has no certificate")]
    Empty(PathBuf),
    /// The key is of another certificate, or of a kind that is not supported.
    #[error("{} and {} cannot be used together", .0.certificate.display(), .0.key.display())]
    Unusable(Files, #[source] rustls::Error),
    /// A self-signed certificate could not be made.
    #[error("no certificate can be made")]
    NotMade(#[from] rcgen::Error),
    /// A self-signed certificate could not be written to its file.
    #[error("{0} cannot be written")]
    Unwritable(PathBuf, #[source] io::Error),
}

impl From<BadCertificate> for ApiError {
    fn from(error: BadCertificate) -> Self {
        let (kind, hint) = match &error {
            BadCertificate::Unreadable(..) | BadCertificate::Empty(_) => {
                (ErrorKind::Invalid, "name files in PEM with --tls-cert and --tls-key, or leave both out")
            }
            BadCertificate::Unusable(..) => {
                (ErrorKind::Invalid, "name the key that belongs to the certificate, without a password")
            }
            BadCertificate::NotMade(_) => {
                (ErrorKind::Internal, "name your own with --tls-cert and --tls-key")
            }
            BadCertificate::Unwritable(..) => {
                (ErrorKind::Unavailable, "check the disk of the state directory, then start tautd again")
            }
        };
        let invalid = Self::new(kind, error.to_string(), hint);
        std::error::Error::source(&error).map_or(invalid.clone(), |cause| invalid.because(cause))
    }
}

/// Reads certificate and key.
pub(super) fn read(files: &Files) -> Result<Identity, BadCertificate> {
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        |error| BadCertificate::Unreadable(path, error)
    };
    let chain = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(unreadable(&files.certificate))?;
    let first = chain.first().ok_or_else(|| BadCertificate::Empty(files.certificate.clone()))?;
    let fingerprint = fingerprint(first);
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(unreadable(&files.key))?;
    let unusable = |error| BadCertificate::Unusable(files.clone(), error);
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(unusable)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Resumed sessions would need memory for each client.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Identity { config: Arc::new(config), fingerprint })
}

/// Returns the files of the daemon's own certificate. Makes it if there is none.
pub(super) fn own(state_dir: &Path, listen: SocketAddr) -> Result<Files, BadCertificate> {
    let files = Files { certificate: state_dir.join(CERTIFICATE), key: state_dir.join(KEY) };
    if files.certificate.exists() && files.key.exists() {
        return Ok(files);
    }
    let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    if !hostname.is_empty() && hostname.is_ascii() && !names.contains(&hostname) {
        names.push(hostname.clone());
    }
    if !listen.ip().is_unspecified() && !names.contains(&listen.ip().to_string()) {
        names.push(listen.ip().to_string());
    }
    let mut parameters = CertificateParams::new(names)?;
    parameters.distinguished_name.push(DnType::CommonName, format!("taut on {hostname}"));
    let key = KeyPair::generate()?;
    let certificate = parameters.self_signed(&key)?;
    // The certificate last: with it, the pair is complete.
    keep(&files.key, &key.serialize_pem())?;
    keep(&files.certificate, &certificate.pem())?;
    Ok(files)
}

/// Writes a file for its owner alone, whole or not at all, and lasting.
fn keep(path: &Path, text: &str) -> Result<(), BadCertificate> {
    let new = path.with_extension("new");
    let write = || {
        // A killed daemon may have left the file, with another mode.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = File::options().create_new(true).write(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    };
    write().map_err(|error| BadCertificate::Unwritable(path.to_owned(), error))
}

/// Returns the SHA-256 of a certificate, as `openssl x509 -fingerprint -sha256` prints it.
fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    let mut text = String::new();
    for byte in Sha256::digest(certificate) {
        let colon = if text.is_empty() { "" } else { ":" };
        let _ = write!(text, "{colon}{byte:02X}");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn listen() -> SocketAddr {
        "192.0.2.1:8443".parse().unwrap()
    }

    #[test]
    fn its_own_certificate_is_made_once_and_the_key_is_for_root_alone() {
        let dir = tempfile::tempdir().unwrap();
        let files = own(dir.path(), listen()).unwrap();
        let made = read(&files).unwrap();
        assert_eq!(made.fingerprint.len(), 32 * 3 - 1, "{}", made.fingerprint);
        let again = own(dir.path(), listen()).unwrap();
        assert_eq!((&again, read(&again).unwrap().fingerprint), (&files, made.fingerprint.clone()));
        assert_eq!(files.key.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        // Without its key, a certificate is of no use.
        fs::remove_file(&files.key).unwrap();
        let new = read(&own(dir.path(), listen()).unwrap()).unwrap();
        assert_ne!(new.fingerprint, made.fingerprint);
    }

    #[test]
    fn files_that_do_not_fit_are_refused_with_a_hint() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (one, other) = (own(one.path(), listen()).unwrap(), own(other.path(), listen()).unwrap());
        let text = |certificate: &Path, key: &Path| {
            let files = Files { certificate: certificate.to_owned(), key: key.to_owned() };
            ApiError::from(read(&files).unwrap_err()).to_string()
        };
        let mixed = text(&one.certificate, &other.key);
        assert!(mixed.contains("cannot be used together") && mixed.contains("hint: name the key"), "{mixed}");
        let missing = text(Path::new("/nonexistent"), &one.key);
        assert!(missing.contains("cannot read /nonexistent") && missing.contains("because:"), "{missing}");
        let none = text(&one.key, &one.key);
        assert!(none.contains("has no certificate"), "{none}");
        assert!(text(&one.certificate, &one.certificate).contains("cannot read"));
    }
}
