//! What a QEMU answers to the client of its monitor: lines of any length and content, events in
//! between, answers of any shape. A model reads the same lines.
//!
//! Input: 1 byte for the question, then the bytes of the monitor. An input may leave out greeting
//! and capabilities, which nearly all would have in common.

use std::io::Write as _;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::Value;
use taut_api::fabric::ClosingQueue;
use taut_api::kvm::COUNTERS;
use taut_vm::qmp::{MonitorSocket, Qmp, QmpError};

use crate::input::Input;
use crate::{Budget, Target};

/// This target.
pub const TARGET: Target = Target { name: "qmp", run, budget: Budget::of(50, 4) };

/// Longest input that the socket takes at once.
const MOST: usize = 64 << 10;
/// Time for an answer. All bytes are there at once, so nothing waits.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest text of an error in bytes: what it quotes, with up to four bytes a character.
const MOST_TEXT: usize = 4 * 2000 + 200;
const GREETING: &[u8] = b"{\"QMP\":{}}\n{\"return\":{}}\n";

/// The lines as a model reads them.
struct Lines<'a> {
    lines: Vec<&'a [u8]>,
    events: Vec<String>,
}

/// The outcome of a command by the model.
#[derive(Debug, PartialEq)]
enum Outcome {
    Answer(Value),
    Refused,
    /// No QMP.
    Strange,
    /// The lines have ended.
    Ended,
}

impl Lines<'_> {
    fn object(&mut self) -> Result<Value, Outcome> {
        let line = self.lines.pop().ok_or(Outcome::Ended)?;
        serde_json::from_slice(line).ok().filter(Value::is_object).ok_or(Outcome::Strange)
    }

    fn outcome(&mut self) -> Outcome {
        loop {
            let message = match self.object() {
                Ok(message) => message,
                Err(outcome) => return outcome,
            };
            match (message.get("return"), message.get("error"), message["event"].as_str()) {
                (Some(answer), ..) => return Outcome::Answer(answer.clone()),
                (_, Some(_), _) => return Outcome::Refused,
                (.., Some(event)) => self.events.push(event.to_owned()),
                _ => return Outcome::Strange,
            }
        }
    }

    fn greeting(&mut self) -> Outcome {
        match self.object() {
            Ok(message) if message.get("QMP").is_some() => self.outcome(),
            Ok(_) => Outcome::Strange,
            Err(outcome) => outcome,
        }
    }
}

fn run(data: &[u8]) {
    let mut input = Input(data);
    let question = input.u8();
    let rest = &input.0[..input.0.len().min(MOST)];
    let bytes = if question & 0x80 == 0 { [GREETING, rest].concat() } else { rest.to_vec() };
    let mut lines: Vec<_> =
        bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")).collect();
    lines.reverse();
    let mut model = Lines { lines, events: Vec::new() };
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    (&theirs).write_all(&bytes).expect("the socket has room");
    theirs.shutdown(Shutdown::Write).expect("a connected socket");

    let greeted = Qmp::over(MonitorSocket::new(ours, &ClosingQueue::unreported()), PATIENCE);
    let Some(mut qmp) = check(greeted, &model.greeting()) else { return };
    // The answer to one question may hold what the next one is about.
    for shift in [0, 2, 4] {
        if !ask(&mut qmp, &mut model, question >> shift & 3) {
            break;
        }
    }
    let events: Vec<_> = qmp.take_events().into_iter().map(|event| event.name).collect();
    assert_eq!(events, model.events);
}

/// Asks one question. Returns `true` if it was answered.
fn ask(qmp: &mut Qmp, model: &mut Lines<'_>, question: u8) -> bool {
    match question {
        0 => {
            let status = qmp.status();
            let expected = model.outcome();
            let said = if let Outcome::Answer(value) = &expected { value["status"].as_str() } else { None };
            match (&status, said) {
                (Ok(status), Some(said)) => assert_eq!(status, said),
                (Err(QmpError::Protocol(_)), None) if matches!(expected, Outcome::Answer(_)) => return false,
                _ => return check(status, &expected).is_some(),
            }
        }
        1 => {
            let threads = qmp.vcpu_threads();
            match (&threads, model.outcome()) {
                (Ok(threads), Outcome::Answer(value)) => {
                    assert!(threads.is_sorted());
                    assert_eq!(value.as_array().map(Vec::len), Some(threads.len()));
                }
                (Err(QmpError::Protocol(_)), Outcome::Answer(_)) => return false,
                (_, expected) => return check(threads, &expected).is_some(),
            }
        }
        2 => match qmp.kvm_counters() {
            // Both answers are read before either is looked at.
            Ok(vcpus) => {
                assert!(matches!(model.outcome(), Outcome::Answer(Value::Array(_))));
                assert!(matches!(model.outcome(), Outcome::Answer(Value::Array(_))));
                assert!(vcpus.is_sorted_by(|a, b| a.vcpu < b.vcpu));
                let mut names = vcpus.iter().flat_map(|vcpu| vcpu.counters.keys());
                assert!(names.all(|name| COUNTERS.contains(&name.as_str())));
            }
            Err(error) => {
                check_text(&error);
                match model.outcome() {
                    Outcome::Answer(_) => _ = model.outcome(),
                    expected => return check(Err::<(), _>(error), &expected).is_some(),
                }
                return false;
            }
        },
        _ => return check(qmp.powerdown(), &model.outcome()).is_some(),
    }
    true
}

/// Compares the kinds of both outcomes. Returns the value if there is one.
fn check<T>(found: Result<T, QmpError>, expected: &Outcome) -> Option<T> {
    let agrees = match &found {
        Ok(_) => matches!(expected, Outcome::Answer(_)),
        Err(QmpError::Io(_)) => *expected == Outcome::Ended,
        Err(QmpError::Protocol(_)) => *expected == Outcome::Strange,
        Err(QmpError::Refused { .. }) => *expected == Outcome::Refused,
    };
    assert!(agrees, "{:?} instead of {expected:?}", found.err());
    found.inspect_err(check_text).ok()
}

fn check_text(error: &QmpError) {
    let text = error.to_string();
    assert!((1..=MOST_TEXT).contains(&text.len()), "{text}");
}
