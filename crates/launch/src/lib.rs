//! Confines a process before its program starts.
//!
//! A caller with privileges, such as `tautd`, starts the program `taut-launch` and gives it a
//! [`Document`]. The launcher puts walls around itself, one [`Step`] after the other, and becomes
//! the program that the document names. The caller reads a [`Report`] of it.
//!
//! # Descriptors of the launcher
//!
//! | number | content |
//! |---|---|
//! | 0 to 2 | standard streams, which the program inherits |
//! | [`DOCUMENT_FD`] | the document, read to its end, at most [`MAX_DOCUMENT`] bytes |
//! | [`REPORT_FD`] | the writing end of a pipe for the report |
//! | [`CONFIRM_FD`] | the reading end of a pipe on which the caller confirms the start |
//! | from [`FIRST_INHERITED`] | descriptors that the document names |
//!
//! The caller must close its own copies of the report's writing end, those inside a
//! [`std::process::Command`] too. The report ends when the launcher has become the program, or with
//! the step that failed.
//!
//! # Confirmation
//!
//! With all walls up the process waits for one byte on [`CONFIRM_FD`] ([`read_waiting`]). The
//! caller records the process, and then writes the byte ([`Waiting::finish`]). If the other end of
//! the pipe is closed without it, the process ends and the program never runs. So a caller that is
//! killed leaves a process that it has recorded, or none.
//!
//! # Processes
//!
//! With a pid namespace of its own the program is not the process that the caller has started. The
//! launcher creates it with `CLONE_PARENT`, so it is another child of the caller, whose number the
//! report states. The caller waits for both: the launcher ends at once, the program when it is
//! done. The program survives the end of its caller. It is process 1 of its namespace: signals from
//! inside, and signals other than `SIGKILL` and `SIGSTOP` from outside, reach it only if it has
//! installed a handler.
//!
//! The launcher calls `setsid` for a process in a new pid namespace. Survival does not need it, but
//! without it the process would be in a session and a process group that have no number in the
//! namespace: `getsid` and `getpgrp` would return 0.
//!
//! # Skeleton
//!
//! A new mount namespace is a copy of all mounts of the old one, so on a host with many mounts each
//! start is expensive. `taut-launch --skeleton` makes a namespace with only the system's folders
//! ([`Skeleton`]). The launcher enters it ([`Root::skeleton`]) and copies a dozen mounts at most.
//! The caller opens `/proc/PID/ns/mnt` after the report ([`read_skeleton_report`]) and closes the
//! process's standard input: the process ends, and the open descriptor keeps the namespace.

mod document;
mod report;
mod step;
mod wall;

pub use document::{
    CONFIRM_FD, DOCUMENT_FD, Device, Document, DocumentError, FIRST_INHERITED, Filter, Landlock, Limit,
    Limits, MAX_DOCUMENT, Namespaces, REPORT_FD, Root, Rule, Skeleton,
};
pub use report::{
    LaunchError, Launched, Line, MAX_REPORT, Missing, Report, Waiting, read_skeleton_report, read_waiting,
};
pub use step::Step;
pub use wall::Wall;
