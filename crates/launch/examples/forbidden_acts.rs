//! Tries what a program in a VM's place must not do, and prints how each act ends:
//!
//! ```text
//! ACT <name>: refused <error>
//! ACT <name>: succeeded
//! ACT <name>: unclear <error>
//! ```
//!
//! An act is unclear if it failed for another reason than a wall. Where a wall is missing, the acts
//! do no lasting harm: signals are number 0, clocks get the time that they have, and files that
//! would be loaded do not exist.
//!
//! Usage: `forbidden_acts PID PID SECRET SOCKET NAME KEPT…`: a process of the host, a process of
//! another VM, a file of the host that anybody may read, a listening socket of the host, the name
//! of an abstract one, and the numbers of the descriptors that the program inherits.

#![allow(unsafe_code, reason = "the acts are system calls that no library offers")]

use std::collections::BTreeSet;
use std::env;
use std::ffi::{CStr, CString};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::{Command, ExitCode};

use libc::{EACCES, EBADF, EBUSY, ECONNREFUSED, EINVAL, ENOENT, ENOSYS, ENOTDIR, EPERM, EROFS, ESRCH, EXDEV};

/// Errors of a file that is absent or closed.
const NO_FILE: &[i32] = &[ENOENT, EACCES, EPERM];
/// Errors of a place that cannot be changed.
const NO_CHANGE: &[i32] = &[EROFS, EACCES, EPERM, EXDEV, EBUSY, ENOENT];
/// Errors of a process that is not seen or must not be touched.
const NO_PROCESS: &[i32] = &[ESRCH, EPERM];
/// The answer of the filter, and of the kernel to the unprivileged.
const NO_RIGHT: &[i32] = &[EPERM];

type Done = io::Result<()>;

/// What the command line says.
struct World {
    host: libc::pid_t,
    neighbour: libc::pid_t,
    secret: String,
    socket: String,
    name: String,
    kept: BTreeSet<i32>,
}

impl World {
    fn read() -> Option<Self> {
        let mut words = env::args().skip(1);
        let host = words.next()?.parse().ok()?;
        let neighbour = words.next()?.parse().ok()?;
        let (secret, socket, name) = (words.next()?, words.next()?, words.next()?);
        let kept = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        Some(Self { host, neighbour, secret, socket, name, kept })
    }
}

/// Counts the acts, and those that were not refused.
#[derive(Default)]
struct Tally {
    acts: u32,
    unrefused: u32,
}

impl Tally {
    /// Tries one act.
    fn act(&mut self, name: &str, walls: &[i32], act: impl FnOnce() -> Done) {
        self.acts += 1;
        let outcome = match act() {
            Ok(()) => "succeeded".to_owned(),
            Err(error) if error.raw_os_error().is_some_and(|code| walls.contains(&code)) => {
                println!("ACT {name}: refused {error}");
                return;
            }
            Err(error) => format!("unclear {error}"),
        };
        self.unrefused += 1;
        println!("ACT {name}: {outcome}");
    }

    /// Tries a system call with numbers and addresses as arguments.
    fn call<const N: usize>(&mut self, name: &str, walls: &[i32], number: libc::c_long, arguments: [i64; N]) {
        self.act(name, walls, || call(number, arguments).map(drop));
    }
}

/// Makes a system call. Arguments that are not given are 0.
fn call<const N: usize>(number: libc::c_long, arguments: [i64; N]) -> io::Result<i64> {
    let mut all = [0; 6];
    all[..N].copy_from_slice(&arguments);
    // SAFETY: addresses among the arguments are those of values that live during the call and have
    // the size that the call uses, or null. No act changes memory of this process on success: the
    // buffers that a call may write to are separate values.
    let done = unsafe { libc::syscall(number, all[0], all[1], all[2], all[3], all[4], all[5]) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done) }
}

/// The address of a text for the kernel.
fn text(text: &CStr) -> i64 {
    text.as_ptr() as i64
}

/// The address of a value that a call may read or write.
fn place<T>(value: &mut T) -> i64 {
    std::ptr::from_mut(value) as i64
}

fn read(path: &str) -> Done {
    File::open(path).map(drop)
}

fn write(path: &str) -> Done {
    OpenOptions::new().write(true).open(path).map(drop)
}

fn create(path: &str) -> Done {
    OpenOptions::new().write(true).create_new(true).open(path).map(drop)
}

fn main() -> ExitCode {
    let Some(world) = World::read() else {
        eprintln!("usage: forbidden_acts PID PID SECRET SOCKET NAME KEPT…");
        return ExitCode::from(2);
    };
    let mut tally = Tally::default();
    // First, because other acts open descriptors of their own.
    descriptors(&mut tally, &world);
    reading(&mut tally, &world);
    changing(&mut tally);
    devices(&mut tally);
    processes(&mut tally, &world);
    sockets(&mut tally, &world);
    namespaces(&mut tally);
    mounts(&mut tally);
    identity(&mut tally);
    limits(&mut tally);
    kernel(&mut tally);
    host(&mut tally);
    println!("{} acts, {} not refused", tally.acts, tally.unrefused);
    if tally.unrefused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Files of the host and of others.
fn reading(tally: &mut Tally, world: &World) {
    tally.act("read a file of the host", NO_FILE, || read(&world.secret));
    tally.act("read a file of the host by /proc/self/root", NO_FILE, || {
        read(&format!("/proc/self/root/../..{}", world.secret))
    });
    tally.act("read a file of the host by /proc/self/cwd", NO_FILE, || {
        read(&format!("/proc/self/cwd/../../..{}", world.secret))
    });
    for path in ["/etc/passwd", "/etc/shadow", "/root", "/var/lib/taut", "/run/taut", "/sys", "/home"] {
        tally.act(&format!("read {path}"), NO_FILE, || read(path));
    }
    tally.act("list the root", NO_FILE, || fs::read_dir("/").map(drop));
    for path in ["/proc/kcore", "/proc/kallsyms", "/proc/kmsg", "/proc/cpuinfo", "/proc/sys/kernel/osrelease"]
    {
        tally.act(&format!("read {path}"), NO_FILE, || read(path));
    }
    for (whose, pid) in [("the host's process", world.host), ("another VM", world.neighbour)] {
        for file in ["cmdline", "environ", "maps", "mem", "root", "fd"] {
            tally.act(&format!("read {file} of {whose}"), NO_FILE, || read(&format!("/proc/{pid}/{file}")));
        }
    }
}

/// Files that are visible.
fn changing(tally: &mut Tally) {
    let program = "/usr/bin/env";
    tally.act("write to a program", NO_CHANGE, || write(program));
    tally.act("truncate a program", NO_CHANGE, || {
        let path = CString::new(program)?;
        call(libc::SYS_truncate, [text(&path), 0]).map(drop)
    });
    tally.act("change the mode of a program", NO_CHANGE, || {
        fs::set_permissions(program, Permissions::from_mode(0o777))
    });
    tally.act("change the owner of a program", NO_CHANGE, || {
        std::os::unix::fs::chown(program, Some(rustix::process::getuid().as_raw()), None)
    });
    tally.act("rename a program", NO_CHANGE, || fs::rename(program, "/usr/bin/env-renamed"));
    tally.act("remove a program", NO_CHANGE, || fs::remove_file(program));
    tally.act("link to a program", NO_CHANGE, || fs::hard_link(program, "/tmp/env"));
    for folder in ["/", "/usr/", "/usr/bin/", "/tmp/", "/dev/", "/proc/"] {
        tally.act(&format!("create a file in {folder}"), NO_CHANGE, || create(&format!("{folder}new")));
    }
    tally.act("create a folder in /", NO_CHANGE, || fs::create_dir("/new"));
    tally.act("create a link in /", NO_CHANGE, || std::os::unix::fs::symlink("/usr", "/new"));
    tally.act("remove /tmp", NO_CHANGE, || fs::remove_dir("/tmp"));
    tally.act("rename /usr", NO_CHANGE, || fs::rename("/usr", "/usr2"));
    tally.act("set an attribute of a program", NO_CHANGE, || {
        let mut value = *b"x";
        let arguments = [text(c"/usr/bin/env"), text(c"user.x"), place(&mut value), 1, 0];
        call(libc::SYS_setxattr, arguments).map(drop)
    });
}

/// Device nodes.
fn devices(tally: &mut Tally) {
    for path in [
        "/dev/mem",
        "/dev/kmem",
        "/dev/kvm",
        "/dev/sda",
        "/dev/vda",
        "/dev/vfio/vfio",
        "/dev/fuse",
        "/dev/net/tun",
        "/dev/ptmx",
        "/dev/tty",
    ] {
        tally.act(&format!("open {path}"), NO_FILE, || read(path));
    }
    tally.act("remove /dev/null", NO_CHANGE, || fs::remove_file("/dev/null"));
    tally.act("change the mode of /dev/null", NO_CHANGE, || {
        fs::set_permissions("/dev/null", Permissions::from_mode(0o666))
    });
    for (name, folder) in [("/tmp", c"/tmp/mem"), ("/dev", c"/dev/mem")] {
        for (kind, mode) in [("character", libc::S_IFCHR), ("block", libc::S_IFBLK)] {
            // Device 1:1 is /dev/mem.
            let arguments = [text(folder), i64::from(mode | 0o600), 0x101];
            tally.call(&format!("make a {kind} device in {name}"), NO_CHANGE, libc::SYS_mknod, arguments);
        }
    }
}

/// Other processes.
fn processes(tally: &mut Tally, world: &World) {
    tally.call("signal all processes", NO_PROCESS, libc::SYS_kill, [-1, 0]);
    tally.act("signal the parent", NO_PROCESS, || match rustix::process::getppid() {
        // The parent is outside of the namespace.
        None => Err(io::Error::from_raw_os_error(ESRCH)),
        Some(parent) => Ok(rustix::process::test_kill_process(parent)?),
    });
    for (whose, pid) in [("the host's process", world.host), ("another VM", world.neighbour)] {
        let pid = i64::from(pid);
        let mut act = |what: &str, number, arguments: [i64; 6]| {
            tally.call(&format!("{what} {whose}"), NO_PROCESS, number, arguments);
        };
        act("signal", libc::SYS_kill, [pid, 0, 0, 0, 0, 0]);
        act("signal the group of", libc::SYS_kill, [-pid, 0, 0, 0, 0, 0]);
        act("signal a thread of", libc::SYS_tgkill, [pid, pid, 0, 0, 0, 0]);
        act("attach to", libc::SYS_ptrace, [i64::from(libc::PTRACE_ATTACH), pid, 0, 0, 0, 0]);
        act("seize", libc::SYS_ptrace, [i64::from(libc::PTRACE_SEIZE), pid, 0, 0, 0, 0]);
        act("open", libc::SYS_pidfd_open, [pid, 0, 0, 0, 0, 0]);
        act("compare descriptors with", libc::SYS_kcmp, [pid, pid, 2, 0, 0, 0]);
        act("set limits of", libc::SYS_prlimit64, [pid, i64::from(libc::RLIMIT_NOFILE), 0, 0, 0, 0]);
        act("set the priority of", libc::SYS_setpriority, [0, pid, 10, 0, 0, 0]);
        let mut mask = u64::MAX;
        act("bind", libc::SYS_sched_setaffinity, [pid, 8, place(&mut mask), 0, 0, 0]);
        let (mut here, mut there) = ([0_u64; 2], [0_u64; 2]);
        let vectors = [pid, place(&mut here), 1, place(&mut there), 1, 0];
        act("read memory of", libc::SYS_process_vm_readv, vectors);
        act("write memory of", libc::SYS_process_vm_writev, vectors);
    }
    tally.act("take a descriptor by a pidfd", NO_RIGHT, || {
        let own = call(libc::SYS_pidfd_open, [i64::from(std::process::id()), 0])?;
        call(libc::SYS_pidfd_getfd, [own, 0, 0]).map(drop)
    });
}

/// Sockets to the outside.
fn sockets(tally: &mut Tally, world: &World) {
    for (name, family) in [
        ("IPv4", libc::AF_INET),
        ("IPv6", libc::AF_INET6),
        ("netlink", libc::AF_NETLINK),
        ("packet", libc::AF_PACKET),
        ("vsock", libc::AF_VSOCK),
        ("crypto", libc::AF_ALG),
        ("XDP", libc::AF_XDP),
    ] {
        let arguments = [i64::from(family), i64::from(libc::SOCK_DGRAM), 0];
        tally.call(&format!("create a socket of {name}"), NO_RIGHT, libc::SYS_socket, arguments);
    }
    tally.act("connect to a socket of the host", NO_FILE, || UnixStream::connect(&world.socket).map(drop));
    tally.act("connect to an abstract socket of the host", &[ECONNREFUSED, EPERM], || {
        let address = SocketAddr::from_abstract_name(&world.name)?;
        UnixStream::connect_addr(&address).map(drop)
    });
}

/// Descriptors of the launcher and its caller.
fn descriptors(tally: &mut Tally, world: &World) {
    tally.act("use a descriptor that was not kept", &[EBADF], || {
        for number in (3..5000).filter(|number| !world.kept.contains(number)) {
            match call(libc::SYS_fcntl, [number.into(), libc::F_GETFD.into()]) {
                Err(error) if error.raw_os_error() == Some(EBADF) => {}
                Err(error) => return Err(error),
                Ok(_) => return Ok(()),
            }
        }
        Err(io::Error::from_raw_os_error(EBADF))
    });
    for number in [0, 1, 2].into_iter().chain(world.kept.iter().copied()) {
        tally.act(&format!("leave by descriptor {number}"), &[ENOTDIR, EBADF], || {
            let path = CString::new("..")?;
            call(libc::SYS_openat, [number.into(), text(&path), libc::O_RDONLY.into()]).map(drop)
        });
    }
    tally.call("type into the terminal", NO_RIGHT, libc::SYS_ioctl, [0, libc::TIOCSTI.cast_signed(), 0]);
    tally.call("take over the terminal", NO_RIGHT, libc::SYS_ioctl, [0, libc::TIOCSCTTY.cast_signed(), 0]);
}

/// Namespaces.
fn namespaces(tally: &mut Tally) {
    for (name, flag) in [
        ("user", libc::CLONE_NEWUSER),
        ("mount", libc::CLONE_NEWNS),
        ("network", libc::CLONE_NEWNET),
        ("pid", libc::CLONE_NEWPID),
    ] {
        let flag = i64::from(flag);
        tally.call(&format!("unshare a {name} namespace"), NO_RIGHT, libc::SYS_unshare, [flag]);
        tally.act(&format!("clone into a {name} namespace"), NO_RIGHT, || {
            let child = call(libc::SYS_clone, [flag | i64::from(libc::SIGCHLD)])?;
            if child == 0 {
                // SAFETY: the child ends at once and runs no destructor.
                unsafe { libc::_exit(0) };
            }
            Ok(())
        });
    }
    tally.act("clone with flags in memory", &[ENOSYS], || {
        let mut arguments = [0_u64; 11];
        arguments[0] = u64::from(libc::CLONE_NEWUSER.cast_unsigned());
        call(libc::SYS_clone3, [place(&mut arguments), 88]).map(drop)
    });
    tally.act("enter a namespace", &[EPERM, EACCES], || {
        let own = File::open("/proc/self/ns/mnt")?;
        call(libc::SYS_setns, [own.as_raw_fd().into(), 0]).map(drop)
    });
    // 0x40000000 marks a call of the x32 ABI; 521 is its ptrace, 101 the usual one.
    for (name, number) in [("ptrace of x32", 521), ("ptrace by x32", 101)] {
        tally.call(name, &[ENOSYS], 0x4000_0000 + number, [0, 0]);
    }
}

/// Mounts and roots.
fn mounts(tally: &mut Tally) {
    let (tmp, tmpfs) = (text(c"/tmp"), text(c"tmpfs"));
    tally.call("mount a file system", NO_RIGHT, libc::SYS_mount, [tmpfs, tmp, tmpfs, 0, 0]);
    let bind = libc::MS_BIND.cast_signed();
    tally.call("bind a folder", NO_RIGHT, libc::SYS_mount, [text(c"/usr"), tmp, 0, bind, 0]);
    let remount = (libc::MS_REMOUNT | libc::MS_BIND).cast_signed();
    tally.call("make the root writable", NO_RIGHT, libc::SYS_mount, [0, text(c"/"), 0, remount, 0]);
    tally.call("unmount /usr", NO_RIGHT, libc::SYS_umount2, [text(c"/usr"), libc::MNT_DETACH.into()]);
    tally.call("change the root", NO_RIGHT, libc::SYS_chroot, [text(c"/usr")]);
    tally.call("exchange the root", NO_RIGHT, libc::SYS_pivot_root, [text(c"/"), text(c"/")]);
    tally.call("open a file system", NO_RIGHT, libc::SYS_fsopen, [tmpfs, 0]);
    tally.call("copy a mount", NO_RIGHT, libc::SYS_open_tree, [-100, text(c"/usr"), 1]);
    tally.call("move a mount", NO_RIGHT, libc::SYS_move_mount, [-100, text(c"/usr"), -100, tmp, 0]);
    let mut attributes = [0_u64; 4];
    let arguments = [-100, text(c"/"), 0, place(&mut attributes), 32];
    tally.call("set attributes of a mount", NO_RIGHT, libc::SYS_mount_setattr, arguments);
    let mut handle = [0_u32; 32];
    handle[0] = 8;
    handle[1] = 1;
    tally.call("open by handle", NO_RIGHT, libc::SYS_open_by_handle_at, [-100, place(&mut handle), 0]);
    let mut mount = 0_u64;
    let arguments = [-100, text(c"/usr"), place(&mut handle), place(&mut mount), 0];
    tally.call("name a file by handle", NO_RIGHT, libc::SYS_name_to_handle_at, arguments);
}

/// User, groups, capabilities.
fn identity(tally: &mut Tally) {
    tally.call("become root", NO_RIGHT, libc::SYS_setuid, [0]);
    tally.call("join root's group", NO_RIGHT, libc::SYS_setgid, [0]);
    tally.call("become another VM's user", NO_RIGHT, libc::SYS_setresuid, [1_879_048_201; 3]);
    let mut groups = [0_u32; 1];
    tally.call("join groups", NO_RIGHT, libc::SYS_setgroups, [1, place(&mut groups)]);
    // _LINUX_CAPABILITY_VERSION_3, this process, and all capabilities.
    let (mut header, mut sets) = ([0x2008_0522_u32, 0], [u32::MAX; 6]);
    tally.call("gain capabilities", NO_RIGHT, libc::SYS_capset, [place(&mut header), place(&mut sets)]);
    let mut option = |name: &str, walls, arguments: [i32; 3]| {
        tally.call(name, walls, libc::SYS_prctl, arguments.map(i64::from));
    };
    option("raise an ambient capability", NO_RIGHT, [libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, 21]);
    option("remove a capability's bound", NO_RIGHT, [libc::PR_CAPBSET_DROP, 21, 0]);
    option("set secure bits", NO_RIGHT, [libc::PR_SET_SECUREBITS, 0, 0]);
    option("permit new privileges", &[EINVAL], [libc::PR_SET_NO_NEW_PRIVS, 0, 0]);
    option("move its memory's bounds", NO_RIGHT, [libc::PR_SET_MM, libc::PR_SET_MM_START_BRK, 0]);
}

/// Limits and priorities of its own.
fn limits(tally: &mut Tally) {
    for (name, resource) in [
        ("descriptors", libc::RLIMIT_NOFILE),
        ("core dumps", libc::RLIMIT_CORE),
        ("message queues", libc::RLIMIT_MSGQUEUE),
    ] {
        let mut most = [u64::MAX; 2];
        let arguments = [0, i64::from(resource), place(&mut most), 0];
        tally.call(&format!("raise the limit of {name}"), NO_RIGHT, libc::SYS_prlimit64, arguments);
    }
    let denied = &[EACCES, EPERM];
    tally.call("raise its priority", denied, libc::SYS_setpriority, [0, 0, -20]);
    let mut priority = 1_i32;
    let arguments = [0, i64::from(libc::SCHED_FIFO), place(&mut priority)];
    tally.call("become a real-time process", denied, libc::SYS_sched_setscheduler, arguments);
    tally.act("lower its OOM score", &[EACCES, EPERM, ENOENT], || {
        fs::write("/proc/self/oom_score_adj", "-1000")
    });
}

/// Code, events and keys of the kernel.
fn kernel(tally: &mut Tally) {
    let mut zeros = [0_u64; 32];
    let zeros = place(&mut zeros);
    for (name, number, arguments) in [
        ("load a program into the kernel", libc::SYS_bpf, [0, zeros, 128, 0, 0]),
        ("watch events of the CPU", libc::SYS_perf_event_open, [zeros, 0, -1, -1, 0]),
        ("handle page faults", libc::SYS_userfaultfd, [1, 0, 0, 0, 0]),
        ("set up an io_uring", libc::SYS_io_uring_setup, [1, zeros, 0, 0, 0]),
        ("read its session's keys", libc::SYS_keyctl, [0, -3, 0, 0, 0]),
        ("add a key", libc::SYS_add_key, [text(c"user"), text(c"taut"), text(c"x"), 1, -3]),
        ("request a key", libc::SYS_request_key, [text(c"user"), text(c"taut"), 0, 0, 0]),
        ("watch all files", libc::SYS_fanotify_init, [0, 0, 0, 0, 0]),
        ("read the kernel's log", libc::SYS_syslog, [3, zeros, 128, 0, 0]),
        ("move pages", libc::SYS_move_pages, [0, 0, 0, 0, 0]),
    ] {
        tally.call(name, NO_RIGHT, number, arguments);
    }
}

/// The host itself.
fn host(tally: &mut Tally) {
    let nothing = text(c"/no/such/file");
    // LINUX_REBOOT_MAGIC1 and 2, and LINUX_REBOOT_CMD_CAD_OFF.
    let reboot = [0xFEE1_DEAD_u32.into(), 672_274_793, 0, 0];
    let mut now = [0_i64; 2];
    let _ = call(libc::SYS_clock_gettime, [0, place(&mut now)]);
    let mut clock = [now[0], now[1] / 1000];
    let mut timex = [0_u64; 32];
    for (name, number, arguments) in [
        ("disable the keys that reboot", libc::SYS_reboot, reboot),
        ("load a module", libc::SYS_init_module, [0, 0, nothing, 0]),
        ("load a module from a file", libc::SYS_finit_module, [-1, nothing, 0, 0]),
        ("unload a module", libc::SYS_delete_module, [text(c"no_such_module"), 0, 0, 0]),
        ("load a kernel", libc::SYS_kexec_load, [0, 0, 0, 0]),
        ("load a kernel from a file", libc::SYS_kexec_file_load, [-1, -1, 0, 0]),
        ("swap to a file", libc::SYS_swapon, [nothing, 0, 0, 0]),
        ("stop swapping", libc::SYS_swapoff, [nothing, 0, 0, 0]),
        ("set quotas", libc::SYS_quotactl, [0, nothing, 0, 0]),
        ("account processes", libc::SYS_acct, [nothing, 0, 0, 0]),
        ("set the time", libc::SYS_settimeofday, [place(&mut clock), 0, 0, 0]),
        ("set the clock", libc::SYS_clock_settime, [0, place(&mut now), 0, 0]),
        ("adjust the clock", libc::SYS_adjtimex, [place(&mut timex), 0, 0, 0]),
        ("set the host's name", libc::SYS_sethostname, [text(c"taken"), 5, 0, 0]),
        ("set the domain's name", libc::SYS_setdomainname, [text(c"taken"), 5, 0, 0]),
        ("hang up the terminal", libc::SYS_vhangup, [0, 0, 0, 0]),
        ("use all ports", libc::SYS_iopl, [3, 0, 0, 0]),
        ("use a port", libc::SYS_ioperm, [0x80, 1, 1, 0]),
    ] {
        tally.call(name, NO_RIGHT, number, arguments);
    }
    for path in ["/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper"] {
        tally.act(&format!("write to {path}"), NO_FILE, || write(path));
    }
    tally.act("write to its control group", NO_FILE, || write("/sys/fs/cgroup/cgroup.procs"));
    tally.act("run a program of its own making", &[EACCES, EROFS, ENOENT], || {
        fs::copy("/usr/bin/env", "/tmp/env")?;
        Command::new("/tmp/env").status().map(drop)
    });
}
