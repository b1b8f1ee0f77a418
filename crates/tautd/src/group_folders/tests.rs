use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;

use taut_tests::{Prerequisite, require};

use super::*;

/// Group of the tests.
const GROUP: u32 = 61_000;

/// A run directory, and the socket of the VM `m` in it.
struct Rig {
    dir: tempfile::TempDir,
    folders: GroupFolders,
    socket: PathBuf,
    vm: Name,
}

impl Rig {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (folders, socket) = (GroupFolders::at(dir.path()), dir.path().join("vmci.sock"));
        Self { dir, folders, socket, vm: "m".parse().unwrap() }
    }

    fn give(&self, group: u32) {
        self.folders.give(&self.vm, group, &self.socket).unwrap();
    }

    /// Returns the path of a file in the VM's folder.
    fn file(&self, name: &str) -> PathBuf {
        self.folders.folder(&self.vm).join(name)
    }
}

/// Returns owner, group and permissions.
fn access(path: &Path) -> (u32, u32, u32) {
    let found = fs::symlink_metadata(path).unwrap();
    (found.uid(), found.gid(), found.mode() & 0o7777)
}

#[test]
fn a_group_gets_a_sticky_folder_with_the_vms_socket() {
    if !require(Prerequisite::Root) {
        return;
    }
    let rig = Rig::new();
    rig.give(GROUP);
    assert_eq!(access(&rig.file("")), (0, GROUP, 0o1770));
    assert_eq!(access(&rig.dir.path().join("vmci")).2, 0o711);
    let refused = UnixStream::connect(rig.file(SOCKET)).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "the VM is off, its name is taken");

    for _ in 0..2 {
        let _ = fs::remove_file(&rig.socket);
        let listener = UnixListener::bind(&rig.socket).unwrap();
        rig.give(GROUP);
        let _client = UnixStream::connect(rig.folders.socket(&rig.vm)).unwrap();
        listener.accept().unwrap();
        assert_eq!(access(&rig.socket), (0, GROUP, 0o660));
    }
    assert_eq!(rig.folders.vms(), std::slice::from_ref(&rig.vm));
}

#[test]
fn what_is_taken_back_is_closed_and_removed() {
    if !require(Prerequisite::Root) {
        return;
    }
    let rig = Rig::new();
    let _listener = UnixListener::bind(&rig.socket).unwrap();
    rig.give(GROUP);
    fs::write(rig.file("vmci.sock_7"), "of a member").unwrap();
    rig.give(GROUP + 1);
    assert_eq!(access(&rig.file("")).1, GROUP + 1);
    assert!(!rig.file("vmci.sock_7").exists(), "the next group finds nothing of the last one");
    rig.folders.take_back(&rig.vm, &rig.socket).unwrap();
    assert_eq!(access(&rig.socket), (0, 0, 0o600));
    assert!(rig.folders.vms().is_empty());

    let base = rig.dir.path().join("vmci");
    fs::create_dir_all(base.join(".old-1/folder")).unwrap();
    fs::create_dir(base.join(".new-x")).unwrap();
    fs::write(base.join(".link-x"), "").unwrap();
    rig.folders.remove_hidden().unwrap();
    // A thread would remove what the next call makes.
    assert!(!base.join(".new-x").exists() && !base.join(".link-x").exists());
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while fs::read_dir(&base).unwrap().count() > 0 {
        assert!(std::time::Instant::now() < until, "all is removed");
        std::thread::yield_now();
    }
}

#[test]
fn a_folder_that_is_closed_keeps_what_members_have_in_it() {
    if !require(Prerequisite::Root) {
        return;
    }
    let rig = Rig::new();
    rig.folders.close(&rig.vm).unwrap();
    rig.give(GROUP);
    let program = UnixListener::bind(rig.file("vmci.sock_7")).unwrap();
    rig.folders.close(&rig.vm).unwrap();
    assert_eq!(access(&rig.file("")), (0, GROUP, 0o700));
    // The guest's connections go on.
    rig.folders.connect(&rig.vm, 7).unwrap();
    program.accept().unwrap();
    rig.give(GROUP);
    assert_eq!(access(&rig.file("")), (0, GROUP, 0o1770));
    assert!(rig.file("vmci.sock_7").exists());
}

#[test]
fn only_a_socket_of_the_folder_itself_is_connected_to() {
    if !require(Prerequisite::Root) {
        return;
    }
    let rig = Rig::new();
    rig.give(GROUP);
    let elsewhere = rig.dir.path().join("private.sock");
    let _private = UnixListener::bind(&elsewhere).unwrap();
    let link = io::Error::from(rustix::io::Errno::LOOP).kind();
    let connect = |port| rig.folders.connect(&rig.vm, port).map_err(|error| error.kind());

    assert_eq!(connect(1).unwrap_err(), io::ErrorKind::NotFound);
    symlink(&elsewhere, rig.file("vmci.sock_2")).unwrap();
    assert_eq!(connect(2).unwrap_err(), link);
    fs::hard_link(&elsewhere, rig.file("vmci.sock_3")).unwrap();
    assert_eq!(connect(3).unwrap_err(), io::ErrorKind::InvalidInput);
    fs::write(rig.file("vmci.sock_4"), "").unwrap();
    assert_eq!(connect(4).unwrap_err(), io::ErrorKind::InvalidInput);
    symlink(rig.dir.path(), rig.file("folder")).unwrap();
    let program = UnixListener::bind(rig.file("vmci.sock_5")).unwrap();
    connect(5).unwrap();
    program.accept().unwrap();
    drop(program);
    assert_eq!(connect(5).unwrap_err(), io::ErrorKind::ConnectionRefused);
}
