//! The daemon `tautd`: stores what users want, observes the host, and makes it so.
//!
//! The modules are layers, from the bottom up: small shared ones (`process`, `inbox`, `external`,
//! `listen`, `netns`), `store` and `board`, `vms`, `fabric`, `reconcile`, `http`, `page`, `remote`,
//! `daemon`.
//!
//! The daemon may be killed at any moment. VMs and the fabric go on, and the next daemon adopts
//! them.

mod access;
mod args;
mod board;
mod capture;
mod confine;
mod console;
mod daemon;
mod external;
mod fabric;
mod group_folders;
mod http;
mod inbox;
mod interface;
mod listen;
mod monitor_thread;
mod netns;
mod page;
mod process;
mod reconcile;
mod remote;
mod statistics;
mod status;
mod store;
mod vms;

use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    process::heap::share();
    let args = args::Args::parse();
    if args.print_openapi {
        return print_openapi();
    }
    if let Some(dir) = &args.write_man {
        return write_man(dir);
    }
    let filter = EnvFilter::try_from_env("TAUT_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
    match daemon::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write_man(dir: &Path) -> ExitCode {
    match clap_mangen::generate_to(args::Args::command().name("tautd"), dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: cannot write the manual page to {}: {error}", dir.display());
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "the document is the result that was asked for")]
fn print_openapi() -> ExitCode {
    match http::openapi_document().to_pretty_json() {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: cannot write the API's description: {error}");
            ExitCode::FAILURE
        }
    }
}
