//! Whether this process may have the real-time class, and what keeps it from that: privileges, or a control group without a share of it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use crate::scheduler::Class;

/// The control groups that share the CPU out, below the host's root (cgroup v1).
const GROUPS: &str = "sys/fs/cgroup/cpu";

/// Why no thread of this process can be put into the real-time class.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Its control group has no share of it (`CONFIG_RT_GROUP_SCHED`).
    #[error("this process's control group has no real-time: {} is {content}", file.display())]
    Group {
        /// The file that says so.
        file: PathBuf,
        /// What it contains, in microseconds.
        content: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Something else.
    #[error("the kernel refuses the real-time class to this process")]
    Kernel(#[source] io::Error),
}

impl Refused {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Group { file, .. } => format!(
                "leave the group, in the shell that this is run from: `echo $$ > /{GROUPS}/cgroup.procs`; or give it some, and the groups \
                 above it first: `echo 50000 > {}`",
                file.display()
            ),
            Self::Kernel(_) => {
                "run this as root; in a container, with the capability CAP_SYS_NICE".to_owned()
            }
        }
    }
}

/// May threads of this process, and programs that it starts, go before ordinary ones? Tried by a thread that does nothing else.
///
/// # Errors
/// When not; with the reason.
pub fn allowed() -> Result<(), Refused> {
    let tried = thread::scope(|scope| scope.spawn(Class::take_first).join());
    let refused = |source| match without(Path::new("/"), Path::new("proc/self/cgroup")) {
        Some((file, content)) => Refused::Group { file, content: content.trim().to_owned(), source },
        None => Refused::Kernel(source),
    };
    tried.unwrap_or_else(|_| Err(io::Error::other("the thread that tried it panicked"))).map_err(refused)
}

/// The file that gives a process's group no real-time at all, and what it contains; the process is told by its file `cgroup`. That is
/// any group of cgroup v1 but the topmost one, where the kernel shares real-time out (`CONFIG_RT_GROUP_SCHED`).
pub(crate) fn without(root: &Path, process: &Path) -> Option<(PathBuf, String)> {
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
    fn a_group_without_real_time_is_found_and_named() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join(GROUPS).join("system/jobs");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("cpu.rt_runtime_us"), "0\n").unwrap();
        let process = |groups: &str| {
            fs::write(root.path().join("cgroup"), groups).unwrap();
            without(root.path(), Path::new("cgroup"))
        };
        let found = process("3:cpuset:/\n1:cpu,cpuacct:/system/jobs\n0::/\n");
        assert_eq!(found, Some((dir.join("cpu.rt_runtime_us"), "0\n".to_owned())));
        assert_eq!(process("1:cpu,cpuacct:/\n"), None, "the topmost group");
        assert_eq!(process("3:cpuset:/system/jobs\n0::/system/jobs\n"), None, "of another controller");
        fs::write(dir.join("cpu.rt_runtime_us"), "50000\n").unwrap();
        assert_eq!(process("1:cpu:/system/jobs\n"), None, "it has some");
    }

    #[test]
    fn what_refuses_is_told_with_what_to_do() {
        let source = || io::Error::from_raw_os_error(libc::EPERM);
        let file = PathBuf::from("/sys/fs/cgroup/cpu/jobs/cpu.rt_runtime_us");
        let group = Refused::Group { file, content: "0".to_owned(), source: source() };
        assert_eq!(
            group.to_string(),
            "this process's control group has no real-time: /sys/fs/cgroup/cpu/jobs/cpu.rt_runtime_us is 0"
        );
        assert!(group.hint().contains("echo 50000 > /sys/fs/cgroup/cpu/jobs/cpu.rt_runtime_us"));
        assert!(Refused::Kernel(source()).hint().contains("CAP_SYS_NICE"));
    }

    #[test]
    fn what_is_allowed_leaves_this_thread_as_it_was() {
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
