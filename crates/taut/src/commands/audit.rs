//! `taut audit`.

use clap::Args as ClapArgs;
use taut_api::audit::{AuditCheck, AuditEntry};
use taut_api::calendar::Utc;
use taut_api::error::ErrorKind;
use taut_api::{ApiError, path};

use crate::client::Client;
use crate::output::{self, Format, Outcome};

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Number of changes to print: the newest, oldest first
    #[arg(short = 'n', long, default_value_t = 20, value_name = "N")]
    lines: u32,
    /// Print only changes of the user with this number
    #[arg(long, value_name = "UID")]
    uid: Option<u32>,
    /// Print requests that were refused because their caller lacks the role
    #[arg(long)]
    refused: bool,
    /// Check that no record was changed or removed, and print the hash of the newest one
    #[arg(long, conflicts_with_all = ["lines", "uid"])]
    verify: bool,
}

pub(crate) fn run(args: &Args, client: &Client, format: Format) -> Outcome {
    if args.verify {
        return verify(args, client, format);
    }
    let mut query = format!("{}?lines={}&refused={}", path::AUDIT, args.lines, args.refused);
    if let Some(uid) = args.uid {
        query += &format!("&uid={uid}");
    }
    let entries: Vec<AuditEntry> = client.get(&query)?;
    output::print(format, &entries, |entries| table(entries));
    Ok(())
}

fn verify(args: &Args, client: &Client, format: Format) -> Outcome {
    let check: AuditCheck = client.get(&format!("{}?refused={}", path::AUDIT_CHECK, args.refused))?;
    if let Some(fault) = &check.fault {
        return Err(ApiError::new(
            ErrorKind::Conflict,
            format!("the audit record is broken: {fault}"),
            "read that line of the file, and find out which users could write to the file",
        ));
    }
    output::print(format, &check, |check| {
        let seq = |number: Option<u64>| number.map_or("none".to_owned(), |number| number.to_string());
        output::fields(&[
            ("records", check.records.to_string()),
            ("oldest", seq(check.oldest)),
            ("newest", seq(check.newest)),
            ("hash", check.hash.clone()),
        ])
    });
    Ok(())
}

fn table(entries: &[AuditEntry]) -> String {
    let rows: Vec<_> = entries.iter().map(row).collect();
    output::table(["SEQ", "TIME", "CALLER", "PID", "PROGRAM", "REQUEST", "STATUS", "RESULT"], &rows)
}

fn row(entry: &AuditEntry) -> [String; 8] {
    let AuditEntry { seq, at_ms, caller, method, path, outcome } = entry;
    let result = match outcome {
        None => "not known: not answered yet, or the daemon was killed".to_owned(),
        Some(outcome) => match (&outcome.error, &outcome.document) {
            (Some(error), _) => error.clone(),
            (None, Some(document)) => format!("{}, revision {}", document.subject, document.revision),
            (None, None) => String::new(),
        },
    };
    let unknown = || "unknown".to_owned();
    [
        seq.to_string(),
        Utc::from_ms(*at_ms).to_string(),
        match (&caller.token, caller.uid) {
            (Some(token), _) => format!("token {token}"),
            (None, uid) => uid.map_or_else(unknown, |uid| uid.to_string()),
        },
        caller.pid.map_or_else(unknown, |pid| pid.to_string()),
        match (&caller.program, caller.address) {
            (Some(program), _) => program.clone(),
            (None, address) => address.map_or_else(unknown, |address| address.to_string()),
        },
        format!("{method} {path}"),
        outcome.as_ref().map_or("-".to_owned(), |outcome| outcome.status.to_string()),
        result,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_one_line_with_its_caller() {
        let entries = serde_json::json!([
            { "seq": 7, "at_ms": 1_709_210_096_789_u64, "method": "PUT", "path": "/v1/portgroups/lan",
              "caller": { "uid": 1000, "gid": 100, "pid": 4711, "program": "/usr/bin/taut", "role": "define" },
              "outcome": { "at_ms": 1_709_210_096_800_u64, "status": 200,
                           "document": { "subject": "portgroup/lan", "revision": 3 } } },
            { "seq": 8, "at_ms": 1_709_210_097_000_u64, "method": "POST", "path": "/v1/shutdown",
              "caller": { "uid": 0, "gid": 0 } },
            { "seq": 9, "at_ms": 1_709_210_098_000_u64, "method": "DELETE", "path": "/v1/tokens/old",
              "caller": { "token": "ci", "address": "192.0.2.1", "role": "admin" },
              "outcome": { "at_ms": 1_709_210_098_800_u64, "status": 204 } },
        ]);
        let entries: Vec<AuditEntry> = serde_json::from_value(entries).unwrap();
        insta::assert_snapshot!(table(&entries), @r"
        SEQ  TIME                  CALLER    PID      PROGRAM        REQUEST                 STATUS  RESULT
          7  2024-02-29 12:34:56Z  1000      4711     /usr/bin/taut  PUT /v1/portgroups/lan     200  portgroup/lan, revision 3
          8  2024-02-29 12:34:57Z  0         unknown  unknown        POST /v1/shutdown            -  not known: not answered yet, or the daemon was killed
          9  2024-02-29 12:34:58Z  token ci  unknown  192.0.2.1      DELETE /v1/tokens/old      204
        ");
    }
}
