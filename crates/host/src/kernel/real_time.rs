//! Permission to use real-time scheduling: privileges, and control groups without real-time budget.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use super::scheduler::Class;

/// Root of the CPU controller's groups (cgroup v1), below the host's root.
const GROUPS: &str = "sys/fs/cgroup/cpu";

/// Why this process may not use real-time scheduling.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Its control group has no real-time budget (`CONFIG_RT_GROUP_SCHED`).
    #[error("this process's control group has no real-time budget: {} is {content}", file.display())]
    Group {
        /// The file that holds the budget.
        file: PathBuf,
        /// The file's content, in microseconds.
        content: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The kernel refused, for example for lack of privileges.
    #[error("the kernel refuses real-time scheduling to this process")]
    Kernel(#[source] io::Error),
}

impl Refused {
    /// Returns what the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Group { file, .. } => format!(
                "leave the group, in the shell that runs this: `echo $$ > /{GROUPS}/cgroup.procs`; or give \
                 it a budget, after the groups above it: `echo 50000 > {}`",
                file.display()
            ),
            Self::Kernel(_) => {
                "run this as root; in a container, with the capability CAP_SYS_NICE".to_owned()
            }
        }
    }
}

/// Tests whether this process and its children may use real-time scheduling. A short-lived thread
/// tries it.
///
/// # Errors
/// Returns the reason if not.
pub fn allowed() -> Result<(), Refused> {
    let tried = thread::scope(|scope| scope.spawn(Class::take_real_time).join());
    let refused = |source| match group_without_budget(Path::new("/"), Path::new("proc/self/cgroup")) {
        Some((file, content)) => Refused::Group { file, content: content.trim().to_owned(), source },
        None => Refused::Kernel(source),
    };
    tried.unwrap_or_else(|_| Err(io::Error::other("the thread that tried it panicked"))).map_err(refused)
}

/// Finds the group of a process, given the path of its `cgroup` file, if it has no real-time
/// budget. Returns the budget's file and its content.
///
/// With `CONFIG_RT_GROUP_SCHED` every new group of cgroup v1 below the root starts with none.
pub(crate) fn group_without_budget(root: &Path, process: &Path) -> Option<(PathBuf, String)> {
    let groups = fs::read_to_string(root.join(process)).ok()?;
    let of_cpu = |line: &str| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|name| name == "cpu").then(|| path.trim_matches('/').to_owned())
    };
    let group = groups.lines().find_map(of_cpu).filter(|path| !path.is_empty())?;
    let file = root.join(GROUPS).join(group).join("cpu.rt_runtime_us");
    let content = fs::read_to_string(&file).ok()?;
    (content.trim() == "0").then_some((file, content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_without_real_time_budget_is_found() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join(GROUPS).join("system/jobs");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("cpu.rt_runtime_us"), "0\n").unwrap();
        let process = |groups: &str| {
            fs::write(root.path().join("cgroup"), groups).unwrap();
            group_without_budget(root.path(), Path::new("cgroup"))
        };
        let found = process("3:cpuset:/\n1:cpu,cpuacct:/system/jobs\n0::/\n");
        assert_eq!(found, Some((dir.join("cpu.rt_runtime_us"), "0\n".to_owned())));
        assert_eq!(process("1:cpu,cpuacct:/\n"), None, "the root group");
        assert_eq!(process("3:cpuset:/system/jobs\n0::/system/jobs\n"), None, "of another controller");
        fs::write(dir.join("cpu.rt_runtime_us"), "50000\n").unwrap();
        assert_eq!(process("1:cpu:/system/jobs\n"), None, "it has a budget");
    }

    #[test]
    fn a_refusal_comes_with_a_hint() {
        let source = || io::Error::from_raw_os_error(libc::EPERM);
        let file = PathBuf::from("/sys/fs/cgroup/cpu/jobs/cpu.rt_runtime_us");
        let group = Refused::Group { file, content: "0".to_owned(), source: source() };
        assert_eq!(
            group.to_string(),
            "this process's control group has no real-time budget: /sys/fs/cgroup/cpu/jobs/cpu.rt_runtime_us is 0"
        );
        assert!(group.hint().contains("echo 50000 > /sys/fs/cgroup/cpu/jobs/cpu.rt_runtime_us"));
        assert!(Refused::Kernel(source()).hint().contains("CAP_SYS_NICE"));
    }

    #[test]
    fn the_test_for_permission_leaves_this_thread_unchanged() {
        let own = Path::new("/proc/thread-self");
        let class = Class::of(own).unwrap();
        match allowed() {
            Ok(()) => {}
            Err(Refused::Group { source, .. } | Refused::Kernel(source)) => {
                assert_eq!(source.kind(), io::ErrorKind::PermissionDenied);
            }
        }
        assert_eq!(Class::of(own), Some(class));
    }
}
