//! The folders that groups of users have for VMCI devices.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use taut_api::Name;
use taut_api::event::Level;
use taut_plan::Owner;

use super::Reconciler;
use crate::access::ids::group_id;
use crate::group_folders::GroupFolders;

/// Time after which an operation that failed is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// The folders, and the numbers of the groups that have one. A group is looked up once: a directory
/// service may be slow.
#[derive(Debug)]
pub(super) struct SharedFolders {
    folders: GroupFolders,
    groups: BTreeMap<Name, u32>,
}

impl SharedFolders {
    /// The folders of this run directory. What an earlier daemon left half done is removed.
    pub(super) fn at(run_dir: &Path) -> Self {
        let folders = GroupFolders::at(run_dir);
        if let Err(error) = folders.remove_hidden() {
            tracing::warn!(%error, "closed folders of groups are not removed");
        }
        Self { folders, groups: BTreeMap::new() }
    }

    fn group(&mut self, name: &Name) -> io::Result<u32> {
        if let Some(group) = self.groups.get(name) {
            return Ok(*group);
        }
        let group = group_id(name.as_str()).map_err(io::Error::other)?;
        self.groups.insert(name.clone(), group);
        Ok(group)
    }
}

impl Reconciler {
    /// Gives the group that a VM's VMCI device names its folder, and takes back all others.
    pub(super) fn keep_group_folders(&mut self) {
        let state = self.store.state();
        let group = |vm: &Name| state.desired.vms.get(vm)?.vm.vmci.as_ref()?.group.clone();
        for vm in self.shared.folders.vms().into_iter().filter(|vm| group(vm).is_none()) {
            let taken = self.shared.folders.take_back(&vm, &self.vms.paths(&vm).vmci());
            self.report_group_folder(&vm, taken);
        }
        for (vm, group) in state.desired.vms.keys().filter_map(|vm| Some((vm, group(vm)?))) {
            let attempt = format!("{}/{group}", operation(vm));
            if !self.retries.is_due(&attempt) {
                continue;
            }
            let socket = self.vms.paths(vm).vmci();
            let given = self.shared.group(&group);
            let given = given.and_then(|group| self.shared.folders.give(vm, group, &socket));
            if given.is_err() {
                self.retries.delay(&attempt, RETRY);
                // A group that cannot have the folder leaves none to the last one.
                let _ = self.shared.folders.take_back(vm, &socket);
            }
            self.report_group_folder(vm, given);
        }
    }

    fn report_group_folder(&self, vm: &Name, done: io::Result<()>) {
        let operation = operation(vm);
        let Err(error) = done else {
            self.board.lock().problems.remove(&operation);
            return;
        };
        let problem = format!("the host's sockets of its group are not as wanted: {error}");
        if self.board.is_new_problem(&operation, &problem) {
            let owner = Owner::Vmci(vm.clone()).to_string();
            self.store.event(Level::Warning, &owner, "vmci.no-group", &problem);
        }
    }
}

fn operation(vm: &Name) -> String {
    format!("{}/group", Owner::Vmci(vm.clone()))
}
