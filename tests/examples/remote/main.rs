//! Attacks access over TCP, and measures what others have of the API meanwhile.
//!
//! * `remote refusals` sends writes with a token of the role `view`, from another site, and without
//!   a token.
//! * `remote slow` holds connections open that send nothing, or no whole request.
//! * `remote flood ROUNDS SECONDS RATE` times requests on the Unix socket, by turns beside nothing
//!   and beside so many requests a second over TCP.
//! * `remote send ADDRESS FINGERPRINT TOKEN SECONDS RATE` is the flood alone.
//!
//! Each prints one line of JSON.

mod flood;
mod refusals;
mod send;
mod slow;

use std::error::Error;
use std::net::SocketAddr;

use serde_json::Value;
use taut_tests::{Taut, TlsClient};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A daemon that listens on the loopback interface.
struct Host {
    taut: Taut,
    address: SocketAddr,
    fingerprint: String,
}

impl Host {
    fn start() -> Outcome<Self> {
        let taut = Taut::start_with(&["--listen", "127.0.0.1:0"]).with_lan();
        let remote = taut.json(["daemon", "show"])["remote"].clone();
        let text = |name: &str| remote[name].as_str().ok_or("the daemon tells no place");
        let (address, fingerprint) = (text("address")?.parse()?, text("fingerprint")?.to_owned());
        Ok(Self { taut, address, fingerprint })
    }

    fn token(&self, name: &str, role: &str) -> Outcome<String> {
        let created = self.taut.json(["token", "create", name, "--role", role]);
        Ok(created["secret"].as_str().ok_or("no token")?.to_owned())
    }

    fn connect(&self) -> Outcome<TlsClient> {
        Ok(TlsClient::connect(self.address, &self.fingerprint)?)
    }

    /// Returns the paths and methods of the API that change something.
    fn writes(&self, token: &str) -> Outcome<Vec<(String, String)>> {
        let described = self.connect()?.ask_with(token, "GET", "/openapi.json", "")?.json();
        let paths = described["paths"].as_object().ok_or("the API is not described")?;
        let mut writes = Vec::new();
        for (path, methods) in paths {
            let methods = methods.as_object().into_iter().flat_map(serde_json::Map::keys);
            let path = path.replace("{name}", "lan");
            writes.extend(
                methods.filter(|method| *method != "get").map(|method| (method.to_uppercase(), path.clone())),
            );
        }
        Ok(writes)
    }
}

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let found: Value = match words[..] {
        ["refusals"] => refusals::run()?,
        ["slow"] => slow::run()?,
        ["flood", rounds, seconds, rate] => flood::run(rounds.parse()?, seconds.parse()?, rate)?,
        ["send", address, fingerprint, token, seconds, rate] => {
            send::run(address.parse()?, fingerprint, token, seconds.parse()?, rate.parse()?)?
        }
        _ => return Err("usage: remote refusals | slow | flood ROUNDS SECONDS RATE".into()),
    };
    println!("{found}");
    Ok(())
}
