//! Lists of system calls, each with its name.

/// A system call: its name and its number.
pub(super) type Call = (&'static str, libc::c_long);

/// Makes a list of calls from their names.
macro_rules! calls {
    ($($name:ident => $number:path,)*) => { &[$((stringify!($name), $number)),*] };
}

/// Calls that fail with `EPERM` in the process of a VM. Most need privileges that it does not have
/// either. `socket`, `clone` and `ioctl` are refused for some arguments.
pub(super) const REFUSED_TO_VMS: &[Call] = calls! {
    // Code and events of the kernel.
    bpf => libc::SYS_bpf,
    perf_event_open => libc::SYS_perf_event_open,
    userfaultfd => libc::SYS_userfaultfd,
    io_uring_setup => libc::SYS_io_uring_setup,
    io_uring_enter => libc::SYS_io_uring_enter,
    io_uring_register => libc::SYS_io_uring_register,
    lookup_dcookie => libc::SYS_lookup_dcookie,
    fanotify_init => libc::SYS_fanotify_init,
    fanotify_mark => libc::SYS_fanotify_mark,
    // Other processes.
    ptrace => libc::SYS_ptrace,
    process_vm_readv => libc::SYS_process_vm_readv,
    process_vm_writev => libc::SYS_process_vm_writev,
    process_madvise => libc::SYS_process_madvise,
    process_mrelease => libc::SYS_process_mrelease,
    pidfd_getfd => libc::SYS_pidfd_getfd,
    kcmp => libc::SYS_kcmp,
    move_pages => libc::SYS_move_pages,
    migrate_pages => libc::SYS_migrate_pages,
    // Keys.
    keyctl => libc::SYS_keyctl,
    add_key => libc::SYS_add_key,
    request_key => libc::SYS_request_key,
    // Namespaces and mounts.
    setns => libc::SYS_setns,
    unshare => libc::SYS_unshare,
    chroot => libc::SYS_chroot,
    pivot_root => libc::SYS_pivot_root,
    mount => libc::SYS_mount,
    umount2 => libc::SYS_umount2,
    open_tree => libc::SYS_open_tree,
    move_mount => libc::SYS_move_mount,
    fsopen => libc::SYS_fsopen,
    fsconfig => libc::SYS_fsconfig,
    fsmount => libc::SYS_fsmount,
    fspick => libc::SYS_fspick,
    mount_setattr => libc::SYS_mount_setattr,
    open_by_handle_at => libc::SYS_open_by_handle_at,
    name_to_handle_at => libc::SYS_name_to_handle_at,
    // The host.
    kexec_load => libc::SYS_kexec_load,
    kexec_file_load => libc::SYS_kexec_file_load,
    init_module => libc::SYS_init_module,
    finit_module => libc::SYS_finit_module,
    delete_module => libc::SYS_delete_module,
    reboot => libc::SYS_reboot,
    swapon => libc::SYS_swapon,
    swapoff => libc::SYS_swapoff,
    quotactl => libc::SYS_quotactl,
    quotactl_fd => libc::SYS_quotactl_fd,
    acct => libc::SYS_acct,
    syslog => libc::SYS_syslog,
    vhangup => libc::SYS_vhangup,
    iopl => libc::SYS_iopl,
    ioperm => libc::SYS_ioperm,
    sethostname => libc::SYS_sethostname,
    setdomainname => libc::SYS_setdomainname,
    settimeofday => libc::SYS_settimeofday,
    clock_settime => libc::SYS_clock_settime,
    clock_adjtime => libc::SYS_clock_adjtime,
    adjtimex => libc::SYS_adjtimex,
    nfsservctl => libc::SYS_nfsservctl,
    uselib => libc::SYS_uselib,
    _sysctl => libc::SYS__sysctl,
};

/// Calls that a program needs to start, to read descriptors and to answer. `openat`, `execveat` and
/// `prctl` are permitted for some arguments.
pub(super) const PERMITTED_TO_INSPECTORS: &[Call] = calls! {
    // Descriptors.
    read => libc::SYS_read,
    pread64 => libc::SYS_pread64,
    write => libc::SYS_write,
    writev => libc::SYS_writev,
    lseek => libc::SYS_lseek,
    close => libc::SYS_close,
    fstat => libc::SYS_fstat,
    newfstatat => libc::SYS_newfstatat,
    statx => libc::SYS_statx,
    fcntl => libc::SYS_fcntl,
    poll => libc::SYS_poll,
    access => libc::SYS_access,
    readlink => libc::SYS_readlink,
    // Memory.
    brk => libc::SYS_brk,
    mmap => libc::SYS_mmap,
    mprotect => libc::SYS_mprotect,
    mremap => libc::SYS_mremap,
    munmap => libc::SYS_munmap,
    madvise => libc::SYS_madvise,
    // The start of a program and its one thread.
    arch_prctl => libc::SYS_arch_prctl,
    set_tid_address => libc::SYS_set_tid_address,
    set_robust_list => libc::SYS_set_robust_list,
    rseq => libc::SYS_rseq,
    prlimit64 => libc::SYS_prlimit64,
    sched_getaffinity => libc::SYS_sched_getaffinity,
    gettid => libc::SYS_gettid,
    futex => libc::SYS_futex,
    sigaltstack => libc::SYS_sigaltstack,
    rt_sigaction => libc::SYS_rt_sigaction,
    rt_sigprocmask => libc::SYS_rt_sigprocmask,
    rt_sigreturn => libc::SYS_rt_sigreturn,
    restart_syscall => libc::SYS_restart_syscall,
    getrandom => libc::SYS_getrandom,
    clock_gettime => libc::SYS_clock_gettime,
    seccomp => libc::SYS_seccomp,
    exit => libc::SYS_exit,
    exit_group => libc::SYS_exit_group,
};
