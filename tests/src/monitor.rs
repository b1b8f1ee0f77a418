//! QEMU's monitor, asked beside the daemon.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

/// Has QEMU execute commands, and returns its answers. Returns `None` while another client uses the
/// monitor.
pub fn ask_monitor(monitor: &Path, commands: &[Value]) -> Option<Vec<Value>> {
    let stream = UnixStream::connect(monitor).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    let mut answer = |command: &Value| -> Option<Value> {
        if !command.is_null() {
            writeln!(&stream, "{command}").ok()?;
        }
        loop {
            let line: Value = serde_json::from_str(&lines.next()?.ok()?).ok()?;
            if line.get("event").is_none() {
                return Some(line);
            }
        }
    };
    answer(&Value::Null)?;
    answer(&json!({ "execute": "qmp_capabilities" }))?;
    commands.iter().map(answer).collect()
}
