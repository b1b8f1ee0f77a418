//! A relay between a VM's socket on the host and a listening program: `CONNECT <port>`, then bytes
//! both ways.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

/// Connects clients of a socket `<path>` with `<path>_<port>`.
pub(crate) struct Relay {
    connections: Arc<AtomicUsize>,
}

impl Relay {
    pub(crate) fn start(path: &Path) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        let path = path.to_owned();
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let (path, counted) = (path.clone(), counted.clone());
                thread::spawn(move || serve(client, &path, &counted));
            }
        });
        Self { connections }
    }

    /// Number of connections made so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }
}

/// Serves one client. Hangs up if nobody listens, as taut does.
fn serve(client: UnixStream, path: &Path, connections: &AtomicUsize) {
    let mut reader = BufReader::with_capacity(1, client);
    let mut request = String::new();
    if reader.read_line(&mut request).is_err() {
        return;
    }
    let mut client = reader.into_inner();
    let port = request.trim_end().strip_prefix("CONNECT ").unwrap();
    let Ok(server) = UnixStream::connect(PathBuf::from(format!("{}_{port}", path.display()))) else { return };
    let number = connections.fetch_add(1, SeqCst);
    client.write_all(format!("OK {}\n", 50_000 + number).as_bytes()).unwrap();
    let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let other = thread::spawn(move || pump(&from, &to));
    pump(&server, &client);
    let _ = other.join();
}

fn pump(mut from: &UnixStream, mut to: &UnixStream) {
    let mut buffer = vec![0; 65_536];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
