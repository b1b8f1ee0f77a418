//! Clients of a lab's daemon that go on while it is killed: one changes a setting again and again,
//! another one starts and stops a VM.

use std::path::PathBuf;
use std::time::Duration;

use super::Lab;
use crate::machine::{Command, Job};
use crate::reason::{Measured, require};

/// Values of the setting begin here, and begin again after so many.
const FIRST: f64 = 1000.0;
const VALUES: f64 = 900_000.0;

/// Changes a VM's shares of CPU time: to FIRST + 1, FIRST + 2 and so on. Notes each change before
/// it is asked for, and once more when the daemon has acknowledged it. Before the next change it
/// looks whether the last one that was acknowledged is still there, and counts those that are not.
/// The last argument is the pause between changes, in seconds.
const WRITE: &str = r#"
note() { echo "$2" >"$dir/$1.new" && mv "$dir/$1.new" "$dir/$1"; }
taut=$1 vm=$2 dir=$3 pause=$4 i=0 acknowledged=0 lost=0
note acknowledged 0
note lost 0
while [ ! -e "$dir/stop" ]; do
  if [ "$acknowledged" != 0 ] && found=$(timeout 40 "$taut" -o json vm show "$vm" | jq -er .spec.cpu.shares) &&
    [ "$found" -lt $((1000 + acknowledged)) ]; then
    lost=$((lost + 1))
    note lost "$lost"
  fi
  i=$((i + 1))
  note asked "$i"
  timeout 40 "$taut" vm set "$vm" --cpu-shares $((1000 + i)) && acknowledged=$i && note acknowledged "$i"
  sleep "$pause"
done
"#;

/// Starts and stops a VM. Notes how often it did both.
const CYCLE: &str = r#"
taut=$1 vm=$2 dir=$3 i=0
echo 0 >"$dir/done"
while [ ! -e "$dir/stop" ]; do
  timeout 60 "$taut" vm start "$vm" && timeout 60 "$taut" vm stop --force "$vm" && {
    i=$((i + 1))
    echo "$i" >"$dir/done.new" && mv "$dir/done.new" "$dir/done"
  }
  # Without this pause, events of the VM would be left out: ten a second are kept.
  sleep 1
done
"#;

/// A client that runs.
#[derive(Debug, Clone)]
pub struct Client {
    job: Job,
    vm: String,
    folder: PathBuf,
}

impl Lab<'_> {
    /// Starts a client that changes a setting of a VM, with `pause` between changes.
    pub fn start_writer(&mut self, vm: &str, pause: Duration) -> Measured<Client> {
        self.start_client("write", WRITE, vm, &[pause.as_secs_f64().to_string()])
    }

    /// Starts a client that starts and stops a VM.
    pub fn start_cycle(&mut self, vm: &str) -> Measured<Client> {
        self.start_client("cycle", CYCLE, vm, &[])
    }

    /// Starts a client that runs a script. Its arguments are the program `taut`, the VM and the
    /// folder for its notes, and then `last`.
    fn start_client(&mut self, name: &str, script: &str, vm: &str, last: &[String]) -> Measured<Client> {
        let folder = self.folder.join(format!("{name}-{vm}"));
        self.machine.make_folder(&folder)?;
        let command = Command::new("sh").arg("-c").arg(script).arg("sh").arg(self.program("taut")).arg(vm);
        let command = last.iter().fold(command.arg(&folder), Command::arg);
        let command = command.env("TAUT_SOCKET", self.daemon()?.socket);
        let job = self.start(&command.record(&format!("{name}-{vm}")))?;
        let client = Client { job, vm: vm.to_owned(), folder };
        self.progress(&client, 0.0, 20)?;
        Ok(client)
    }

    /// Number that a client has noted. Fails if the client has ended.
    fn noted(&mut self, client: &Client, what: &str) -> Measured<f64> {
        require(self.machine.is_running(&client.job), format!("the client of {} has ended", client.vm))?;
        self.machine.read(&client.folder.join(what))?.number()
    }

    /// Number of times that a client succeeded.
    pub fn done(&mut self, client: &Client) -> Measured<f64> {
        let is_writer = self.machine.exists(&client.folder.join("acknowledged"));
        self.noted(client, if is_writer { "acknowledged" } else { "done" })
    }

    /// Waits until a client has succeeded more than `before` times.
    pub fn progress(&mut self, client: &Client, before: f64, seconds: u64) -> Measured<()> {
        let what = format!("the client of {} succeeds", client.vm);
        // The first note may not be there yet.
        self.until(&what, seconds, |lab| Ok(lab.done(client).is_ok_and(|done| done > before)))
    }

    /// Counts a writer's acknowledged changes that are lost: the setting is older than the last one
    /// that was acknowledged before it was read, or newer than any that was asked for.
    pub fn lost_by(&mut self, writer: &Client) -> Measured<f64> {
        let acknowledged = self.noted(writer, "acknowledged")?;
        let found = self.vm_show(&writer.vm)?.text("spec.cpu.shares")?.parse::<f64>()? - FIRST;
        let asked = self.noted(writer, "asked")?;
        require(asked < VALUES, "the writer has used up its values")?;
        Ok(lost(acknowledged, found, asked))
    }

    /// Number of acknowledged changes that a writer itself has found lost.
    pub fn found_lost(&mut self, writer: &Client) -> Measured<f64> {
        self.noted(writer, "lost")
    }

    /// Has a client finish what it is doing, and waits for its end.
    pub fn end_client(&mut self, client: &Client) -> Measured<()> {
        self.machine.write(&client.folder.join("stop"), "")?;
        self.wait_for_end(&client.job, Duration::from_secs(130)).map(drop)
    }
}

fn lost(acknowledged: f64, found: f64, asked: f64) -> f64 {
    if found > asked { asked.max(1.0) } else { (acknowledged - found).max(0.0) }
}

#[cfg(test)]
mod tests {
    use super::lost;

    #[test]
    fn a_change_is_lost_if_an_older_one_is_there() {
        assert!(lost(7.0, 7.0, 7.0) < 0.5);
        assert!(lost(7.0, 8.0, 8.0) < 0.5, "in force, and its answer was cut off");
        assert!((lost(7.0, 5.0, 8.0) - 2.0).abs() < 0.5);
        assert!(lost(7.0, 9.0, 8.0) > 0.5, "nobody asked for it");
    }
}
