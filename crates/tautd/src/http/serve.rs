//! Serving the API and the page on their sockets, to root and to the group that the roles file
//! names.

use std::fs::{Permissions, set_permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_api::event::Level;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::App;
use crate::access::caller::Caller;
use crate::access::listener::Callers;

/// Time that clients have at the daemon's end, to take their answers. One that does not finish its
/// request must not keep the daemon from ending.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Lets a group connect to the socket; root alone without one.
pub(crate) fn protect(socket: &Path, group: Option<u32>) -> io::Result<()> {
    // Nobody but root, until the group is set.
    set_permissions(socket, Permissions::from_mode(0o600))?;
    chown(socket, None, Some(group.unwrap_or(0)))?;
    set_permissions(socket, Permissions::from_mode(0o660))
}

/// Answers requests by a router until `end` completes, and then those that are under way.
pub(crate) async fn serve(
    listener: UnixListener,
    router: Router,
    app: Arc<App>,
    end: oneshot::Receiver<()>,
) -> io::Result<()> {
    let (closing, closed) = oneshot::channel::<()>();
    let callers = router.into_make_service_with_connect_info::<Caller>();
    let served = axum::serve(Callers::new(listener), callers).with_graceful_shutdown(async move {
        // An error means that the sender is gone, which is an end, too.
        let _ = end.await;
        app.captures.end_all();
        let _ = closing.send(());
    });
    let last_answers = async {
        let _ = closed.await;
        tokio::time::sleep(LAST_ANSWERS).await;
    };
    tokio::select! {
        served = served.into_future() => served,
        () = last_answers => {
            tracing::warn!("some clients did not take their answers within {LAST_ANSWERS:?}");
            Ok(())
        }
    }
}

/// Reads the roles file again at each SIGHUP.
pub(crate) fn read_roles_at_hangup(app: Arc<App>, sockets: Vec<PathBuf>) -> io::Result<JoinHandle<()>> {
    let mut hangups = signal(SignalKind::hangup())?;
    Ok(tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            let (app, sockets) = (app.clone(), sockets.clone());
            // Users and groups may come from a slow directory service. A panic has been printed.
            let _ = tokio::task::spawn_blocking(move || read_roles(&app, &sockets)).await;
        }
    }))
}

/// Reads the roles file again. A wrong one changes nothing and raises an event.
fn read_roles(app: &App, sockets: &[PathBuf]) {
    let read = app.roles.read_again().map_err(ApiError::from);
    let done = read.and_then(|members| {
        sockets.iter().try_for_each(|socket| {
            protect(socket, members.group).map_err(|error| {
                let message = format!("the group of {} cannot be set", socket.display());
                ApiError::new(
                    ErrorKind::Unavailable,
                    message,
                    "see whether another program has replaced the file",
                )
                .because(&error)
            })
        })
    });
    match done {
        Ok(()) => {
            let message = format!("the roles of {} are in force", app.roles.path().display());
            app.store.event(Level::Info, "daemon", "roles.read", &message);
        }
        Err(error) => {
            let message = format!("the roles stay as they were: {error}");
            app.store.event(Level::Error, "daemon", "roles.refused", &message);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use taut_tests::{Prerequisite, require};

    use super::*;

    #[test]
    fn the_socket_is_for_root_and_the_group_of_the_roles_file() {
        if !require(Prerequisite::Root) {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("tautd.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let found = || {
            let found = socket.metadata().unwrap();
            (found.uid(), found.gid(), found.mode() & 0o777)
        };
        protect(&socket, Some(4711)).unwrap();
        assert_eq!(found(), (0, 4711, 0o660));
        protect(&socket, None).unwrap();
        assert_eq!(found(), (0, 0, 0o660));
    }
}
