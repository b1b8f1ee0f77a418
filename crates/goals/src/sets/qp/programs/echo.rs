//! A Python program with asyncio, as client and server: round trips one after the other, and
//! connections that do nothing.

use std::path::PathBuf;
use std::time::Duration;

use super::latency::Latency;
use super::{SERVER, Way, in_guest, printed, run_in, sample, serve, until_it_works};
use crate::lab::Lab;
use crate::machine::{Command, Job, Text};
use crate::reason::{Measured, NotMeasured, require};

const PROGRAM: &str = include_str!("echo.py");
const BUNDLE: &str = include_str!("bundle.py");
const PORT: u16 = 7001;

/// The program with all that it needs in a guest.
#[derive(Debug, Clone)]
pub(in super::super) struct Echo {
    /// Files for the guest's folder of programs: the interpreter, and modules.
    pub(in super::super) files: Vec<PathBuf>,
    /// Name of the interpreter in the guest.
    interpreter: String,
}

impl Echo {
    /// Collects the interpreter and the modules of this system that the program uses.
    pub(in super::super) fn build(lab: &mut Lab) -> Measured<Self> {
        let python = lab.tool("python3")?;
        let folder = lab.folder().join("python");
        lab.machine().make_folder(&folder)?;
        lab.machine().write(&folder.join("echo.py"), PROGRAM)?;
        lab.machine().write(&folder.join("bundle.py"), BUNDLE)?;
        let bundle = Command::new(python).arg("-S").arg(folder.join("bundle.py")).record("bundle");
        let report = lab.run(&bundle)?.json()?;
        let interpreter = PathBuf::from(report.text("python")?);
        let mut files = vec![interpreter.clone(), report.text("archive")?.into()];
        for library in report.list("libraries")? {
            files.push(library.text("")?.into());
        }
        let nameless = || NotMeasured::because("the interpreter has no name");
        let interpreter = interpreter.file_name().ok_or_else(nameless)?.display().to_string();
        Ok(Self { files, interpreter })
    }

    /// Command of the program in a guest.
    fn command(&self, way: Way, words: &str) -> String {
        let python = format!("PYTHONPATH=/bin/modules.zip:/bin {}", self.interpreter);
        format!("{}{python} -S -B -m echo {words}", way.variables())
    }

    /// Starts a server for each of these ways, and waits until they serve.
    pub(in super::super) fn start(&self, lab: &mut Lab, ways: &[Way]) -> Measured<()> {
        for &way in ways {
            let command = self.command(Way::Tcp, &format!("serve {}", way.port(PORT)));
            serve(lab, way, "echo-server", &command)?;
            let few = Talk { size: 64, rounds: 10, pause: 0.0 };
            until_it_works(lab, "the Python program's server answers", |lab| {
                self.latency(lab, way, few).map(drop)
            })?;
        }
        Ok(())
    }

    /// Measures round trips from a to b.
    pub(in super::super) fn latency(&self, lab: &mut Lab, way: Way, talk: Talk) -> Measured<Latency> {
        let Talk { size, rounds, pause } = talk;
        let words = format!("talk {SERVER} {} {size} {rounds} {pause}", way.port(PORT));
        sample(lab, way, |lab| {
            let limit = 120 + (f64::from(rounds) * pause) as u64;
            let text = run_in(lab, "a", "asyncio", &self.command(way, &words), limit)?;
            Ok((percentiles(&text)?, f64::from(size) * f64::from(rounds)))
        })
    }

    /// Opens so many connections from a to b, which do nothing for `seconds` and then answer. Waits
    /// until all are open.
    pub(in super::super) fn open_idle(
        &self,
        lab: &mut Lab,
        way: Way,
        [count, seconds]: [u32; 2],
    ) -> Measured<Idle> {
        let words = format!("idle {SERVER} {} {count} {seconds}", way.port(PORT));
        let script = format!("ulimit -n 8192\n{}", self.command(way, &words));
        let command = in_guest(lab, "a", "idle", &script, 3600)?;
        let job = lab.start(&command)?;
        lab.until("all connections are open", 300, |lab| {
            let output = lab.machine().output(&job)?;
            let is_over = output.contains("status ") && !lab.machine().takes_for_granted();
            require(!is_over, format!("the connections failed: {}", output.last_lines(3)))?;
            Ok(output.contains(&format!("open {count}.")))
        })?;
        Ok(Idle { job })
    }
}

/// Round trips one after the other.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Talk {
    /// Bytes of request and response.
    pub(in super::super) size: u32,
    pub(in super::super) rounds: u32,
    /// Seconds before each request.
    pub(in super::super) pause: f64,
}

/// Connections that do nothing.
#[derive(Debug)]
pub(in super::super) struct Idle {
    job: Job,
}

impl Idle {
    /// Waits for their end, and returns how many answered.
    pub(in super::super) fn answered(self, lab: &mut Lab) -> Measured<f64> {
        answered(&lab.wait(&self.job, Duration::from_secs(600))?.stdout)
    }
}

/// Reads how many connections answered.
fn answered(output: &Text) -> Measured<f64> {
    printed(output)?.number_between("{\"answered\": ", "}")
}

/// Reads percentiles of a report.
fn percentiles(text: &Text) -> Measured<Latency> {
    let report = text.json()?;
    Ok(Latency { p50_us: report.number("p50_us")?, p99_us: report.number("p99_us")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_answer_are_counted_at_their_end() {
        let of = |text: &str| answered(&Text::from(text));
        assert_eq!(of("OK 1025\nopen 1000.\n{\"answered\": 1000}\nstatus 0.\n"), Ok(1000.0));
        assert!(of("OK 1025\nopen 1000.\n").is_err());
        assert!(of("OK 1025\nopen 1000.\n{\"answered\": 1000}\nstatus 1.\n").is_err());
        assert!(of("OK 1025\nopen 1000.\nTraceback\nstatus 1.\n").is_err());
    }

    #[test]
    fn a_report_has_both_percentiles() {
        let of = |text: &str| percentiles(&Text::from(text));
        let found = of("{\"count\": 100, \"p50_us\": 289.01, \"p99_us\": 8192.297}\n");
        assert_eq!(found, Ok(Latency { p50_us: 289.01, p99_us: 8192.297 }));
        for text in ["", "{\"p50_us\": 1}", "{\"p50_us\": null, \"p99_us\": 1}", "Traceback"] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
