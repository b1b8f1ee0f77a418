//! Costs of a frame besides time: allocations and system calls of the fabric under full load,
//! counted by the kernel (perf); instructions of the rings' device ends (callgrind), because the
//! processor's own counters are often not available.

use std::time::Duration;

use super::{Build, Rig, Switch};
use crate::figure::ratio;
use crate::lab::Lab;
use crate::machine::{Command, Text};
use crate::reason::{Context, Measured, NotMeasured, require};

/// Calls of the allocator that are counted.
const CALLS: [&str; 4] = ["malloc", "calloc", "realloc", "posix_memalign"];

/// What the fabric did in a second of full load.
#[derive(Debug, Clone, Copy)]
pub struct Allocations {
    /// Frames that it forwarded.
    pub frames: f64,
    /// Calls of the allocator.
    pub allocations: f64,
    /// Calls of the kernel.
    pub system_calls: f64,
}

impl Rig {
    /// Counts what the fabric calls in a second of full load.
    pub fn allocations(&mut self, lab: &mut Lab) -> Measured<Allocations> {
        let clear = Command::new("perf").args(["probe", "-q", "-d", "probe_libc:taut_*"]);
        let fabric = lab.program("taut-fabric");
        let libc = lab.run(&Command::new("ldd").arg(fabric))?.stdout.between("libc.so.6 => ", " ")?;
        let tracing = std::path::Path::new("/sys/kernel/tracing/events");
        if !lab.machine().exists(tracing) {
            lab.run(&Command::new("mount").args("-t tracefs none /sys/kernel/tracing"))?;
        }
        // Removes what an interrupted run left.
        let _ = lab.run(&clear);
        lab.owe(clear.clone())?;
        for call in CALLS {
            let probe = Command::new("perf").args("probe -q -x").arg(&libc).arg("--add");
            lab.run(&probe.arg(format!("taut_{call}={call}")))
                .when("the kernel's probes cannot be had here")?;
        }
        let outcome = self.count_calls(lab);
        self.pause(lab, &Switch::taut());
        let _ = lab.run(&clear);
        outcome
    }

    fn count_calls(&mut self, lab: &mut Lab) -> Measured<Allocations> {
        let switch = Switch::taut();
        self.resume(lab, &switch)?;
        let taut = self.taut_of(&Build::This);
        let pid = taut.ok_or_else(|| NotMeasured::because("taut was not started"))?.fabric;
        let [first, second] = self.sockets(&switch)?;
        let load = Command::new(lab.program("taut")).args("-o json bench switch").arg(first).arg(second);
        let load = load.args("--duration 4 --cpu 1 --huge-pages").preferred().record("load");
        let load = lab.start(&load)?;
        lab.sleep(1.5)?;
        let before = self.frames_of_taut(lab)?;
        let began = lab.now();
        let events = "stat -x , -e probe_libc:taut_* -e raw_syscalls:sys_enter -p";
        let perf = Command::new("perf").args(events).arg(pid.to_string()).args("-- sleep 1").record("perf");
        let counted = lab.run(&perf)?.stderr;
        let frames = self.frames_of_taut(lab)? - before;
        // perf counts for a second, but takes longer to begin and to end.
        let took = lab.now().saturating_sub(began);
        let frames = ratio(frames, took.as_secs_f64())?;
        lab.wait(&load, Duration::from_secs(60))?;
        require(frames > 0.0, "the fabric forwarded nothing meanwhile")?;
        let mut allocations = 0.0;
        for call in CALLS {
            allocations += event(&counted, &format!("probe_libc:taut_{call}"))?;
        }
        Ok(Allocations { frames, allocations, system_calls: event(&counted, "raw_syscalls:sys_enter")? })
    }
}

/// Count of an event that `perf stat -x ,` printed: `12,,probe_libc:taut_malloc,…`. A count that
/// perf could not make is `<not counted>`.
fn event(text: &Text, name: &str) -> Measured<f64> {
    let end = format!(",,{name},");
    text.number_between("", &end).when(name)
}

impl Lab<'_> {
    /// Counts the instructions per 64 B frame in the device ends of two rings of a format, with
    /// copy and checks, without the switch.
    pub fn instructions_per_frame(&mut self, format: &str) -> Measured<f64> {
        let example = self.example("taut-virtq", "forward")?;
        let options = "--tool=callgrind --toggle-collect=forward::forward --callgrind-out-file=/dev/null";
        let command = Command::new("valgrind").args(options).arg(example).args("64 3").arg(format);
        let ended = self.run(&command.record("callgrind"))?;
        let frames = ended.stdout.number_between("", " frames of each")?;
        let collected = ended.stderr.number_between("Collected : ", "")?;
        ratio(collected, frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_or_missing() {
        let text =
            "12,,probe_libc:taut_malloc,1000,100.00,,\n<not counted>,,probe_libc:taut_calloc,0,0.00,,\n";
        let text = Text::from(text);
        assert_eq!(event(&text, "probe_libc:taut_malloc"), Ok(12.0));
        assert!(event(&text, "probe_libc:taut_calloc").is_err());
        assert!(event(&text, "raw_syscalls:sys_enter").is_err());
    }
}
