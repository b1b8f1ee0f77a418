//! Steps of a launch, in their order.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A step of a launch. The order of the variants is that of the steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Reading and checking the document.
    Document = 1,
    /// Marking all descriptors but the kept ones to be closed when the program starts.
    Descriptors,
    /// Setting resource limits.
    Limits,
    /// Setting the place among the kernel's victims when memory runs out.
    OomScore,
    /// Opening the files and folders of the new root.
    Sources,
    /// Entering new namespaces.
    Namespaces,
    /// Creating the process that becomes the program, in a new pid namespace.
    PidNamespace,
    /// Building and entering the new root.
    Root,
    /// Emptying the bounding set of capabilities.
    BoundingSet,
    /// Changing user and groups.
    Identity,
    /// Emptying the sets of capabilities.
    Capabilities,
    /// Forbidding new privileges.
    NoNewPrivileges,
    /// Closing the file system by Landlock.
    Landlock,
    /// Installing the system call filter.
    Filter,
    /// Waiting until the caller has recorded the process and confirms the start.
    Confirm,
    /// Starting the program.
    Exec,
}

impl Step {
    /// All steps in their order.
    pub const ALL: [Self; 16] = [
        Self::Document,
        Self::Descriptors,
        Self::Limits,
        Self::OomScore,
        Self::Sources,
        Self::Namespaces,
        Self::PidNamespace,
        Self::Root,
        Self::BoundingSet,
        Self::Identity,
        Self::Capabilities,
        Self::NoNewPrivileges,
        Self::Landlock,
        Self::Filter,
        Self::Confirm,
        Self::Exec,
    ];

    /// Returns the step's number, from 1.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the name that reports use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Document => "document",
            Self::Descriptors => "descriptors",
            Self::Limits => "limits",
            Self::OomScore => "oom_score",
            Self::Sources => "sources",
            Self::Namespaces => "namespaces",
            Self::PidNamespace => "pid_namespace",
            Self::Root => "root",
            Self::BoundingSet => "bounding_set",
            Self::Identity => "identity",
            Self::Capabilities => "capabilities",
            Self::NoNewPrivileges => "no_new_privileges",
            Self::Landlock => "landlock",
            Self::Filter => "filter",
            Self::Confirm => "confirm",
            Self::Exec => "exec",
        }
    }

    /// Returns advice for a user who sees this step fail.
    pub const fn hint(self) -> &'static str {
        match self {
            Self::Document | Self::Descriptors => {
                "this is a fault of taut unless tautd and taut-launch differ in version: restart tautd"
            }
            Self::Limits => "tautd needs CAP_SYS_RESOURCE to raise a limit; run it as root of the host",
            Self::OomScore => "tautd needs CAP_SYS_RESOURCE to lower this value; run it as root of the host",
            Self::Sources => "see whether the named file or folder exists on the host",
            Self::Namespaces | Self::PidNamespace => {
                "tautd needs CAP_SYS_ADMIN and a kernel with namespaces: taut check host"
            }
            Self::Root => "tautd needs CAP_SYS_ADMIN and the right to mount: taut check host",
            Self::BoundingSet | Self::Identity | Self::Capabilities | Self::NoNewPrivileges => {
                "tautd must run as root, with CAP_SETPCAP, CAP_SETUID and CAP_SETGID"
            }
            Self::Landlock => "see whether the kernel has Landlock (lsm=…,landlock): taut check host",
            Self::Filter => "the kernel needs CONFIG_SECCOMP_FILTER: taut check host",
            Self::Confirm => "the cause is in tautd, which has ended or could not record the process",
            Self::Exec => {
                "see whether the program and its libraries are below the system's folders, \
                 and whether all users may execute it"
            }
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_numbered_in_their_order_and_named_as_in_reports() {
        for (index, step) in Step::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(step.number()), index + 1);
            assert_eq!(serde_json::to_string(&step).unwrap(), format!("\"{step}\""));
        }
    }
}
