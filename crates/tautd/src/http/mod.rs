//! The HTTP API: documents in, documents with status out. The handlers write the store and wake the
//! reconcile loop. They change nothing on the host, so that tests need no host.

mod body;
mod daemon;
mod documents;
mod events;
mod host;
mod kvm;
mod metrics;
mod openapi;
mod patch;
mod ports;
mod refusals;
mod resources;
mod vms;

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use taut_api::event::Level;
use taut_api::{ApiError, Name, path};

use crate::board::{Board, Seen};
use crate::fabric::counters::Counters;
use crate::inbox::{Inbox, Message};
use crate::store::{Change, Kind, State, Store};

pub(crate) use openapi::document as openapi_document;
pub(crate) use refusals::Refusals;

use body::Failure;
use resources::{external, netns, portgroups, vswitches};

/// State that handlers work on.
#[derive(Debug)]
pub(crate) struct App {
    /// Documents and events.
    pub(crate) store: Arc<Store>,
    /// State as last observed.
    pub(crate) board: Arc<Board>,
    /// The fabric's counters.
    pub(crate) counters: Arc<Counters>,
    /// The reconcile loop's inbox.
    pub(crate) inbox: Inbox,
    /// Refused changes that were listed as events lately.
    pub(crate) refusals: Refusals,
    /// Parent of the VMs' run directories.
    pub(crate) run_dir: PathBuf,
    /// Directory of the store and of the ledger of changed settings.
    pub(crate) state_dir: PathBuf,
}

type Shared = Arc<App>;

/// Returns the router with all paths of the API.
pub(crate) fn router(app: Shared) -> Router {
    Router::new()
        .route(path::VMS, get(vms::list_vms).post(vms::create_vm))
        .route(path::VM.pattern(), get(vms::show_vm).patch(patch::patch_vm).delete(vms::delete_vm))
        .route(path::VM_POWER.pattern(), post(vms::set_power))
        .route(path::VM_KVM.pattern(), get(kvm::kvm_counters))
        .route(path::VSWITCHES, get(vswitches::list_vswitches))
        .route(
            path::VSWITCH.pattern(),
            get(vswitches::show_vswitch).put(vswitches::put_vswitch).delete(vswitches::delete_vswitch),
        )
        .route(path::PORTGROUPS, get(portgroups::list_portgroups))
        .route(
            path::PORTGROUP.pattern(),
            get(portgroups::show_portgroup)
                .put(portgroups::put_portgroup)
                .delete(portgroups::delete_portgroup),
        )
        .route(path::NETNS, get(netns::list_netns))
        .route(
            path::NETNS_ATTACHMENT.pattern(),
            get(netns::show_netns).put(netns::put_netns).delete(netns::delete_netns),
        )
        .route(path::EXTERNAL_PORTS, get(external::list_external))
        .route(
            path::EXTERNAL_PORT.pattern(),
            get(external::show_external).put(external::put_external).delete(external::delete_external),
        )
        .route(path::PORTS, get(ports::list_ports))
        .route(path::EVENTS, get(events::list_events))
        .route(path::HOST, get(daemon::show_host))
        .route(path::HOST_SETTINGS, get(host::show_settings).patch(host::change_settings))
        .route(path::HOST_TUNE, get(host::show_tune))
        .route(path::HOST_RESTORE, post(host::restore))
        .route(path::DAEMON, get(daemon::show_daemon))
        .route(path::UPGRADE_FABRIC, post(daemon::upgrade_fabric))
        .route(path::SHUTDOWN, post(daemon::shutdown))
        .route(path::METRICS, get(metrics::metrics))
        .route(path::OPENAPI, get(openapi::serve))
        .route_layer(from_fn_with_state(app.clone(), refusals::record))
        .fallback(body::unknown_path)
        .method_not_allowed_fallback(body::wrong_method)
        .with_state(app)
}

impl App {
    /// Returns the documents and the last observed state, each as a consistent copy.
    fn look(&self) -> (Arc<State>, Seen) {
        (self.store.state(), self.board.lock().clone())
    }

    /// Writes one document, logs the write, and wakes the loop. The write runs on a thread that may
    /// block on the disk.
    async fn write<F>(self: &Arc<Self>, decide: F) -> Result<Arc<State>, Failure>
    where
        F: FnOnce(&State) -> Result<Change, ApiError> + Send + 'static,
    {
        let app = self.clone();
        let written = tokio::task::spawn_blocking(move || {
            let (mut subject, mut what) = (String::new(), String::new());
            let mut verb = "written";
            let state = app.store.write(|state| {
                let change = decide(state)?;
                subject = format!("{}/{}", change.kind().as_str(), change.name());
                what = change.describe(&state.desired);
                if change.is_deletion() {
                    verb = "deleted";
                }
                Ok(change)
            })?;
            let kind = subject.split('/').next().unwrap_or_default();
            let message = format!("{what} (revision {})", state.revision);
            app.store.event(Level::Info, &subject, &format!("{kind}.{verb}"), &message);
            app.inbox.send(Message::Wake);
            Ok(state)
        });
        let written: Result<_, ApiError> =
            written.await.map_err(|error| Failure::internal("the write was interrupted", &error))?;
        Ok(written?)
    }
}

/// Returns the error for a name that does not exist.
fn not_found(kind: Kind, name: &Name) -> ApiError {
    let command = match kind {
        Kind::Vm => "taut vm list",
        Kind::VSwitch => "taut vswitch list",
        Kind::PortGroup => "taut portgroup list",
        Kind::Netns => "taut netns list",
        Kind::External => "taut port list",
        Kind::Host => "taut host settings",
    };
    ApiError::new(
        taut_api::error::ErrorKind::NotFound,
        format!("there is no {} `{name}`", kind.noun()),
        format!("`{command}` shows those that exist"),
    )
}

#[cfg(test)]
mod tests;
