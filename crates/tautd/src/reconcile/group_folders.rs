//! The folders that groups of users have for VMCI devices.
//!
//! Groups are looked up on threads of their own, because a directory service may not answer. As
//! long as the number of a group is not known, its folder stays as the last daemon has left it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::thread::Builder;
use std::time::Duration;

use taut_api::Name;
use taut_api::event::Level;
use taut_plan::Owner;

use super::Reconciler;
use super::errand::{Answer, Errand, PATIENCE};
use crate::access::ids::{IdError, group_id};
use crate::board::group_document;
use crate::group_folders::GroupFolders;
use crate::inbox::Inbox;

/// Time after which an operation that failed is tried again.
const RETRY: Duration = Duration::from_secs(10);
/// Maximum number of look-ups at a time.
const MOST_LOOK_UPS: usize = 16;

/// The folders, and the groups that have one.
#[derive(Debug)]
pub(super) struct SharedFolders {
    folders: GroupFolders,
    groups: BTreeMap<Name, Group>,
    /// The group to which this daemon has given the folder of each VM.
    given: BTreeMap<Name, Name>,
    look_up: fn(&str) -> Result<u32, IdError>,
}

/// The number of a group, which is looked up once.
#[derive(Debug)]
enum Group {
    Awaited(Errand<Result<u32, IdError>>),
    Known(u32),
}

/// Why a group does not have its folder.
#[derive(Debug, thiserror::Error)]
enum NotGiven {
    #[error(transparent)]
    Group(#[from] IdError),
    #[error("the group `{0}` could not be looked up within {s} s", s = PATIENCE.as_secs())]
    Silent(Name),
    #[error("{MOST_LOOK_UPS} groups are being looked up already")]
    Busy,
    #[error(transparent)]
    Folder(#[from] io::Error),
}

impl SharedFolders {
    /// The folders of this run directory. What an earlier daemon left half done is removed.
    pub(super) fn at(run_dir: &Path) -> Self {
        let folders = GroupFolders::at(run_dir);
        if let Err(error) = folders.remove_hidden() {
            tracing::warn!(%error, "closed folders of groups are not removed");
        }
        Self { folders, groups: BTreeMap::new(), given: BTreeMap::new(), look_up: group_id }
    }

    /// Gives a group the folder of a VM. Returns `None` until the group's number is known.
    fn give(
        &mut self,
        vm: &Name,
        group: &Name,
        socket: &Path,
        inbox: &Inbox,
    ) -> Option<Result<(), NotGiven>> {
        match self.number(group, inbox)? {
            Ok(number) => {
                let given = self.folders.give(vm, number, socket);
                if given.is_ok() {
                    self.given.insert(vm.clone(), group.clone());
                }
                Some(given.map_err(NotGiven::from))
            }
            Err(error) => {
                if self.given.get(vm).is_some_and(|given| given != group) {
                    // A group without the folder leaves none to the former one.
                    if let Err(error) = self.take_back(vm, socket) {
                        return Some(Err(error.into()));
                    }
                } else if matches!(error, NotGiven::Group(IdError::Unknown(..)))
                    && let Err(error) = self.folders.close(vm)
                {
                    return Some(Err(error.into()));
                }
                Some(Err(error))
            }
        }
    }

    fn take_back(&mut self, vm: &Name, socket: &Path) -> io::Result<()> {
        self.folders.take_back(vm, socket)?;
        self.given.remove(vm);
        Ok(())
    }

    /// Returns the number of a group; `None` while it is looked up.
    fn number(&mut self, name: &Name, inbox: &Inbox) -> Option<Result<u32, NotGiven>> {
        let answer = match self.groups.get(name) {
            None => return self.begin_look_up(name, inbox).err().map(Err),
            Some(Group::Known(number)) => return Some(Ok(*number)),
            Some(Group::Awaited(errand)) => errand.result(),
        };
        let result = match answer {
            Answer::Running => return None,
            Answer::Silent => return Some(Err(NotGiven::Silent(name.clone()))),
            Answer::Panicked => Err(NotGiven::Folder(io::Error::other("its look-up has panicked"))),
            Answer::Done(result) => result.map_err(NotGiven::from),
        };
        match &result {
            Ok(number) => drop(self.groups.insert(name.clone(), Group::Known(*number))),
            Err(_) => drop(self.groups.remove(name)),
        }
        Some(result)
    }

    /// Begins to look up a group. The thread shares the daemon's table of descriptors, because
    /// libraries of directory services keep descriptors for later calls by other threads.
    fn begin_look_up(&mut self, name: &Name, inbox: &Inbox) -> Result<(), NotGiven> {
        let awaited = self.groups.values().filter(|group| matches!(group, Group::Awaited(_)));
        if awaited.count() >= MOST_LOOK_UPS {
            return Err(NotGiven::Busy);
        }
        let (errand, delivery) = Errand::begin(inbox);
        let (look_up, text) = (self.look_up, name.to_string());
        let work = move || drop(delivery.deliver(look_up(&text)));
        Builder::new().name("group".into()).spawn(work)?;
        self.groups.insert(name.clone(), Group::Awaited(errand));
        Ok(())
    }
}

impl Reconciler {
    /// Gives the group that a VM's VMCI device names its folder, and takes back all others.
    pub(super) fn keep_group_folders(&mut self) {
        let state = self.store.state();
        let group = |vm: &Name| state.desired.vms.get(vm)?.vm.vmci.as_ref()?.group.clone();
        let mut concerned = BTreeSet::new();
        for vm in self.shared.folders.vms().into_iter().filter(|vm| group(vm).is_none()) {
            let taken = self.shared.take_back(&vm, &self.vms.paths(&vm).vmci());
            self.report_group_folder(&vm, taken);
            concerned.insert(group_document(&vm));
        }
        for (vm, group) in state.desired.vms.keys().filter_map(|vm| Some((vm, group(vm)?))) {
            concerned.insert(group_document(vm));
            let attempt = format!("{}/{group}", group_document(vm));
            if !self.retries.is_due(&attempt) {
                continue;
            }
            let socket = self.vms.paths(vm).vmci();
            let Some(given) = self.shared.give(vm, &group, &socket, &self.inbox) else { continue };
            if given.is_err() {
                self.retries.delay(&attempt, RETRY);
            }
            self.report_group_folder(vm, given);
        }
        self.board.lock().forget_group_problems(&concerned);
    }

    fn report_group_folder(&self, vm: &Name, done: Result<(), impl Into<anyhow::Error>>) {
        let document = group_document(vm);
        let Err(error) = done else {
            self.board.lock().problems.remove(&document);
            return;
        };
        let problem = format!("the host's sockets of its group are not as wanted: {:#}", error.into());
        if self.board.is_new_problem(&document, &problem) {
            let owner = Owner::Vmci(vm.clone()).to_string();
            self.store.event(Level::Warning, &owner, "vmci.no-group", &problem);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;
    use std::path::PathBuf;
    use std::sync::mpsc::Receiver;

    use taut_tests::{Prerequisite, require};

    use super::*;
    use crate::inbox::Message;

    /// The VM `m` and its group `staff`.
    struct Rig {
        dir: tempfile::TempDir,
        inbox: Inbox,
        messages: Receiver<Message>,
    }

    impl Rig {
        fn new() -> Self {
            let (inbox, messages) = Inbox::new();
            Self { dir: tempfile::tempdir().unwrap(), inbox, messages }
        }

        /// Returns the folders of a daemon whose directory service answers in this way.
        fn daemon(&self, look_up: fn(&str) -> Result<u32, IdError>) -> SharedFolders {
            SharedFolders { look_up, ..SharedFolders::at(self.dir.path()) }
        }

        fn give(&self, folders: &mut SharedFolders, group: &str) -> Result<(), String> {
            let (vm, group) = ("m".parse().unwrap(), group.parse().unwrap());
            loop {
                if let Some(given) = folders.give(&vm, &group, &self.path("vmci.sock"), &self.inbox) {
                    return given.map_err(|error| format!("{:#}", anyhow::Error::from(error)));
                }
                self.messages.recv_timeout(Duration::from_secs(20)).unwrap();
            }
        }

        fn path(&self, file: &str) -> PathBuf {
            self.dir.path().join(file)
        }

        /// Returns group and mode of the folder.
        fn access(&self) -> (u32, u32) {
            let found = fs::metadata(self.path("vmci/m")).unwrap();
            (found.gid(), found.mode() & 0o7777)
        }
    }

    fn answers(group: &str) -> Result<u32, IdError> {
        if group == "staff" { Ok(61_020) } else { fails(group) }
    }

    fn fails(group: &str) -> Result<u32, IdError> {
        Err(IdError::LookUp("group", group.to_owned(), nix::Error::EIO))
    }

    fn knows_none(group: &str) -> Result<u32, IdError> {
        Err(IdError::Unknown("group", group.to_owned()))
    }

    #[test]
    fn what_members_have_stays_while_the_directory_service_is_down() {
        if !require(Prerequisite::Root) {
            return;
        }
        let rig = Rig::new();
        rig.give(&mut rig.daemon(answers), "staff").unwrap();
        fs::write(rig.path("vmci/m/vmci.sock_7"), "").unwrap();
        let mut next = rig.daemon(fails);
        let error = rig.give(&mut next, "staff").unwrap_err();
        assert!(error.contains("the group `staff` cannot be looked up: EIO"), "{error}");
        assert_eq!(rig.access(), (61_020, 0o1770));
        // A service that is down may answer that there is no such group.
        rig.give(&mut rig.daemon(knows_none), "staff").unwrap_err();
        assert_eq!(rig.access(), (61_020, 0o700));
        next.look_up = answers;
        rig.give(&mut next, "staff").unwrap();
        assert_eq!(rig.access(), (61_020, 0o1770));
        assert!(rig.path("vmci/m/vmci.sock_7").exists());

        // Another group gets nothing, and leaves nothing to this one.
        next.look_up = fails;
        rig.give(&mut next, "others").unwrap_err();
        assert!(!rig.path("vmci/m").exists());
    }

    #[test]
    fn a_folder_stays_when_its_socket_cannot_be_linked() {
        if !require(Prerequisite::Root) {
            return;
        }
        let rig = Rig::new();
        let mut folders = rig.daemon(answers);
        rig.give(&mut folders, "staff").unwrap();
        fs::write(rig.path("vmci/m/vmci.sock_7"), "").unwrap();
        // Folders have no hard links.
        fs::create_dir(rig.path("vmci.sock")).unwrap();
        rig.give(&mut folders, "staff").unwrap_err();
        assert!(rig.path("vmci/m/vmci.sock_7").exists());
    }

    #[test]
    fn a_directory_service_that_does_not_answer_holds_up_nothing() {
        let rig = Rig::new();
        let mut folders = rig.daemon(|_| {
            loop {
                std::thread::park();
            }
        });
        let name: Name = "staff".parse().unwrap();
        assert!(folders.number(&name, &rig.inbox).is_none());
        assert!(folders.number(&name, &rig.inbox).is_none());
        let Some(Group::Awaited(errand)) = folders.groups.get_mut(&name) else { panic!("it is looked up") };
        errand.make_silent();
        let error = folders.number(&name, &rig.inbox).unwrap().unwrap_err().to_string();
        assert_eq!(error, "the group `staff` could not be looked up within 10 s");
        for number in 1..MOST_LOOK_UPS {
            assert!(folders.number(&format!("g{number}").parse().unwrap(), &rig.inbox).is_none());
        }
        let error = folders.number(&"more".parse().unwrap(), &rig.inbox).unwrap().unwrap_err();
        assert!(matches!(error, NotGiven::Busy), "{error}");
    }
}
