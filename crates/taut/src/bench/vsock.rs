//! `taut bench vsock`: VMCI sockets at many message and socket sizes, and queue pairs and TCP
//! beside them, as netperf in S2.

use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use taut_api::error::ErrorKind;
use taut_api::link::Link;
use taut_api::path;
use taut_api::route::Vm;
use taut_api::{ApiError, Bytes};
use taut_bench::agent::protocol::{Address, Answer, Kind, MAX_SESSIONS, Request};
use taut_bench::report::{SocketCell, SocketMode, SocketResults, Transport};
use taut_bench::wire::MAX_SIZE;

use super::end_point::EndPoint;
use super::measure::{Line, Measurement};
use super::parties::{Id, Parties};
use super::{args, host};
use crate::agent::PATIENCE;
use crate::client::Client;
use crate::output::{self, Format, Outcome};
use crate::progress::Progress;

/// Context ID of the host, as VMs see it (virtio 1.2, 5.10.4).
const HOST: u32 = 2;
/// Longest wait for the link of a VMCI device.
const LINK_PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sender: NAME or vm/NAME, host, or agent:SOCKET of a running agent.
    #[arg(value_name = "FROM")]
    sender: EndPoint,
    /// The receiver, which answers.
    #[arg(value_name = "TO")]
    receiver: EndPoint,
    /// The figure to measure.
    #[arg(long, value_enum, default_value_t)]
    mode: Mode,
    /// Bytes of each message, or of each request and response: 1 to 1 MiB.
    #[arg(long, value_delimiter = ',', default_value = "64,256,1KiB,4KiB,16KiB,64KiB", value_parser = message_size,
        value_name = "SIZE,…")]
    message: Vec<u32>,
    /// Bytes of the sockets' buffers: 128 to 16 MiB.
    #[arg(long, value_delimiter = ',', default_value = "64KiB,256KiB", value_parser = socket_size, value_name = "SIZE,…")]
    socket_size: Vec<u32>,
    /// Number of concurrent connections of streams.
    #[arg(long, value_delimiter = ',', default_value = "1",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SESSIONS)), value_name = "N,…")]
    sessions: Vec<u32>,
    /// Bytes of each receive call of streams; if absent, as many as the socket holds, as in
    /// netperf.
    #[arg(long, value_parser = message_size, value_name = "SIZE")]
    receive: Option<u32>,
    /// Compare every byte of streams: slower, and fails if one is lost, repeated or wrong.
    #[arg(long)]
    check: bool,
    /// Length of each measurement in seconds.
    #[arg(long, default_value = "10", value_parser = args::seconds, value_name = "S")]
    duration: Duration,
    /// Number of repeats, each in alternation with all others.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100), value_name = "N")]
    repeat: u32,
    /// Also measure these transports between the same end points.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "TRANSPORT,…")]
    against: Vec<Rival>,
    #[command(flatten)]
    files: args::Files,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Messages in one direction: throughput.
    #[default]
    Stream,
    /// A message and its answer, one at a time: round-trip times.
    Rr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Rival {
    /// TCP over the vNICs.
    Tcp,
    /// TCP over the vNICs with buffers of the kernels' own sizes, whatever --socket-size says.
    TcpAuto,
    /// Vsock with queue pairs, which the VMs must have; their rings have a size of their own,
    /// whatever --socket-size says.
    Ring,
}

fn message_size(text: &str) -> Result<u32, String> {
    size(text, 1, MAX_SIZE)
}

fn socket_size(text: &str) -> Result<u32, String> {
    size(text, 128, 16 << 20)
}

fn size(text: &str, least: u32, most: u32) -> Result<u32, String> {
    let Bytes(size) = text.parse().map_err(|error: taut_api::units::BadBytes| error.to_string())?;
    let found = u32::try_from(size).ok().filter(|size| (least..=most).contains(size));
    found.ok_or_else(|| format!("{size} is not in {least} to {most}"))
}

pub(super) fn run(args: &Args, client: &Client, format: Format) -> Outcome {
    args.files.check()?;
    if args.mode == Mode::Rr && args.sessions != [1] {
        return Err(ApiError::new(
            ErrorKind::Invalid,
            "request/response has one session only",
            "omit --sessions, or measure streams",
        ));
    }
    let host = host::describe(client)?;
    let mut parties = Parties::default();
    let ends = {
        let what = format!("asking the agents of {} and {}", args.sender, args.receiver);
        let _progress = Progress::start(&what);
        [parties.join(client, &args.sender)?, parties.join(client, &args.receiver)?]
    };
    [&args.sender, &args.receiver].into_iter().try_for_each(|end| await_link(client, end))?;
    let ways = Ways::find(&mut parties, client, ends, &args.against)?;
    let cells = measure(args, client, &mut parties, &ways)?;
    let [sender, receiver] = ends.map(|id| parties.describe(id));
    let results = SocketResults {
        mode: match args.mode {
            Mode::Stream => SocketMode::Stream,
            Mode::Rr => SocketMode::Rr,
        },
        duration_s: args.duration.as_secs_f64(),
        host,
        sender,
        receiver: taut_bench::report::EndPoint { address: Some(ways.to.clone()), ..receiver },
        cells,
    };
    args.files.save(&results, || results.svg())?;
    output::print(format, &results, SocketResults::table);
    Ok(())
}

/// Measures everything once, then everything again, and so on, so that other load affects all
/// alike.
fn measure(
    args: &Args,
    client: &Client,
    parties: &mut Parties,
    ways: &Ways,
) -> Result<Vec<SocketCell>, ApiError> {
    let mut lines = Vec::new();
    for &socket in &args.socket_size {
        for &transport in &ways.transports {
            let line = ways.line(parties, transport, &args.measurement(transport, socket, 1, 1))?;
            lines.push((transport, socket, line));
        }
    }
    let mut cells: Vec<SocketCell> = Vec::new();
    let all = args.repeat as usize * args.sessions.len() * args.message.len() * lines.len();
    let mut done = 0;
    for _ in 0..args.repeat {
        for (&sessions, &message) in
            args.sessions.iter().flat_map(|s| args.message.iter().map(move |m| (s, m)))
        {
            for (transport, socket, line) in &lines {
                done += 1;
                let what = format!("{transport}, {message} B in sockets of {socket} B, {sessions} sessions");
                let _progress = Progress::start(&format!("{what}, {done} of {all}"));
                let measurement = args.measurement(*transport, *socket, message, sessions);
                let figures = line.measure(parties, &measurement, host::fabric_pid(client))?;
                let new = SocketCell::new(*transport, *socket, message, sessions);
                let known = cells.iter().position(|cell| cell.is_of(&new));
                let at = known.unwrap_or_else(|| {
                    cells.push(new);
                    cells.len() - 1
                });
                cells[at].add(figures);
            }
        }
    }
    Ok(cells)
}

impl Args {
    /// Returns the agents' measurement with these sizes.
    fn measurement(&self, transport: Transport, socket: u32, message: u32, sessions: u32) -> Measurement {
        let (socket_size, duration) = (transport.asked_for(socket), self.duration);
        match self.mode {
            Mode::Rr => Measurement::Rr { socket_size, size: message, interval_us: None, duration },
            Mode::Stream => {
                let (send_size, check) = (message, self.check);
                let receive_size = self.receive.unwrap_or(socket.min(MAX_SIZE));
                Measurement::Stream { socket_size, send_size, receive_size, sessions, check, duration }
            }
        }
    }
}

/// Addresses by which one end point reaches the other.
struct Ways {
    ends: [Id; 2],
    /// Address of the receiver as the sender sees it.
    to: Address,
    /// Address on which the receiver listens.
    own: Address,
    transports: Vec<Transport>,
}

impl Ways {
    fn find(
        parties: &mut Parties,
        client: &Client,
        ends @ [sender, receiver]: [Id; 2],
        against: &[Rival],
    ) -> Result<Self, ApiError> {
        let is_vm = |id| matches!(parties.kind(id), Kind::Guest | Kind::Micro);
        let (to, own) = match (is_vm(sender), is_vm(receiver)) {
            (true, true) if sender != receiver => {
                (Address::Vsock(cid(parties, receiver)?), Address::ANY_VSOCK)
            }
            (false, true) => (unix_socket(parties, client, receiver)?, Address::ANY_VSOCK),
            (true, false) => (Address::Vsock(HOST), unix_socket(parties, client, sender)?),
            _ => {
                let (from, to) = (parties.end_point(sender), parties.end_point(receiver));
                return Err(ApiError::new(
                    ErrorKind::Invalid,
                    format!("there are no VMCI sockets between {from} and {to}"),
                    "name two VMs, or a VM and the host",
                ));
            }
        };
        let mut transports = vec![Transport::Vsock];
        transports.extend(against.iter().map(|rival| match rival {
            Rival::Tcp => Transport::Tcp,
            Rival::TcpAuto => Transport::TcpAuto,
            Rival::Ring => Transport::Ring,
        }));
        transports.dedup();
        Ok(Self { ends, to, own, transports })
    }

    /// Starts the receiver's server.
    fn line(
        &self,
        parties: &mut Parties,
        transport: Transport,
        measurement: &Measurement,
    ) -> Result<Line, ApiError> {
        let [sender, receiver] = self.ends;
        match transport {
            Transport::Tcp | Transport::TcpAuto => {
                Line::prepare(parties, sender, receiver, None, measurement)
            }
            Transport::Vsock => {
                Line::to(parties, self.ends, self.to.clone(), Some(self.own.clone()), measurement)
            }
            Transport::Ring => {
                let [to, own] = [&self.to, &self.own].map(|address| address.clone().attached());
                Line::to(parties, self.ends, to, Some(own), measurement)
            }
        }
    }
}

/// Waits until the link of a VM's VMCI device is up: an agent may answer before the driver of the
/// device has started.
fn await_link(client: &Client, end: &EndPoint) -> Result<(), ApiError> {
    let EndPoint::Vm(name) = end else { return Ok(()) };
    let asked = Instant::now();
    loop {
        let vm: Vm = client.get(&path::VM.of(name))?;
        let Some(vmci) = vm.status.vmci.filter(|vmci| vmci.link != Link::Up) else { return Ok(()) };
        if asked.elapsed() > LINK_PATIENCE {
            let reason = vmci.reason.unwrap_or_else(|| "the reason is not known".to_owned());
            return Err(ApiError::new(
                ErrorKind::Unavailable,
                format!("the VMCI device of {name} is not up: {reason}"),
                "start the driver in the guest (modprobe vmw_vsock_virtio_transport); `taut vmci list` shows devices",
            ));
        }
        sleep(Duration::from_millis(25));
    }
}

/// Returns the VM's context ID as its driver reports it.
fn cid(parties: &mut Parties, id: Id) -> Result<u32, ApiError> {
    match parties.ask(id, Request::Cid, PATIENCE)? {
        Answer::Cid(cid) => Ok(cid),
        _ => Err(parties.confused(id)),
    }
}

/// Returns the Unix socket through which the host reaches the VM.
fn unix_socket(parties: &Parties, client: &Client, vm: Id) -> Result<Address, ApiError> {
    let EndPoint::Vm(name) = parties.end_point(vm) else {
        return Err(ApiError::new(
            ErrorKind::Invalid,
            format!("taut does not know the VMCI socket of {}", parties.end_point(vm)),
            "between VM and host, name a VM of taut",
        ));
    };
    let of_vm: Vm = client.get(&path::VM.of(name))?;
    let vmci = of_vm.status.vmci.ok_or_else(|| {
        ApiError::new(
            ErrorKind::Conflict,
            format!("{name} has no VMCI device"),
            "give it one: a section [vmci] in its file, or vmci0.present in its .vmx",
        )
    })?;
    Ok(Address::Unix(vmci.socket.into()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn read(text: &str) -> Result<Args, clap::Error> {
        Command::try_parse_from(text.split_whitespace()).map(|command| command.args)
    }

    #[test]
    fn sizes_are_lists_with_units() {
        let args =
            read("vsock a b --message 64,4KiB --socket-size 128,64K --sessions 1,5 --against tcp").unwrap();
        assert_eq!((&args.message[..], &args.socket_size[..]), (&[64, 4096][..], &[128, 65_536][..]));
        assert_eq!((&args.sessions[..], &args.against[..]), (&[1, 5][..], &[Rival::Tcp][..]));
        let all = read("vsock a host").unwrap();
        assert_eq!((all.message.len(), all.socket_size.len(), all.mode), (6, 2, Mode::Stream));
        for wrong in ["--message 0", "--message 2M", "--socket-size 64", "--sessions 0", "--message 4q"] {
            assert!(read(&format!("vsock a b {wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_receiver_asks_for_what_its_socket_holds() {
        let args = read("vsock a b --duration 1").unwrap();
        let duration = Duration::from_secs(1);
        let (socket_size, send_size, receive_size) = (Some(262_144), 64, 262_144);
        let stream =
            Measurement::Stream { socket_size, send_size, receive_size, sessions: 5, check: false, duration };
        assert_eq!(args.measurement(Transport::Tcp, 262_144, 64, 5), stream);
        let automatic = Measurement::Stream {
            socket_size: None,
            send_size,
            receive_size,
            sessions: 5,
            check: false,
            duration,
        };
        assert_eq!(args.measurement(Transport::TcpAuto, 262_144, 64, 5), automatic);
        let args = read("vsock a b --duration 1 --receive 16 --check").unwrap();
        let stream = Measurement::Stream {
            socket_size,
            send_size,
            receive_size: 16,
            sessions: 1,
            check: true,
            duration,
        };
        assert_eq!(args.measurement(Transport::Vsock, 262_144, 64, 1), stream);
        let args = read("vsock a b --duration 1 --mode rr").unwrap();
        assert_eq!(
            args.measurement(Transport::Vsock, 128, 64, 1),
            Measurement::Rr { socket_size: Some(128), size: 64, interval_us: None, duration }
        );
    }
}
