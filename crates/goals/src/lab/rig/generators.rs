//! Generators on CPU 1. All run with the priority of the switches.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Cell, Generator, Rig, Switch};
use crate::lab::Lab;
use crate::machine::{Command, Doc, Signal, Text};
use crate::reason::{Context, Measured, NotMeasured, require};
use crate::rival::Rival;
use crate::rounds::State;

impl Rig {
    /// Loads a cell's switch.
    pub(super) fn generate(&mut self, lab: &mut Lab, cell: &Cell) -> Measured<Doc> {
        match cell.generator {
            Generator::Taut => self.generate_taut(lab, cell),
            Generator::Lgen | Generator::Vgen => self.generate_foreign(lab, cell),
        }
    }

    fn generate_taut(&self, lab: &mut Lab, cell: &Cell) -> Measured<Doc> {
        let [first, second] = self.sockets(&cell.switch)?;
        let (mode, size, options) = cell.words();
        let command = Command::new(lab.setup().programs.join("taut")).args("-o json bench switch");
        let command = command.arg(first).arg(second).args(format!("--mode {mode} --size {size}"));
        let command =
            command.args(format!("--repeat {} --duration {}", self.pace.repeats, self.pace.seconds));
        let command =
            command.args(format!("--settle {} --cpu 1 --probe 0 --huge-pages", cell.switch.settle()));
        let command = command.args(options).preferred().limit(120).record("switch");
        lab.run(&command)?.json()
    }

    fn generate_foreign(&mut self, lab: &mut Lab, cell: &Cell) -> Measured<Doc> {
        let program = self.build(lab, cell.generator)?;
        let mut repeats = Vec::new();
        for _ in 0..self.pace.repeats {
            let before = self.placement(lab, &cell.switch)?;
            let text = match cell.generator {
                Generator::Vgen => self.run_vgen(lab, cell, &program)?,
                _ => self.run_lgen(lab, cell, &program)?,
            };
            let after = self.placement(lab, &cell.switch)?;
            let mut repeat = figures(&text, cell.is_traversal())?;
            repeat["probe_ns"] = json!([before, after]);
            repeats.push(repeat);
        }
        let (mode, size, _) = cell.words();
        let size: u32 = size.parse()?;
        Ok(Doc::from(json!({ "mode": mode, "size": size, "packed": cell.is_packed(), "repeats": repeats })))
    }

    /// Compiles a generator, once in a rig.
    pub fn build(&self, lab: &mut Lab, generator: Generator) -> Measured<PathBuf> {
        let name = generator.name();
        let (source, program) = (lab.rival(Rival::Generator(name))?, self.folder.join(name));
        if lab.machine().exists(&program) {
            return Ok(program);
        }
        let mut gcc = Command::new("gcc").args("-O3 -march=native");
        let mut libraries = String::new();
        if generator == Generator::Vgen {
            let mut dpdk = |option: &str| -> Measured<String> {
                let ended = lab.run(&Command::new("pkg-config").arg(option).arg("libdpdk"))?;
                Ok(ended.stdout.trimmed().to_owned())
            };
            gcc = gcc.args(dpdk("--cflags")?);
            libraries = dpdk("--libs")?;
        }
        lab.run(&gcc.arg(source).arg("-o").arg(&program).args(libraries))
            .when(format!("{name} is not built"))?;
        Ok(program)
    }

    fn run_lgen(&self, lab: &mut Lab, cell: &Cell, program: &PathBuf) -> Measured<Text> {
        let [first, second] = self.sockets(&cell.switch)?;
        // It does not touch payload, as the 0 at the end says.
        let words = format!("{} {} 256 0", foreign_load(cell), self.pace.seconds);
        let mut command = Command::new(program).arg(first).arg(second).args(words);
        // With QUICK set it does not wait until OVS's flows have settled.
        command = match cell.switch {
            Switch::Ovs(_) => command.without_env("QUICK"),
            _ => command.env("QUICK", "1"),
        };
        Ok(lab.run(&command.preferred().limit(30).record("lgen"))?.stdout)
    }

    fn run_vgen(&self, lab: &mut Lab, cell: &Cell, program: &PathBuf) -> Measured<Text> {
        let mut command = Command::new(program);
        command =
            command.args("-l 1 --no-pci --no-telemetry --log-level=3 --file-prefix=taut-rig-vgen -m 256");
        command = command.args("--single-file-segments --huge-dir").arg(&self.huge);
        for device in self.vgen_devices(cell)? {
            command = command.args(["--vdev".to_owned(), device].to_vec());
        }
        command = command.args(format!("-- {} {} 256", foreign_load(cell), self.pace.seconds));
        let command = command.preferred().limit(60).record("vgen");
        if cell.switch != Switch::Bridge {
            return Ok(lab.run(&command)?.stdout);
        }
        let job = lab.start(&command)?;
        Self::join_bridge(lab, &job)?;
        Ok(lab.wait(&job, Duration::from_secs(60))?.stdout)
    }

    fn vgen_devices(&self, cell: &Cell) -> Measured<[String; 2]> {
        if cell.switch == Switch::Bridge {
            return Ok([0, 1].map(|end| format!("net_tap{end},iface=taut-rig{end}")));
        }
        let packed = if cell.is_packed() { ",packed_vq=1" } else { "" };
        let [first, second] = self.sockets(&cell.switch)?;
        Ok([(0, first), (1, second)].map(|(end, socket)| {
            let mac = format!("mac=02:11:00:00:00:0{end}");
            format!("net_virtio_user{end},path={},queues=1,queue_size=256,{mac}{packed}", socket.display())
        }))
    }

    /// Median round trip of a cache line between the CPUs, in ns. The switch is stopped meanwhile:
    /// a polling one would take the probe's turns on its CPU, and the probe would measure
    /// milliseconds.
    fn placement(&mut self, lab: &mut Lab, switch: &Switch) -> Measured<f64> {
        self.signal(lab, switch, Signal::Stop);
        let trip = lab.cpu_round_trip();
        self.signal(lab, switch, Signal::Continue);
        trip
    }
}

/// Mode and size in the words of the generators that were not written with taut.
fn foreign_load(cell: &Cell) -> String {
    let (mode, size, _) = cell.words();
    let mode = match mode {
        "both-ways" => "bidi",
        "traversal" => "rtt",
        _ => "tput",
    };
    format!("{mode} {size}")
}

/// Converts the figures that these generators print.
fn figures(text: &Text, is_traversal: bool) -> Measured<Value> {
    if is_traversal {
        let number = |name: &str| text.number_between(&format!(" {name}="), " ");
        let last = text.number_between(" p99.9=", " ").or_else(|_| text.number_between(" p99.9=", ""));
        let tail = number("p99.99").ok();
        return Ok(json!({"traversal": {
            "count": number("n")?, "lost": number("lost")?, "p50_ns": number("p50")?, "p90_ns": number("p90")?,
            "p99_ns": number("p99")?, "p99_9_ns": last?, "p99_99_ns": tail
        }}));
    }
    let sent = text.number_between(" tx=", " ")?;
    let received = text.number_between(" rx=", " Mpps")?;
    require(sent > 0.0, "the generator sent nothing")?;
    let full = text.number_between("tx_ring_full=", "%").ok();
    Ok(json!({"sent_mpps": sent, "mpps": received, "ring_full_percent": full}))
}

impl Rig {
    /// Fails unless the CPUs are far from each other now.
    pub fn require_far(lab: &mut Lab) -> Measured<()> {
        let trip = lab.cpu_round_trip()?;
        let is_far = State::of_round_trips(&[trip]) == State::Far || lab.machine().is_stand_in();
        let reason = format!("the CPUs are not far from each other: {trip} ns for a cache line's round trip");
        if is_far { Ok(()) } else { Err(NotMeasured::because(reason)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_other_generators_are_understood() {
        let lgen = "TPUT mode=tput size=64 qs=256 tx=22.700 rx=22.600 Mpps loss=0.44% 11.57 Gb/s (p0->p1 1.0, p1->p0 0.0)\nPOLL tx_ring_full=94.2% , rx_empty=3.0% sum 0 feats 1\n";
        let found = figures(&Text::from(lgen), false).unwrap();
        assert_eq!(found["mpps"], json!(22.6));
        assert_eq!(found["ring_full_percent"], json!(94.2));
        let vgen = "TPUT mode=tput size=64 qs=256 tx=13.500 rx=13.400 Mpps loss=0.74% 6.9 Gb/s\n";
        assert_eq!(figures(&Text::from(vgen), false).unwrap()["ring_full_percent"], Value::Null);
        let rtt = "RTT size=64 n=99 lost=0 mean=500 min=300 p50=480 p90=500 p99=600 p99.9=900\n";
        let found = figures(&Text::from(rtt), true).unwrap();
        assert_eq!(found["traversal"]["p99_9_ns"], json!(900.0));
        assert_eq!(found["traversal"]["count"], json!(99.0));
        for text in ["", "TPUT tx=nan rx=nan Mpps", "TPUT tx=0 rx=0 Mpps", "TPUT tx=1.0 rx="] {
            assert!(figures(&Text::from(text), false).is_err(), "{text}");
        }
    }
}
