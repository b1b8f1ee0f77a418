//! The socket between a front end and a switch. Either may listen, and either may start late.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Time that the switch may take to listen or to connect.
const PATIENCE: Duration = Duration::from_secs(10);

/// Connects to a switch that listens, or will listen soon.
pub fn connect(path: &Path) -> Result<UnixStream> {
    let begun = Instant::now();
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => return Ok(stream),
            Err(_) if begun.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(20)),
            Err(error) => return Err(error).with_context(|| format!("nobody listens on {}", path.display())),
        }
    }
}

/// Listens for the switch.
pub fn listen(path: &Path) -> Result<UnixListener> {
    // A socket file of an earlier run, which is not listening any more.
    let _ = std::fs::remove_file(path);
    let listener =
        UnixListener::bind(path).with_context(|| format!("cannot listen on {}", path.display()))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Waits for the switch's connection.
pub fn accept(listener: &UnixListener) -> Result<UnixStream> {
    let begun = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(_) if begun.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(20)),
            Err(error) => bail!("the switch does not connect within {PATIENCE:?}: {error}"),
        }
    }
}
