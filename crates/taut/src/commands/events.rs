//! `taut events`.

use clap::Args as ClapArgs;
use taut_api::event::{Event, Level};
use taut_api::path;

use crate::client::Client;
use crate::output::{self, Format, Outcome};

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Print only events after this number
    #[arg(long, default_value_t = 0, value_name = "SEQ")]
    since: u64,
    /// Print only so many of the newest events, at most 10000
    #[arg(long, value_name = "NUMBER")]
    newest: Option<u32>,
    /// Print only events of at least this level
    #[arg(long, default_value = "info")]
    level: Level,
    /// Keep printing new events
    #[arg(short, long)]
    follow: bool,
}

pub(crate) fn run(args: &Args, client: &Client, format: Format) -> Outcome {
    let level = args.level.as_str();
    let newest = args.newest.map(|newest| format!("&newest={newest}")).unwrap_or_default();
    let first = format!("{}?since={}&level={level}{newest}", path::EVENTS, args.since);
    let mut events: Vec<Event> = client.get(&first)?;
    if !args.follow {
        output::print(format, &events, |events| events.iter().map(line).collect());
        return Ok(());
    }
    let mut since = args.since;
    loop {
        for event in &events {
            since = since.max(event.seq);
            match format {
                Format::Table => output::write(&line(event)),
                Format::Json => {
                    output::write(&(serde_json::to_string(event).expect("API types are JSON") + "\n"));
                }
            }
        }
        events = client.get(&format!("{}?since={since}&level={level}&wait=30", path::EVENTS))?;
    }
}

fn line(event: &Event) -> String {
    let Event { seq, at_ms, level, subject, kind, message } = event;
    let message = first_line(message);
    format!("{seq:>5}  {}  {:<7}  {subject:<20}  {kind:<16}  {message}\n", clock(*at_ms), output::word(level))
}

/// Returns the first line of a message, with an ellipsis if there are others.
fn first_line(message: &str) -> String {
    let mut lines = message.lines();
    let first = lines.next().unwrap_or_default();
    if lines.next().is_some() { format!("{first} …") } else { first.to_owned() }
}

/// Formats the time of day in UTC; the JSON output has the date.
fn clock(at_ms: u64) -> String {
    let seconds = at_ms / 1000;
    format!("{:02}:{:02}:{:02}.{:03}", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60, at_ms % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line() {
        let mut event = Event {
            seq: 12,
            at_ms: 86_400_000 + 3_723_004,
            level: Level::Warning,
            subject: "vm/db1".into(),
            kind: "vm.failed".into(),
            message: "its process 77 was killed by signal 9".into(),
        };
        insta::assert_snapshot!(line(&event), @"   12  01:02:03.004  warning  vm/db1                vm.failed         its process 77 was killed by signal 9");
        event.message = "its process 77 ended; it said: no such disk\nsecond line\n".into();
        assert!(line(&event).ends_with("vm.failed         its process 77 ended; it said: no such disk …\n"));
        assert_eq!(line(&event).lines().count(), 1);
    }
}
