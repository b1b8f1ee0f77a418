//! `taut-guest agent`: answers the host's calls on one channel.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;

use clap::{Args, ValueEnum};
use taut_bench::agent;
use taut_bench::agent::protocol::Kind;
use taut_bench::kernel::{Kernel, Machine};

use crate::port::Port;
use crate::{addresses, check};

/// The virtio-serial port that taut gives every VM for its agent.
const AGENT_PORT: &str = "/dev/virtio-ports/org.taut.agent.0";

/// Arguments of `taut-guest agent`.
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    #[command(flatten)]
    channel: Channel,
    /// Kind of machine that this runs on.
    #[arg(long, value_enum, default_value_t = Place::Guest)]
    kind: Place,
}

/// The channel on which calls arrive.
#[derive(Debug, Args)]
#[group(multiple = false)]
struct Channel {
    /// A virtio-serial port [default: /dev/virtio-ports/org.taut.agent.0, which taut gives every
    /// VM].
    #[arg(long, value_name = "PATH")]
    device: Option<PathBuf>,
    /// Standard input and output, until the input ends.
    #[arg(long)]
    stdio: bool,
    /// A Unix socket to listen on; each connection is a conversation.
    #[arg(long, value_name = "PATH")]
    listen: Option<PathBuf>,
}

/// Kinds of machines with a Linux kernel.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Place {
    /// A virtual machine.
    Guest,
    /// A network namespace of the host.
    Netns,
    /// The host.
    Host,
}

/// Answers calls until the channel is closed.
pub(crate) fn run(args: &AgentArgs) -> io::Result<()> {
    let kernel = Kernel::new(match args.kind {
        Place::Guest => Kind::Guest,
        Place::Netns => Kind::Netns,
        Place::Host => Kind::Host,
    })
    .with_machine(Machine { check: check::answer, configure: addresses::set });
    match &args.channel {
        Channel { stdio: true, .. } => agent::serve(io::stdin(), io::stdout(), &kernel),
        Channel { listen: Some(path), .. } => {
            let listener = listen(path).map_err(|error| about(path, &error))?;
            thread::scope(|scope| {
                for connection in listener.incoming() {
                    let connection = connection?;
                    let kernel = &kernel;
                    scope.spawn(move || agent::serve(&connection, &connection, kernel));
                }
                Ok(())
            })
        }
        Channel { device, .. } => {
            let path = device.as_deref().unwrap_or(Path::new(AGENT_PORT));
            let port = Port::open(path).map_err(|error| about_port(path, &error))?;
            loop {
                port.wait_for_host()?;
                agent::serve(&port, &port, &kernel)?;
            }
        }
    }
}

/// Listens on `path`. Replaces the file of an agent that has ended.
fn listen(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left_behind(path) => {
            fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        other => other,
    }
}

fn is_left_behind(path: &Path) -> bool {
    UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        && fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
}

/// Adds to an error the path of the virtio-serial port, and what to do if there is none.
fn about_port(path: &Path, error: &io::Error) -> io::Error {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => {
            "\nhint: run the agent as root in a VM that taut started; the port needs the kernel module \
             virtio_console and udev. --device names another port, --listen a Unix socket"
        }
        io::ErrorKind::PermissionDenied => "\nhint: run the agent as root",
        io::ErrorKind::ResourceBusy => {
            "\nhint: another agent has the port: `systemctl status taut-guest` shows it if it is the service"
        }
        _ => "\nhint: restart the VM; the port is a device that taut gives it",
    };
    io::Error::new(error.kind(), format!("{}: {error}{hint}", path.display()))
}

/// Adds to an error the path of the socket, and what to do about it.
fn about(path: &Path, error: &io::Error) -> io::Error {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => "another agent listens there: end it, or choose another path",
        io::ErrorKind::NotFound => "make the folder first",
        _ => "choose a path of at most 107 bytes, in a folder in which this user may make files",
    };
    io::Error::new(error.kind(), format!("{}: {error}\nhint: {hint}", path.display()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: AgentArgs,
    }

    #[test]
    fn the_agent_needs_no_arguments_and_takes_one_channel() {
        assert!(Line::try_parse_from(["agent"]).is_ok());
        assert!(Line::try_parse_from(["agent", "--listen", "a.sock"]).is_ok());
        assert!(Line::try_parse_from(["agent", "--stdio", "--listen", "a.sock"]).is_err());
        let missing = io::Error::from(io::ErrorKind::NotFound);
        let told = about_port(Path::new(AGENT_PORT), &missing).to_string();
        assert!(told.contains("hint: ") && told.contains("virtio_console"), "{told}");
        for kind in [io::ErrorKind::PermissionDenied, io::ErrorKind::ResourceBusy, io::ErrorKind::AddrInUse] {
            for told in [about_port, about].map(|about| about(Path::new("/p"), &kind.into()).to_string()) {
                assert!(told.starts_with("/p: ") && told.contains("\nhint: "), "{told}");
            }
        }
    }

    #[test]
    fn the_unit_starts_the_agent_as_it_is_installed() {
        let unit = crate::install::UNIT;
        assert!(unit.contains("ExecStart=/usr/local/sbin/taut-guest agent\n"), "{unit}");
        assert!(unit.contains("WantedBy=multi-user.target"), "{unit}");
    }

    #[test]
    fn only_a_socket_that_nobody_listens_on_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.sock");
        let first = listen(&path).unwrap();
        assert_eq!(listen(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(first);
        assert!(listen(&path).is_ok());

        let file = folder.path().join("file");
        fs::write(&file, "precious").unwrap();
        assert_eq!(listen(&file).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    }
}
