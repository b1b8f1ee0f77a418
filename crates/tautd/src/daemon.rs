//! Start of the daemon: from its arguments to a running reconcile loop and HTTP API.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_api::placement::Numbers;
use taut_api::token::RemoteInfo;
use taut_host::enforce::Enforcer;
use taut_host::kernel::topology::{self, Topology};
use taut_host::ledger::Ledger;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::access::audit::Audit;
use crate::access::roles::Roles;
use crate::access::sites::Way;
use crate::args::Args;
use crate::board::Board;
use crate::capture::Captures;
use crate::confine::{Confiner, USERS, Users};
use crate::console::{Console, LogFolder};
use crate::fabric::{Fabric, Paths, counters::Counters};
use crate::http::{self, App};
use crate::inbox::{Inbox, Message};
use crate::page;
use crate::process::OomScore;
use crate::reconcile::{Parts, Reconciler};
use crate::remote::Remote;
use crate::statistics::{Sources, Statistics};
use crate::store::Store;
use crate::vms::Vms;

/// Wanted limit of open descriptors. A vhost-user session has up to a dozen.
const OPEN_FILES: u64 = 65_536;

/// Time that a killed daemon may hold its lock. A child that it was starting shares the lock until
/// it runs its program.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// Runs until a signal or a user ends the daemon.
pub(crate) fn run(args: &Args) -> Result<(), ApiError> {
    if !rustix::process::geteuid().is_root() {
        return Err(ApiError::new(
            ErrorKind::Unavailable,
            "tautd has to run as root: it makes TAP devices and network namespaces and starts VMs",
            "start it with sudo, or as a system service",
        ));
    }
    if let Some(scope) = args.cpuset.as_deref().filter(|scope| !scope.join("cgroup.procs").exists()) {
        return Err(ApiError::new(
            ErrorKind::Invalid,
            format!("--cpuset names {}, which is no control group", scope.display()),
            "make it first (mkdir, in a mounted cgroup file system), or leave --cpuset out: then all tasks of the host make room for latency-sensitive VMs",
        ));
    }
    make_run_dir(&args.run_dir).map_err(|error| {
        let what = format!("make the run directory {}", args.run_dir.display());
        cannot_unless(&what, "give it a --run-dir that can be written to", &error)
    })?;
    // What the daemon and its children make is for root alone, unless more is given explicitly.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let run_dir =
        fs::canonicalize(&args.run_dir).map_err(|error| cannot("find the run directory", &error))?;
    let _lock = lock(&run_dir)?;
    OomScore::SERVICE.set(std::process::id());
    raise_open_files();
    let runtime = http::threads::start().map_err(|error| cannot("start its threads", &error))?;
    runtime.block_on(serve(args, run_dir))
}

/// Runs the reconcile loop on a thread of its own, and the HTTP API on this one, until the loop
/// ends.
async fn serve(args: &Args, run_dir: PathBuf) -> Result<(), ApiError> {
    let (inbox, messages) = Inbox::new();
    let (parts, mut app) = prepare(args, run_dir, &inbox)?;
    let remote = remote(args, &app.state_dir)?;
    app.remote.info = remote.as_ref().map(Remote::info);
    let sockets = ["tautd.sock", "page.sock"].map(|name| app.run_dir.join(name));
    let group = app.roles.members().group;
    let [listener, page_listener] = [listen(&sockets[0], group)?, listen(&sockets[1], group)?];
    let store = app.store.clone();
    parts.vms.console().start(store.clone()).map_err(|error| cannot("keep logs", &error))?;
    let statistics = app.statistics.clone();
    let sources = Sources { store: store.clone(), board: app.board.clone(), counters: app.counters.clone() };
    statistics.start(sources).map_err(|error| cannot("take samples", &error))?;
    let reconciler = Reconciler::new(parts);
    let ((ended, end), (page_ended, page_end)) = (oneshot::channel(), oneshot::channel());
    let thread = std::thread::Builder::new().name("reconcile".into()).spawn(move || {
        let result = reconciler.run(&messages);
        // The receivers wait for this.
        let _ = (ended.send(()), page_ended.send(()));
        result
    });
    let thread = thread.map_err(|error| cannot("start its reconcile loop", &error))?;
    tracing::info!(socket = %sockets[0].display(), page = %sockets[1].display(), "answering");
    let until_signal = signals(inbox)?;
    let app = Arc::new(app);
    let until_end = http::read_roles_at_hangup(app.clone(), sockets.to_vec())
        .map_err(|error| cannot("listen for signals", &error))?;
    let remote = remote.map(|remote| remote.start(app.clone())).transpose();
    let remote = remote.map_err(|error| cannot("start the thread for access over TCP", &error))?;
    if let Some(RemoteInfo { address, fingerprint, .. }) = &app.remote.info {
        tracing::info!(%address, fingerprint, "answering over TCP");
    }
    let answered = http::serve(listener, http::socket_router(app.clone()), app.clone(), end);
    let shown = http::serve(page_listener, page::router(&app, Way::Page), app.clone(), page_end);
    tokio::try_join!(answered, shown).map_err(|error| cannot("answer requests", &error))?;
    if let Some(remote) = remote {
        // Ending may take seconds, in which other tasks go on.
        let ended = tokio::task::spawn_blocking(|| remote.end()).await;
        ended.map_err(|error| cannot("end access over TCP", &error))?;
    }
    until_signal.abort();
    until_end.abort();
    for socket in &sockets {
        let _ = fs::remove_file(socket);
    }
    // The fabric's supervisor keeps the store open.
    store.flush_events();
    statistics.write();
    let fault = |message: String, hint| Err(ApiError::new(ErrorKind::Internal, message, hint));
    match thread.join() {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => fault(
            format!("the reconcile loop ended: {error:#}"),
            "report this fault; VMs and their traffic go on",
        ),
        Err(_) => fault(
            "the reconcile loop panicked".to_owned(),
            "report this fault with the lines above; VMs and their traffic go on",
        ),
    }
}

/// Prepares the access over TCP, if it is wanted.
fn remote(args: &Args, state_dir: &Path) -> Result<Option<Remote>, ApiError> {
    let Some(listen) = args.listen else { return Ok(None) };
    let files = args.tls_cert.clone().zip(args.tls_key.clone());
    Remote::open(listen, files, state_dir).map(Some)
}

/// Opens the store and reads what earlier daemons left: VMs, changes on the host, counters.
fn prepare(args: &Args, run_dir: PathBuf, inbox: &Inbox) -> Result<(Parts, App), ApiError> {
    let roles = Arc::new(Roles::open(args.roles.as_deref())?);
    let host = topology::read(Path::new("/")).map_err(|error| cannot("read this host", &error))?;
    let online = Numbers(host.cpus.iter().map(|cpu| cpu.id).collect());
    args.check_cpus(&online, |cpu| Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}")).exists())?;
    let mut store = Store::open(&args.state_dir)
        .map_err(|error| cannot_unless("open its store", &error.hint(), &error))?;
    store.set_workers(args.workers(), args.socket_worker());
    let state_dir =
        fs::canonicalize(&args.state_dir).map_err(|error| cannot("find the state directory", &error))?;
    let (store, board) = (Arc::new(store), Arc::new(Board::default()));
    note(&board, host);
    let logs = std::path::absolute(args.log_dir()).map(LogFolder::at);
    let logs = logs.map_err(|error| cannot("find the directory of logs", &error))?;
    let log_lock = lock_logs(&logs)?;
    logs.path().clone_into(&mut board.lock().log_dir);
    let counters = Counters::open(&run_dir.join("counters"));
    let counters = Arc::new(counters.map_err(|error| cannot("make the counters file", &error))?);
    let libexec = libexec(args)?;
    let confiner = Confiner::new(&libexec, Users::of_host(args.first_user)?);
    let console = Console::new(&run_dir, &libexec, logs, Some(log_lock), confiner.clone())
        .map_err(|error| cannot("prepare for the console process", &error))?;
    let vms = Vms::adopt(&run_dir, &libexec, confiner.clone(), console.clone(), inbox.clone())
        .map_err(|error| cannot("look for running VMs", &error))?;
    let paths = Paths { run_dir: run_dir.clone(), libexec, counters: counters.clone(), confiner, console };
    paths.reserve_record().map_err(|error| cannot("make room for the fabric's record", &error))?;
    let fabric = Fabric::new(paths, store.clone(), board.clone(), inbox.clone())
        .map_err(|error| cannot("prepare for the fabric", &error))?;
    let ledger = Ledger::new(Path::new("/"), &state_dir);
    let enforcer = Enforcer::new(Path::new("/"), args.cpuset.as_deref(), &ledger)
        .map_err(|error| cannot("read what was changed on the host", &error))?;
    let parts = Parts {
        store: store.clone(),
        board: board.clone(),
        fabric,
        counters: counters.clone(),
        vms,
        enforcer,
        inbox: inbox.clone(),
        run_dir: run_dir.clone(),
    };
    let app = App {
        store,
        board,
        counters,
        statistics: Arc::new(Statistics::open(&state_dir, args.history)),
        inbox: inbox.clone(),
        refusals: http::RefusalEvents::by(Instant::now),
        checks: http::HostChecks::default(),
        roles,
        audit: Audit::start(&state_dir).map_err(|error| cannot("open its audit record", &error))?,
        forbidden: AtomicU64::new(0),
        remote: http::RemoteState::default(),
        captures: Captures::default(),
        run_dir,
        state_dir,
    };
    Ok((parts, app))
}

/// Notes the host's resources on the board.
fn note(board: &Board, host: Topology) {
    let mut seen = board.lock();
    seen.observed.host.memory_total = host.memory_total;
    let bare = host.nodes.iter().filter(|node| node.memory.0 == 0);
    seen.observed.host.bare_nodes = bare.map(|node| node.id).collect();
    seen.observed.host.cpus = host.cpus;
    seen.observed.host.cpu_mhz = topology::nominal_mhz(Path::new("/")).unwrap_or(0);
}

/// Makes the run directory, unless there is one. Others may pass through a new one, to sockets that
/// are open to them, and cannot list it.
fn make_run_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(dir)?;
    fs::set_permissions(dir, Permissions::from_mode(0o711))
}

/// Opens the lock file. Whoever may open it can lock it, so only root may.
fn open_lock(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let file = File::options().create(true).append(true).mode(0o600).custom_flags(flags).open(path)?;
    // An earlier version made it readable for all.
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Locks the run directory, so that only one daemon works on it.
fn lock(run_dir: &Path) -> Result<File, ApiError> {
    let socket = run_dir.join("tautd.sock");
    lock_or(&run_dir.join("tautd.lock"), || {
        ApiError::new(
            ErrorKind::Conflict,
            format!("another tautd runs on {}", run_dir.display()),
            format!(
                "use that one, end it (taut --socket {} shutdown), or give this one its own --run-dir, \
                 --state-dir and --log-dir, and a --first-user that is at least {USERS} higher or lower",
                socket.display()
            ),
        )
    })
}

/// Makes and locks the directory of logs, because a daemon removes the logs of VMs that it does not
/// have.
fn lock_logs(logs: &LogFolder) -> Result<File, ApiError> {
    logs.make().map_err(|error| {
        let what = format!("make the directory of logs {}", logs.path().display());
        cannot_unless(&what, "give it a --log-dir that can be written to", &error)
    })?;
    lock_or(&logs.path().join("tautd.lock"), || {
        ApiError::new(
            ErrorKind::Conflict,
            format!("another tautd has its logs in {}", logs.path().display()),
            format!(
                "give this one its own --log-dir, and a --first-user that is at least {USERS} higher or lower"
            ),
        )
    })
}

/// Locks a file. Returns the given error if another daemon has locked it.
fn lock_or(path: &Path, is_locked: impl Fn() -> ApiError) -> Result<File, ApiError> {
    let file = open_lock(path).map_err(|error| cannot(&format!("make {}", path.display()), &error))?;
    let end = Instant::now() + LOCK_PATIENCE;
    while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        if Instant::now() > end {
            return Err(is_locked());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(file)
}

/// Listens on a socket of the API or the page, for root and a group. The caller holds the lock, so
/// an existing socket is stale.
fn listen(path: &Path, group: Option<u32>) -> Result<UnixListener, ApiError> {
    // The file may not exist; any other error shows at the next step.
    let _ = fs::remove_file(path);
    let listener = UnixListener::bind(path).map_err(|error| {
        let hint = "give it a --run-dir that can be written to, with a short path: a Unix socket's has at most 107 bytes";
        cannot_unless(&format!("listen at {}", path.display()), hint, &error)
    })?;
    http::protect(path, group).map_err(|error| cannot("protect its socket", &error))?;
    Ok(listener)
}

/// Ends the daemon on SIGTERM and SIGINT; VMs and the fabric go on.
fn signals(inbox: Inbox) -> Result<tokio::task::JoinHandle<()>, ApiError> {
    let stream = |kind| signal(kind).map_err(|error| cannot("listen for signals", &error));
    let (mut terminate, mut interrupt) = (stream(SignalKind::terminate())?, stream(SignalKind::interrupt())?);
    Ok(tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        let (done, _) = oneshot::channel();
        inbox.send(Message::Shutdown { everything: false, done });
    }))
}

fn libexec(args: &Args) -> Result<PathBuf, ApiError> {
    if let Some(dir) = &args.libexec {
        return Ok(dir.clone());
    }
    let own = std::env::current_exe().map_err(|error| cannot("find its own program", &error))?;
    Ok(own.parent().unwrap_or(Path::new("/")).to_owned())
}

fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let current = limit.maximum.map_or(OPEN_FILES, |maximum| maximum.min(OPEN_FILES));
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limit }) {
        tracing::warn!(%error, "the limit of open files stays at {:?}", limit.current);
    }
}

fn cannot(what: &str, error: &(dyn std::error::Error + 'static)) -> ApiError {
    cannot_unless(what, "see the cause", error)
}

fn cannot_unless(what: &str, hint: &str, error: &(dyn std::error::Error + 'static)) -> ApiError {
    ApiError::new(ErrorKind::Unavailable, format!("tautd cannot {what}"), hint).because(error)
}
