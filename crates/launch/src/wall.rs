//! Walls that a kernel or a container may lack.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A part of the confinement that a kernel or a container may lack.
///
/// [`Document::may_lack`](crate::Document::may_lack) lists those without which the program may
/// start. The report names each one that is not in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wall {
    /// The place among the kernel's victims when memory runs out. A container may not lower it.
    OomScore,
    /// Empty sets of capabilities. A launcher that may not raise the limit of locked memory leaves
    /// `CAP_IPC_LOCK` to a program that locks any amount.
    Capabilities,
    /// A mount namespace, and with it the private root.
    MountNamespace,
    /// A network namespace without any device that is up.
    NetNamespace,
    /// A namespace for System V IPC and POSIX message queues.
    IpcNamespace,
    /// A namespace for the host's name.
    UtsNamespace,
    /// A namespace for process numbers.
    PidNamespace,
    /// A namespace for control groups.
    CgroupNamespace,
    /// `/proc` with processes only (`subset=pid`) and without those of others (`hidepid=2`).
    ProcSubset,
    /// Device nodes made for the process. Containers refuse `mknod`; then the host's node is bound,
    /// with its owner and mode.
    DeviceNodes,
    /// Landlock (Linux 5.13; all rights that this program takes as given: 5.19).
    Landlock,
    /// Landlock's right to truncate files (Linux 6.2).
    LandlockTruncate,
    /// Landlock's rights on TCP ports (Linux 6.7).
    LandlockTcp,
    /// Landlock's right to send requests to devices (Linux 6.10).
    LandlockIoctl,
    /// Landlock's scopes for signals and abstract Unix sockets (Linux 6.12).
    LandlockScope,
    /// The system call filter.
    Filter,
}

impl Wall {
    /// All walls.
    pub const ALL: [Self; 16] = [
        Self::OomScore,
        Self::Capabilities,
        Self::MountNamespace,
        Self::NetNamespace,
        Self::IpcNamespace,
        Self::UtsNamespace,
        Self::PidNamespace,
        Self::CgroupNamespace,
        Self::ProcSubset,
        Self::DeviceNodes,
        Self::Landlock,
        Self::LandlockTruncate,
        Self::LandlockTcp,
        Self::LandlockIoctl,
        Self::LandlockScope,
        Self::Filter,
    ];

    /// Walls that Linux 6.1, the oldest supported kernel, does not have.
    pub const NEWER_THAN_LINUX_6_1: [Self; 4] =
        [Self::LandlockTruncate, Self::LandlockTcp, Self::LandlockIoctl, Self::LandlockScope];

    /// Returns the name that documents and reports use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OomScore => "oom_score",
            Self::Capabilities => "capabilities",
            Self::MountNamespace => "mount_namespace",
            Self::NetNamespace => "net_namespace",
            Self::IpcNamespace => "ipc_namespace",
            Self::UtsNamespace => "uts_namespace",
            Self::PidNamespace => "pid_namespace",
            Self::CgroupNamespace => "cgroup_namespace",
            Self::ProcSubset => "proc_subset",
            Self::DeviceNodes => "device_nodes",
            Self::Landlock => "landlock",
            Self::LandlockTruncate => "landlock_truncate",
            Self::LandlockTcp => "landlock_tcp",
            Self::LandlockIoctl => "landlock_ioctl",
            Self::LandlockScope => "landlock_scope",
            Self::Filter => "filter",
        }
    }
}

impl fmt::Display for Wall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_documents() {
        for wall in Wall::ALL {
            assert_eq!(serde_json::to_string(&wall).unwrap(), format!("\"{wall}\""));
        }
    }
}
