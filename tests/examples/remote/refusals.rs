//! Requests that must be refused: by role, by origin, and without a token.

use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};
use taut_tests::{TlsAnswer, TlsClient};

use crate::{Host, Outcome};

/// Pause between two requests, so that none is refused for its rate.
const PAUSE: Duration = Duration::from_millis(25);

/// Sends each write of the API in each way, and counts answers with another status.
pub(crate) fn run() -> Outcome<Value> {
    let host = Host::start()?;
    let (view, admin) = (host.token("view", "view")?, host.token("admin", "admin")?);
    let revision = || host.taut.json(["daemon", "show"])["revision"].clone();
    let before = revision();
    let writes = host.writes(&view)?;
    let bearer = |token: &str| format!("authorization: Bearer {token}\r\n");
    let ways = [
        ("view", 403, bearer(&view)),
        ("forged", 403, format!("{}origin: https://evil.example\r\n", bearer(&admin))),
        ("cross_site", 403, format!("{}sec-fetch-site: cross-site\r\n", bearer(&admin))),
        ("missing", 401, String::new()),
        ("wrong", 401, bearer("taut_00")),
    ];
    let mut client = host.connect()?;
    let mut found = json!({ "writes": writes.len() });
    for (name, status, head) in ways {
        let mut others = 0;
        for (method, path) in &writes {
            sleep(PAUSE);
            let answer = ask(&mut client, method, path, &head)?;
            // After ten wrong tokens, an address is told to wait.
            let may_wait = name == "wrong" && answer.status == 429;
            if answer.status != status && !may_wait {
                eprintln!("{name}: {method} {path}: {}: {}", answer.status, answer.body);
                others += 1;
            }
        }
        found[name] = others.into();
    }
    found["changed"] = u32::from(revision() != before).into();
    Ok(found)
}

fn ask(client: &mut TlsClient, method: &str, path: &str, head: &str) -> Outcome<TlsAnswer> {
    Ok(client.ask(method, path, head, "{}")?)
}
