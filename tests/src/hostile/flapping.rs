//! A front end that comes and goes all the time: the log of events belongs to others, too.

use std::io;
use std::net::Shutdown;
use std::time::Instant;

use serde_json::Value;

use super::front_end::FrontEnd;
use super::{Act, Effect, Port, Tools, claim};

/// Sessions of the act.
const SESSIONS: usize = 1000;
/// Events that one subject may add at once.
const BURST: usize = 200;
/// Events that it may add each second.
const RATE: usize = 10;
/// Further events: those that tell how many were left out.
const SPARE: usize = 10;

/// Returns the acts of this group.
pub(super) fn acts() -> Vec<Act> {
    vec![Act::new("1,000 sessions one after the other", Effect::Left, flap).slow()]
}

fn flap(front: &mut FrontEnd, tools: &Tools) -> io::Result<()> {
    let (before, begun) = (tools.events(), Instant::now());
    front.stream.shutdown(Shutdown::Both)?;
    for _ in 0..SESSIONS {
        front.another()?.set_up()?;
    }
    let after = tools.events();
    let most = BURST + RATE * (begun.elapsed().as_secs() as usize + 1) + SPARE;
    let last = before.last().and_then(number);
    let added = after.iter().filter(|event| number(event) > last && is_own(event)).count();
    claim((1..=most).contains(&added), &format!("{added} events instead of 1 to {most}"))?;
    let lost = before.iter().filter(|event| !is_own(event) && !after.contains(event)).count();
    claim(lost == 0, &format!("{lost} events of others were lost"))
}

fn number(event: &Value) -> Option<u64> {
    event["seq"].as_u64()
}

/// Tells whether an event is about the port of the act.
fn is_own(event: &Value) -> bool {
    event["subject"] == format!("external/{}", Port::Plain.name())
}
