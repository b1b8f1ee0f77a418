//! The host of results, as the daemon describes it.

use taut_api::ApiError;
use taut_api::host::HostInfo;
use taut_api::path;
use taut_api::route::DaemonInfo;
use taut_bench::report::Host;

use crate::client::Client;
use crate::output;
use crate::progress::Progress;

/// Returns the host for the report.
pub(super) fn describe(client: &Client) -> Result<Host, ApiError> {
    let _progress = Progress::start("looking at the host");
    let info: HostInfo = client.get(path::HOST)?;
    Ok(Host {
        hostname: info.hostname,
        cpu_model: info.cpu_model,
        cpus: info.cpus.len(),
        os: info.os,
        kernel: info.kernel,
        accelerator: output::word(&info.accelerator.kind),
        qemu: info.qemu.map(|qemu| qemu.version),
        taut: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// Returns the fabric's process. None if the daemon does not answer, which does not end a
/// measurement.
pub(super) fn fabric_pid(client: &Client) -> Option<u32> {
    client.get::<DaemonInfo>(path::DAEMON).ok()?.fabric_pid
}
