//! System calls by which a program touches another process, from the output of `strace`.
//!
//! A call is judged by what it acts on. So a process number in an answer that a program writes to
//! its client is no touch, and the same number written to a file of a control group is one.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Calls that act on a process that an argument names: numbers of these arguments.
const ON_PROCESS: [(&str, &[usize]); 21] = [
    ("kill", &[0]),
    ("tkill", &[0]),
    ("tgkill", &[0, 1]),
    ("rt_sigqueueinfo", &[0]),
    ("rt_tgsigqueueinfo", &[0, 1]),
    ("pidfd_open", &[0]),
    ("pidfd_send_signal", &[0]),
    ("pidfd_getfd", &[0]),
    ("ptrace", &[1]),
    ("process_vm_writev", &[0]),
    ("process_madvise", &[0]),
    ("sched_setaffinity", &[0]),
    ("sched_setscheduler", &[0]),
    ("sched_setparam", &[0]),
    ("sched_setattr", &[0]),
    ("setpriority", &[1]),
    ("setpgid", &[0]),
    ("ioprio_set", &[1]),
    ("prlimit64", &[0]),
    ("migrate_pages", &[0]),
    ("move_pages", &[0]),
];
/// Calls that open a file.
const OPENS: [&str; 4] = ["open", "openat", "openat2", "creat"];
/// Calls that change a file or a folder, or connect to a socket, by descriptor or by path.
const CHANGES: [&str; 26] = [
    "write",
    "pwrite64",
    "writev",
    "pwritev",
    "pwritev2",
    "sendto",
    "sendmsg",
    "sendmmsg",
    "ioctl",
    "ftruncate",
    "truncate",
    "connect",
    "mkdir",
    "mkdirat",
    "rmdir",
    "unlink",
    "unlinkat",
    "rename",
    "renameat",
    "renameat2",
    "chmod",
    "fchmodat",
    "chown",
    "fchownat",
    "symlinkat",
    "mount",
];
/// Flags of an open file that may be written.
const WRITABLE: [&str; 4] = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"];

/// A process, its threads and its files, none of which may be changed.
#[derive(Debug, Clone, Default)]
pub struct Untouchable {
    /// The process and its threads.
    pub tasks: BTreeSet<u32>,
    /// Folders and files of it outside of `/proc`, such as its control groups and sockets.
    pub paths: Vec<String>,
}

/// Calls that have to do with a process.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Touches {
    /// Number of its files that were opened to be read.
    pub opened: u32,
    /// Calls that act on it: files written, signals, settings.
    pub changed: Vec<String>,
}

/// Returns `strace` with the arguments that [`Touches::of`] needs. It writes to `trace`.
pub fn strace(trace: &Path) -> Command {
    let calls = ON_PROCESS.iter().map(|(call, _)| *call).chain(OPENS).chain(CHANGES);
    // Not every kernel has all of them.
    let traced = calls.map(|call| format!("?{call}")).collect::<Vec<_>>().join(",");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-yy", "-s", "512", "-e", &format!("trace={traced}"), "-o"]).arg(trace);
    strace
}

impl Untouchable {
    /// Returns what belongs to a process that runs: its threads, and its control groups unless they
    /// are the root.
    pub fn of(pid: u32) -> Self {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let tasks = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
        let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let group = |line: &str| line.rsplit(':').next().filter(|group| *group != "/").map(str::to_owned);
        Self { tasks: tasks.chain([pid]).collect(), paths: groups.lines().filter_map(group).collect() }
    }

    /// Returns whether a number in the text is that of the process or a thread.
    fn is_named(&self, text: &str) -> bool {
        let mut numbers = text.split(|character: char| !character.is_ascii_digit());
        numbers.any(|number| number.parse().is_ok_and(|number| self.tasks.contains(&number)))
    }

    /// Returns whether a path in the text is one of the process. With `/proc/PID/task/TID` it is
    /// one of a thread.
    fn has_path(&self, text: &str) -> bool {
        let in_proc = text.match_indices("/proc/").any(|(at, _)| {
            let mut words = text[at + "/proc/".len()..].split(|c: char| !c.is_ascii_alphanumeric());
            let is_task = |word: Option<&str>| {
                word.and_then(|word| word.parse().ok()).is_some_and(|number| self.tasks.contains(&number))
            };
            is_task(words.next()) || (words.next() == Some("task") && is_task(words.next()))
        });
        in_proc || self.paths.iter().any(|path| text.contains(path))
    }
}

impl Touches {
    /// Reads the output of [`strace`].
    pub fn of(trace: &str, whom: &Untouchable) -> Self {
        let mut found = Self::default();
        for line in trace.lines() {
            // A line begins with the thread that calls.
            let line = line.trim_start_matches(|character: char| character.is_ascii_digit()).trim_start();
            // The end of a call that was interrupted has no arguments, which its begin had.
            let Some((call, rest)) = line.split_once('(') else { continue };
            let arguments = arguments(rest);
            match kind(call, &arguments, whom) {
                Kind::None => {}
                Kind::Look => found.opened += 1,
                Kind::Change => found.changed.push(line.to_owned()),
            }
        }
        found
    }
}

/// Effect of a call on the process.
enum Kind {
    None,
    Look,
    Change,
}

fn kind(call: &str, arguments: &[String], whom: &Untouchable) -> Kind {
    let argument = |at: usize| arguments.get(at).map_or("", String::as_str);
    if let Some((_, places)) = ON_PROCESS.iter().find(|(name, _)| *name == call) {
        let is_question = match call {
            // Signal 0 only asks whether there is the process, and no new limit changes none.
            "kill" | "tkill" => argument(1) == "0",
            "tgkill" | "prlimit64" => matches!(argument(2), "0" | "NULL"),
            _ => false,
        };
        // Negative numbers are groups of processes, and all processes.
        let is_group = call == "kill" && argument(0).starts_with('-');
        let is_named = is_group || places.iter().any(|place| whom.is_named(argument(*place)));
        return if is_named && !is_question { Kind::Change } else { Kind::None };
    }
    if OPENS.contains(&call) {
        let is_writable =
            call == "creat" || arguments.iter().any(|text| WRITABLE.iter().any(|flag| text.contains(flag)));
        // The path may be relative to a folder.
        let path = format!(
            "{}/{}",
            decoration(argument(0)),
            arguments.iter().map(|text| quoted(text)).collect::<String>()
        );
        return match whom.has_path(&path) {
            true if is_writable => Kind::Change,
            true => Kind::Look,
            false => Kind::None,
        };
    }
    if CHANGES.contains(&call) {
        let by_descriptor = decoration(argument(0));
        let in_kernel = ["/proc/", "/sys/"].iter().any(|folder| by_descriptor.starts_with(folder));
        // Data written to a file or socket matters only if the kernel reads it.
        let has_path = if by_descriptor.is_empty() || call == "connect" {
            arguments.iter().any(|text| whom.has_path(text))
        } else {
            whom.has_path(by_descriptor)
                || (call.ends_with("at")
                    && whom.has_path(&format!("{by_descriptor}/{}", quoted(argument(1)))))
        };
        let is_named = in_kernel && arguments[1..].iter().any(|text| whom.is_named(text));
        return if has_path || is_named { Kind::Change } else { Kind::None };
    }
    Kind::None
}

/// Returns the path that `-yy` has put behind a descriptor: `5</proc/7/status>`.
fn decoration(argument: &str) -> &str {
    let inside = argument.split_once('<').and_then(|(_, rest)| rest.rsplit_once('>'));
    inside.filter(|_| !argument.starts_with('"')).map_or("", |(path, _)| path)
}

/// Returns the text between quotes, if the argument is one.
fn quoted(argument: &str) -> &str {
    argument.strip_prefix('"').and_then(|rest| rest.split('"').next()).unwrap_or_default()
}

/// Splits the arguments of a call at commas outside of quotes, brackets and decorations.
fn arguments(text: &str) -> Vec<String> {
    let (mut all, mut depth) = (vec![String::new()], 0_u32);
    let mut chars = text.chars();
    let mut is_quoted = false;
    while let Some(character) = chars.next() {
        match character {
            '\\' if is_quoted => {
                if let (Some(last), Some(escaped)) = (all.last_mut(), chars.next()) {
                    last.extend(['\\', escaped]);
                }
                continue;
            }
            '"' => is_quoted = !is_quoted,
            '{' | '[' | '(' | '<' if !is_quoted => depth += 1,
            // The bracket of the call itself.
            ')' if !is_quoted && depth == 0 => break,
            '}' | ']' | ')' | '>' if !is_quoted => depth = depth.saturating_sub(1),
            ',' if !is_quoted && depth == 0 => {
                all.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = all.last_mut() {
            last.push(character);
        }
    }
    all.into_iter().map(|argument| argument.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whom() -> Untouchable {
        Untouchable { tasks: BTreeSet::from([77, 78]), paths: vec!["/machine.slice/vm.scope".to_owned()] }
    }

    #[test]
    fn calls_that_act_on_the_process_are_caught() {
        for line in [
            "kill(77, SIGTERM)                   = 0",
            "kill(-1, SIGTERM)                   = 0",
            "kill(77, SIGTERM <unfinished ...>",
            "tgkill(77, 78, SIGUSR1)             = 0",
            "pidfd_open(77, 0)                   = 5<pid:77>",
            "pidfd_send_signal(5<pid:77>, SIGKILL, NULL, 0) = 0",
            "ptrace(PTRACE_SEIZE, 77, NULL, 0)   = 0",
            "sched_setaffinity(78, 8, [0])       = 0",
            "sched_setscheduler(78, SCHED_FIFO, [1]) = 0",
            "setpriority(PRIO_PROCESS, 77, 5)    = 0",
            "ioprio_set(IOPRIO_WHO_PROCESS, 77, 0) = -1 EPERM (Operation not permitted)",
            "prlimit64(77, RLIMIT_CORE, {rlim_cur=0, rlim_max=0}, NULL) = 0",
            "openat(AT_FDCWD</root>, \"/proc/77/oom_score_adj\", O_WRONLY|O_CLOEXEC) = 5",
            "openat(5</proc/77>, \"oom_score_adj\", O_RDWR) = 6",
            "openat(AT_FDCWD</>, \"/proc/1/task/78/comm\", O_WRONLY) = 5",
            "write(5</proc/77/oom_score_adj>, \"0\", 1) = 1",
            "write(5</sys/fs/cgroup/cpu/x/cgroup.procs>, \"77\\n\", 3) = 3",
            "openat(AT_FDCWD</>, \"/sys/fs/cgroup/cpu/machine.slice/vm.scope/cpu.shares\", O_WRONLY) = 5",
            "write(5</sys/fs/cgroup/machine.slice/vm.scope/cpu.max>, \"max\", 3) = 3",
            "rmdir(\"/sys/fs/cgroup/machine.slice/vm.scope/vcpu0\") = 0",
            "unlinkat(5</sys/fs/cgroup/machine.slice/vm.scope>, \"x\", AT_REMOVEDIR) = 0",
            "connect(5<UNIX-STREAM:[1]>, {sa_family=AF_UNIX, sun_path=\"/run/machine.slice/vm.scope/qmp\"}, 110) = 0",
        ] {
            let found = Touches::of(&format!("4711 {line}\n"), &whom());
            assert_eq!((found.changed.len(), found.opened), (1, 0), "{line}");
        }
    }

    #[test]
    fn looks_are_counted_and_calls_about_others_are_not() {
        let trace = "\
4711 openat(AT_FDCWD</>, \"/proc/77/task/78/schedstat\", O_RDONLY|O_CLOEXEC) = 5</proc/77/task/78/schedstat>
4711 openat(5</proc/77>, \"io\", O_RDONLY) = 6
4711 openat(AT_FDCWD</>, \"/sys/fs/cgroup/machine.slice/vm.scope/cpu.stat\", O_RDONLY) = 5
4711 openat(AT_FDCWD</>, \"/proc/770/status\", O_RDONLY) = 5
4711 openat(AT_FDCWD</>, \"/var/lib/taut/77\", O_RDWR|O_CREAT, 0600) = 5
4711 kill(77, 0)                         = 0
4711 kill(4712, SIGTERM)                 = 0
4711 prlimit64(77, RLIMIT_CORE, NULL, {rlim_cur=0, rlim_max=0}) = 0
4711 sched_setaffinity(4712, 8, [77])    = 0
4711 write(1</dev/pts/0<char 136:0>>, \"77,db,\\\"/proc/77/\\\", x\", 20) = 20
4711 pwrite64(9</var/lib/taut/history.db>, \"/proc/77/x kill(77, 9)\", 22, 0) = 22
4711 write(5</sys/fs/cgroup/cpu/taut/cgroup.procs>, \"4712\", 4) = 4
4711 sendto(7<UNIX-STREAM:[5->6]>, \"{\\\"pid\\\":77}\", 10, 0, NULL, 0) = 10
4711 <... write resumed>)                = 77
4711 +++ exited with 77 +++
";
        assert_eq!(Touches::of(trace, &whom()), Touches { opened: 3, changed: Vec::new() });
    }

    #[test]
    fn arguments_are_split_outside_of_quotes_and_brackets() {
        let text = "5<a,b>, \"x, \\\"y), \", {a=1, b=[2, 3]}, O_RDONLY) = 7, 8";
        let expected = ["5<a,b>", "\"x, \\\"y), \"", "{a=1, b=[2, 3]}", "O_RDONLY"];
        assert_eq!(arguments(text), expected);
        assert_eq!(arguments(""), [""]);
    }
}
