//! A witness of interruptions: a TCP connection and datagrams between two namespaces of a lab.

use std::path::PathBuf;
use std::time::Duration;

use super::Lab;
use crate::machine::{Command, Doc, Job};
use crate::reason::{Context, Measured, NotMeasured, require};

const PORT: &str = "5900";
/// A message is sent every millisecond. A silence of at least this long is an interruption.
const SILENT_MS: f64 = 100.0;
/// Messages that have to come back after an event, so that it counts as over.
const ENOUGH: f64 = 20.0;

/// A running witness. Made by [`Lab::start_witness`].
#[derive(Debug, Clone)]
pub struct Witness {
    server: Job,
    watcher: Job,
    mark: PathBuf,
    state: PathBuf,
    round: u32,
}

/// Observations of a witness in one round.
#[derive(Debug, Clone, Copy)]
pub struct Round {
    /// Longest silence of the TCP connection, in ms.
    pub stream_ms: f64,
    /// Longest silence of the datagrams, in ms.
    pub datagrams_ms: f64,
    /// Datagrams that did not come back.
    pub lost: f64,
    /// Moment at which the longest silence of the datagrams ended.
    pub resumed: Duration,
}

/// Observations of a witness in all rounds.
#[derive(Debug, Clone, Copy)]
pub struct Testimony {
    /// Messages of the TCP connection.
    pub messages: f64,
    /// Those that did not come back.
    pub missing: f64,
    /// Times that the connection broke.
    pub broken: f64,
}

impl Lab<'_> {
    /// Starts a witness between two namespaces, of which the second one has the address `ip`, and
    /// waits until messages come back.
    pub fn start_witness(&mut self, from: &str, to: &str, ip: &str) -> Measured<Witness> {
        let program = self.example("taut-bench", "witness")?;
        let (mark, state) = (self.folder.join("witness.mark"), self.folder.join("witness.state"));
        self.machine.write(&mark, "0")?;
        let serve = Command::new(&program).args(["serve", PORT]).env("TAUT_GOALS_LAB", self.folder.join(""));
        let server = self.start(&serve.in_namespace(to).record("witness-server"))?;
        self.until("the witness's server listens", 10, |lab| {
            let listening = Command::new("ss").args(format!("-Hltn sport = :{PORT}")).in_namespace(to);
            Ok(!lab.run(&listening)?.stdout.trimmed().is_empty())
        })?;
        let watch = Command::new(&program).args(["watch", &format!("{ip}:{PORT}")]).arg(&mark).arg(&state);
        let watcher = self.start(&watch.in_namespace(from).record("witness"))?;
        let mut witness = Witness { server, watcher, mark, state, round: 0 };
        self.until("the witness has written", 10, |lab| Ok(lab.machine.exists(&witness.state)))?;
        self.begin_round(&mut witness)?;
        self.end_round(&witness)?;
        Ok(witness)
    }

    fn state_of(&mut self, witness: &Witness) -> Measured<Doc> {
        let is_running = self.machine.is_running(&witness.watcher);
        require(is_running, "the witness has ended")?;
        self.machine.read(&witness.state)?.json()
    }

    /// Begins a round of a witness, whose figures do not contain what was before.
    pub fn begin_round(&mut self, witness: &mut Witness) -> Measured<()> {
        witness.round += 1;
        let round = witness.round;
        self.machine.write(&witness.mark, &round.to_string())?;
        self.until("the witness begins a round", 10, |lab| {
            Ok(lab.state_of(witness)?.number("round")? >= f64::from(round))
        })
    }

    /// Waits until messages of both kinds come back that were sent after this call, and returns
    /// what happened since the round began. Fails if they do not come back in 60 s.
    pub fn end_round(&mut self, witness: &Witness) -> Measured<Round> {
        let before = self.state_of(witness)?;
        let mut wanted = Vec::new();
        for kind in ["stream", "datagrams"] {
            // Those that were sent before and were lost never come back.
            wanted.push((kind, before.number(&format!("{kind}.came"))? + ENOUGH));
        }
        let mut state = before;
        let outcome = self.until("the witness gets answers again", 60, |lab| {
            state = lab.state_of(witness)?;
            for (kind, least) in &wanted {
                let came = state.number(&format!("{kind}.came"))?;
                if came < *least || state.number(&format!("{kind}.since_ms"))? >= SILENT_MS {
                    return Ok(false);
                }
            }
            Ok(true)
        });
        outcome.when("traffic")?;
        let ago = state.number("datagrams.ended_ms_ago")?.max(0.0);
        let now = self.now();
        Ok(Round {
            stream_ms: state.number("stream.longest_ms")?,
            datagrams_ms: state.number("datagrams.longest_ms")?,
            lost: state.number("datagrams.lost")?,
            resumed: now.saturating_sub(Duration::from_secs_f64(ago / 1e3)),
        })
    }

    /// Ends a witness once the last bytes have come back.
    pub fn end_witness(&mut self, witness: &Witness) -> Measured<Testimony> {
        self.machine.write(&witness.mark, "end")?;
        let said = self.wait(&witness.watcher, Duration::from_secs(60))?.stdout.json()?;
        self.end(&witness.server);
        let testimony = Testimony {
            messages: said.number("messages")?,
            missing: said.number("missing")?,
            broken: said.number("broken")?,
        };
        if testimony.messages <= 0.0 {
            return Err(NotMeasured::because("the witness sent nothing"));
        }
        Ok(testimony)
    }
}
