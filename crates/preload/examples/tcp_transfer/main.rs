//! An ordinary TCP program that sends bytes in both directions at once and compares all that
//! arrives. It knows nothing of VMCI sockets.
//!
//! - `tcp_transfer serve ADDRESS`: answers clients until it is killed.
//! - `tcp_transfer connect ADDRESS [--bytes N] [--connections N] [--seed N] [--way WAY]
//!   [--peer-way WAY] [--secret TEXT] [--hold FILE] [--until FILE]`: transfers, and prints a line
//!   for each connection: `exact: …`, `wrong: …` or `failed: …`. The exit status is 1 unless all
//!   are exact.
//!
//! `WAY` is what the sending thread does with its socket when half of its bytes are written
//! (`ways.rs`); with `--peer-way` the server does it. With `--secret` each 4 KiB of the stream
//! begin with this text. With `--hold` the connections stay open until the file exists. With
//! `--until` transfers are repeated until then.

mod c_calls;
mod client;
mod helper;
mod options;
mod pattern;
mod rest;
mod server;
mod transfer;
mod ways;

use std::fs::File;
use std::process::ExitCode;
use std::sync::OnceLock;

/// The standard output that the program began with. A transfer may put its socket there.
static OUTPUT: OnceLock<File> = OnceLock::new();

/// Prints a line.
fn say(line: &str) {
    use std::io::Write as _;
    if let Some(mut output) = OUTPUT.get() {
        // Nobody can be told if the output is closed.
        let _ = output.write_all(format!("{line}\n").as_bytes());
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "rest") {
        return rest::run(&words[1..]);
    }
    if OUTPUT.set(c_calls::saved_output()).is_err() {
        return ExitCode::FAILURE;
    }
    // The helper is forked while there is neither a thread nor a connection.
    helper::start();
    let names: Vec<&str> = words.iter().map(String::as_str).collect();
    match names.as_slice() {
        ["serve", address] => server::run(address),
        ["connect", ..] => match options::Options::parse(&words[1..]) {
            Ok(options) => client::run(&options),
            Err(why) => {
                say(&why);
                usage()
            }
        },
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    say("usage: tcp_transfer serve ADDRESS | tcp_transfer connect ADDRESS [OPTION VALUE]…");
    ExitCode::from(2)
}
