//! A relay between a VM's socket on the host and a listening program: `CONNECT <port>`, then bytes
//! both ways.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with};

/// Moves the bytes of connections in the place of the relay.
pub(crate) trait Mover: Send + Sync {
    /// Expects a connection. Returns a name for the socket to the listening program, and the number
    /// in it.
    fn name(&self, path: &Path) -> (PathBuf, u32);

    /// Moves the bytes of a connection with this number until both ends have closed.
    fn connect(&self, number: u32, client: UnixStream, server: UnixStream);
}

/// Connects clients of a socket `<path>` with `<path>_<port>`.
pub(crate) struct Relay {
    connections: Arc<AtomicUsize>,
}

impl Relay {
    pub(crate) fn start(path: &Path) -> Self {
        Self::start_with(path, None)
    }

    /// The same with somebody else who moves the bytes.
    pub(crate) fn start_with(path: &Path, mover: Option<Arc<dyn Mover>>) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        let path = path.to_owned();
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let (path, counted, mover) = (path.clone(), counted.clone(), mover.clone());
                thread::spawn(move || serve(client, &path, &counted, mover.as_deref()));
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
fn serve(client: UnixStream, path: &Path, connections: &AtomicUsize, mover: Option<&dyn Mover>) {
    let mut reader = BufReader::with_capacity(1, client);
    let mut request = String::new();
    if reader.read_line(&mut request).is_err() {
        return;
    }
    let mut client = reader.into_inner();
    let port = request.trim_end().strip_prefix("CONNECT ").unwrap();
    let target = PathBuf::from(format!("{}_{port}", path.display()));
    let server = if let Some(mover) = mover {
        let name = mover.name(path);
        let Ok(server) = connect_from(&name.0, &target) else { return };
        connections.fetch_add(1, SeqCst);
        client.write_all(format!("OK {}\n", name.1).as_bytes()).unwrap();
        return mover.connect(name.1, client, server);
    } else if let Ok(server) = UnixStream::connect(target) {
        server
    } else {
        return;
    };
    let number = connections.fetch_add(1, SeqCst);
    client.write_all(format!("OK {}\n", 50_000 + number).as_bytes()).unwrap();
    let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let other = thread::spawn(move || pump(&from, &to));
    pump(&server, &client);
    let _ = other.join();
}

/// Connects a socket that has a name of its own. Programs that other tests start do not inherit it.
fn connect_from(name: &Path, target: &Path) -> std::io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrUnix::new(name)?)?;
    connect(&socket, &SocketAddrUnix::new(target)?)?;
    Ok(socket.into())
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
