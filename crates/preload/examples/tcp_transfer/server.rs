//! Answers clients.

use std::io::{Read as _, Result, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::thread;

use crate::say;
use crate::transfer::{Request, exchange};

/// Verdict of the server about the bytes that it got.
pub(crate) const EXACT: u8 = 1;

pub(crate) fn run(address: &str) -> ExitCode {
    let listener = match TcpListener::bind(address) {
        Ok(listener) => listener,
        Err(error) => {
            say(&format!("cannot listen at {address}: {error}"));
            return ExitCode::FAILURE;
        }
    };
    say("serves");
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                thread::spawn(move || {
                    if let Err(error) = serve(&stream) {
                        say(&format!("server failed: {error}"));
                    }
                });
            }
            Err(error) => say(&format!("accept: {error}")),
        }
    }
}

fn serve(mut stream: &TcpStream) -> Result<()> {
    let request = Request::read(stream)?;
    let patterns = (request.pattern.back(), request.pattern);
    let wrong = exchange(stream, patterns, request.len, request.way)?;
    if let Some(place) = wrong {
        say(&format!("server: byte {place} is wrong"));
    }
    stream.write_all(&[if wrong.is_none() { EXACT } else { 0 }])?;
    // The connection stays open until the client closes it.
    let _ = stream.read(&mut [0])?;
    Ok(())
}
