//! `taut top`: views of the host and its VMs that refresh themselves, or samples as CSV.

use std::io::IsTerminal as _;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use clap::{Args as Arguments, ValueEnum};
use taut_api::error::ErrorKind;
use taut_api::route::PortInfo;
use taut_api::{ApiError, path};
use taut_top::reading::PortSource;
use taut_top::run::{self, Options};
use taut_top::settings;
use taut_top::view::View;

use crate::client::Client;
use crate::output::{self, Outcome};

/// Longest wait for the daemon's answer. The views of the host do not wait for longer.
const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Debug, Arguments)]
pub(crate) struct Args {
    /// View to begin with; with -b, the only one. By default the saved one, and with -b all
    #[arg(long, value_enum)]
    view: Option<Letter>,
    /// Write samples as CSV to standard output, with all columns, each view's titles first. The
    /// first two columns are the time in seconds since 1970 and the view
    #[arg(short, long)]
    batch: bool,
    /// Seconds between two refreshes, from 0.5 to 3600; 5 by default
    #[arg(short, long, value_name = "SECONDS", value_parser = settings::seconds)]
    delay: Option<f64>,
    /// End after so many refreshes
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    iterations: Option<u64>,
}

/// A view, by esxtop's key or by its name.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Letter {
    /// Times of VMs, vCPUs and other processes
    #[value(name = "c", alias = "cpu")]
    Cpu,
    /// Memory of VMs
    #[value(name = "m", alias = "memory")]
    Memory,
    /// Ports of virtual switches
    #[value(name = "n", alias = "network")]
    Network,
    /// Block devices
    #[value(name = "d", alias = "disk")]
    Disk,
    /// Interrupts
    #[value(name = "i", alias = "interrupt")]
    Interrupt,
    /// Disk traffic of VMs
    #[value(name = "v", alias = "vm-disk")]
    VmDisk,
}

impl From<Letter> for View {
    fn from(letter: Letter) -> Self {
        match letter {
            Letter::Cpu => Self::Cpu,
            Letter::Memory => Self::Memory,
            Letter::Network => Self::Network,
            Letter::Disk => Self::Disk,
            Letter::Interrupt => Self::Interrupt,
            Letter::VmDisk => Self::VmDisk,
        }
    }
}

pub(crate) fn run(args: &Args, client: Client) -> Outcome {
    let options = Options { view: args.view.map(View::from), seconds: args.delay, count: args.iterations };
    if args.batch {
        run::batch(options, ports(client), &mut output::write);
        return Ok(());
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(ApiError::new(
            ErrorKind::Invalid,
            "standard input or output is no terminal",
            "`taut top --batch` writes CSV",
        ));
    }
    run::interactive(options, ports(client)).map_err(|error| {
        ApiError::new(ErrorKind::Unavailable, "the terminal failed", "`taut top --batch` needs no terminal")
            .because(&error)
    })
}

/// Returns the source of ports. A thread asks the daemon, because one that hangs must not hold the
/// views of the host up.
fn ports(client: Client) -> PortSource {
    let (ask, asked) = channel::<()>();
    let (answer, answers) = channel();
    thread::spawn(move || answer_all(&client, &asked, &answer));
    let mut waiting = false;
    Box::new(move || {
        // An answer that came too late for the last reading is too old for this one.
        while answers.try_recv().is_ok() {
            waiting = false;
        }
        waiting = waiting || ask.send(()).is_ok();
        let ports = answers.recv_timeout(PATIENCE).ok()?;
        waiting = false;
        ports
    })
}

fn answer_all(client: &Client, asked: &Receiver<()>, answer: &Sender<Option<Vec<PortInfo>>>) {
    while asked.recv().is_ok() && answer.send(client.get(path::PORTS).ok()).is_ok() {}
}
