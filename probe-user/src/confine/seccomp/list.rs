//! The system calls of each role. docs/security.md has the same list, and a test compares them.
//!
//! The lists include the calls of musl (the released program) and glibc (a plain build), on both
//! architectures. If two calls do the same, aarch64 has only the newer one.

use super::{
    super::role::Role,
    call::{Call, Only},
};

/// Calls for one purpose.
#[derive(Debug)]
pub(super) struct Group {
    #[cfg_attr(not(test), expect(dead_code, reason = "the documentation is held to it by a test"))]
    pub(super) purpose: &'static str,
    pub(super) calls: &'static [&'static [Call]],
}

macro_rules! calls {
    ($($name:ident $number:ident $(: $only:expr)?),+ $(,)?) => {
        &[$(Call { name: stringify!($name), number: libc::$number, only: calls!(@only $($only)?) }),+]
    };
    (@only) => { Only::Any };
    (@only $only:expr) => { $only };
}

/// The bits of an `int` as the kernel sees them.
const fn bits(flags: libc::c_int) -> u64 {
    flags.cast_unsigned() as u64
}

/// Executable memory is never requested.
const DATA: Only = Only::Bits { argument: 2, mask: bits(libc::PROT_EXEC), value: 0 };

/// A new thread of this process, in the same namespaces.
const THREAD: Only = Only::Bits {
    argument: 0,
    mask: bits(
        libc::CLONE_THREAD
            | libc::CLONE_NEWCGROUP
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWNET
            | libc::CLONE_NEWNS
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWUSER
            | libc::CLONE_NEWUTS,
    ),
    value: bits(libc::CLONE_THREAD),
};

/// The kernel's `O_ACCMODE` (asm-generic/fcntl.h). musl's constant includes `O_PATH`, which opens nothing for
/// writing.
const ACCESS: libc::c_int = 3;

const fn reading(argument: u8) -> Only {
    Only::Bits { argument, mask: bits(ACCESS | libc::O_CREAT | libc::O_TRUNC), value: 0 }
}

const NAME: Only = Only::One { argument: 0, of: &[bits(libc::PR_SET_NAME)] };

const DESCRIPTOR: Only = Only::One {
    argument: 1,
    of: &[
        bits(libc::F_DUPFD),
        bits(libc::F_DUPFD_CLOEXEC),
        bits(libc::F_GETFD),
        bits(libc::F_SETFD),
        bits(libc::F_GETFL),
        bits(libc::F_SETFL),
    ],
};

/// Non-blocking mode, terminal tests and size, stopping a perf event (`FIONBIO`, `TCGETS`, `TIOCGWINSZ`,
/// `PERF_EVENT_IOC_DISABLE`).
const CONTROL: Only = Only::One { argument: 1, of: &[0x5421, 0x5401, 0x5413, 0x2401] };

const LOCAL: Only = Only::One { argument: 0, of: &[bits(libc::AF_UNIX)] };

/// `BPF_MAP_LOOKUP_ELEM`, `BPF_OBJ_GET_INFO_BY_FD` (linux/bpf.h).
const COUNTERS: Only = Only::One { argument: 0, of: &[1, 15] };

/// Calls that end the process.
pub(super) const KILL: Group = Group {
    purpose: "ends the process",
    calls: &[calls![
        execve SYS_execve,
        execveat SYS_execveat,
        ptrace SYS_ptrace,
        process_vm_readv SYS_process_vm_readv,
        process_vm_writev SYS_process_vm_writev,
        init_module SYS_init_module,
        finit_module SYS_finit_module,
        delete_module SYS_delete_module,
        kexec_load SYS_kexec_load,
        reboot SYS_reboot,
        mount SYS_mount,
        umount2 SYS_umount2,
        move_mount SYS_move_mount,
        pivot_root SYS_pivot_root,
        chroot SYS_chroot,
        setns SYS_setns,
        unshare SYS_unshare,
        open_by_handle_at SYS_open_by_handle_at,
        userfaultfd SYS_userfaultfd,
        io_uring_setup SYS_io_uring_setup,
        swapon SYS_swapon,
        swapoff SYS_swapoff,
    ]],
};

/// Calls that fail with `ENOSYS`.
pub(super) const ENOSYS: Group =
    Group { purpose: "is not there", calls: &[calls![clone3 SYS_clone3, openat2 SYS_openat2]] };

/// Reads a limit and sets none: `new_limit` is null.
const READ_LIMIT: Only = Only::Bits { argument: 2, mask: u64::MAX, value: 0 };

/// Sends to the connected peer: `dest_addr` is null.
const UNADDRESSED: Only = Only::Bits { argument: 4, mask: u64::MAX, value: 0 };

/// Memory, threads, time and open files: for every role. `sendto` is there because the thread that gets a
/// signal informs the main thread over a socket, with send(2).
const COMMON: Group = Group {
    purpose: "memory, threads, time, what is open",
    calls: &[
        calls![
            brk SYS_brk,
            mmap SYS_mmap: DATA,
            mprotect SYS_mprotect: DATA,
            mremap SYS_mremap,
            munmap SYS_munmap,
            madvise SYS_madvise,
            clone SYS_clone: THREAD,
            set_robust_list SYS_set_robust_list,
            rseq SYS_rseq,
            prctl SYS_prctl: NAME,
            futex SYS_futex,
            membarrier SYS_membarrier,
            sched_yield SYS_sched_yield,
            sched_getaffinity SYS_sched_getaffinity,
            getpid SYS_getpid,
            gettid SYS_gettid,
            getrandom SYS_getrandom,
            getrusage SYS_getrusage,
            prlimit64 SYS_prlimit64: READ_LIMIT,
            sysinfo SYS_sysinfo,
            uname SYS_uname,
            rt_sigaction SYS_rt_sigaction,
            rt_sigprocmask SYS_rt_sigprocmask,
            rt_sigreturn SYS_rt_sigreturn,
            sigaltstack SYS_sigaltstack,
            restart_syscall SYS_restart_syscall,
            tgkill SYS_tgkill: Only::Own,
            exit SYS_exit,
            exit_group SYS_exit_group,
            clock_gettime SYS_clock_gettime,
            clock_nanosleep SYS_clock_nanosleep,
            nanosleep SYS_nanosleep,
            gettimeofday SYS_gettimeofday,
            read SYS_read,
            readv SYS_readv,
            pread64 SYS_pread64,
            write SYS_write,
            writev SYS_writev,
            sendto SYS_sendto: UNADDRESSED,
            lseek SYS_lseek,
            fstat SYS_fstat,
            close SYS_close,
            fcntl SYS_fcntl: DESCRIPTOR,
            ioctl SYS_ioctl: CONTROL,
            epoll_create1 SYS_epoll_create1,
            epoll_ctl SYS_epoll_ctl,
            epoll_pwait SYS_epoll_pwait,
            epoll_pwait2 SYS_epoll_pwait2,
            eventfd2 SYS_eventfd2,
            ppoll SYS_ppoll,
        ],
        OLD_COMMON,
    ],
};
#[cfg(target_arch = "x86_64")]
const OLD_COMMON: &[Call] = calls![epoll_wait SYS_epoll_wait, poll SYS_poll];
#[cfg(not(target_arch = "x86_64"))]
const OLD_COMMON: &[Call] = &[];

/// Reading files: an open for writing or creating is refused, and so is `openat2`, whose flags are in memory.
const LOOK: Group = Group {
    purpose: "looking at files",
    calls: &[
        calls![
            openat SYS_openat: reading(2),
            newfstatat SYS_newfstatat,
            statx SYS_statx,
            fstatfs SYS_fstatfs,
            readlinkat SYS_readlinkat,
            getdents64 SYS_getdents64,
            faccessat SYS_faccessat,
        ],
        OLD_LOOK,
    ],
};
#[cfg(target_arch = "x86_64")]
const OLD_LOOK: &[Call] = calls![
    open SYS_open: reading(1),
    stat SYS_stat,
    lstat SYS_lstat,
    readlink SYS_readlink,
    access SYS_access,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_LOOK: &[Call] = &[];

/// Writing files of the state directory, or the log's.
const KEEP: Group = Group {
    purpose: "keeping files",
    calls: &[
        calls![
            openat SYS_openat,
            newfstatat SYS_newfstatat,
            statx SYS_statx,
            mkdirat SYS_mkdirat,
            renameat SYS_renameat,
            linkat SYS_linkat,
            unlinkat SYS_unlinkat,
            flock SYS_flock,
            fsync SYS_fsync,
            fdatasync SYS_fdatasync,
            ftruncate SYS_ftruncate,
            utimensat SYS_utimensat,
        ],
        OLD_KEEP,
    ],
};
#[cfg(target_arch = "x86_64")]
const OLD_KEEP: &[Call] = calls![
    open SYS_open,
    stat SYS_stat,
    lstat SYS_lstat,
    mkdir SYS_mkdir,
    rename SYS_rename,
    unlink SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_KEEP: &[Call] = &[];

/// Using an open socket.
const TALK: Group = Group {
    purpose: "talking on a socket",
    calls: &[calls![
        sendmsg SYS_sendmsg,
        recvfrom SYS_recvfrom,
        recvmsg SYS_recvmsg,
    ]],
};

/// Asking a runtime.
const ASK: Group = Group {
    purpose: "asking a runtime",
    calls: &[calls![
        socket SYS_socket: LOCAL,
        connect SYS_connect,
        getsockopt SYS_getsockopt,
        shutdown SYS_shutdown,
    ]],
};

/// Answering clients.
const ANSWER: Group = Group {
    purpose: "answering clients",
    calls: &[calls![
        accept4 SYS_accept4,
        getsockopt SYS_getsockopt,
        setsockopt SYS_setsockopt,
        getsockname SYS_getsockname,
        getpeername SYS_getpeername,
        shutdown SYS_shutdown,
    ]],
};

/// `FIONREAD`: a resolver asks how many bytes have come.
const CONTROL_OR_COUNT: Only = Only::One { argument: 1, of: &[0x5421, 0x5401, 0x5413, 0x2401, 0x541b] };

/// Sockets of the network. The C library asks over netlink which addresses this machine has.
const NETWORK: Only = Only::One {
    argument: 0,
    of: &[bits(libc::AF_INET), bits(libc::AF_INET6), bits(libc::AF_NETLINK), bits(libc::AF_UNIX)],
};

/// Reaching a server on another machine, by its name. Local sockets are hidden by [`NO_LOCAL`].
const REACH: Group = Group {
    purpose: "reaching another machine",
    calls: &[calls![
        socket SYS_socket: NETWORK,
        bind SYS_bind,
        connect SYS_connect,
        sendto SYS_sendto,
        sendmmsg SYS_sendmmsg,
        getsockopt SYS_getsockopt,
        setsockopt SYS_setsockopt,
        getsockname SYS_getsockname,
        getpeername SYS_getpeername,
        shutdown SYS_shutdown,
        ioctl SYS_ioctl: CONTROL_OR_COUNT,
    ]],
};

/// Local sockets, for roles that reach another machine: a C library that asks nscd goes on without it.
pub(super) const NO_LOCAL: Group = Group {
    purpose: "is not there for who reaches another machine",
    calls: &[calls![socket SYS_socket: LOCAL]],
};

/// Removing the socket at the end, if Landlock limits it to that file.
pub(super) const REMOVE: Group = Group {
    purpose: "removing its socket, where there is Landlock",
    calls: &[calls![unlinkat SYS_unlinkat], OLD_REMOVE],
};
#[cfg(target_arch = "x86_64")]
const OLD_REMOVE: &[Call] = calls![unlink SYS_unlink];
#[cfg(not(target_arch = "x86_64"))]
const OLD_REMOVE: &[Call] = &[];

/// Listening on a port that another process had at the start. The socket was made before.
pub(super) const OPEN: Group = Group {
    purpose: "listening where another process did",
    calls: &[calls![bind SYS_bind, listen SYS_listen]],
};

/// Taking the path of a socket that another process had, if Landlock limits that to the socket's folder.
pub(super) const TAKE: Group = Group {
    purpose: "taking the path of another's socket, where there is Landlock",
    calls: &[calls![connect SYS_connect, renameat SYS_renameat], OLD_TAKE],
};
#[cfg(target_arch = "x86_64")]
const OLD_TAKE: &[Call] = calls![rename SYS_rename];
#[cfg(not(target_arch = "x86_64"))]
const OLD_TAKE: &[Call] = &[];

/// Reading counters.
const COUNT: Group = Group { purpose: "reading counters", calls: &[calls![bpf SYS_bpf: COUNTERS]] };

pub(super) fn of(role: Role) -> &'static [&'static Group] {
    match role {
        Role::Netlink => &[&COMMON, &LOOK, &TALK],
        Role::Files => &[&COMMON, &LOOK, &TALK, &ASK],
        Role::Store | Role::Log => &[&COMMON, &KEEP],
        Role::Writer => &[&COMMON],
        // If several groups have a call, the condition of the last one holds.
        Role::Export | Role::Kubernetes => &[&COMMON, &LOOK, &TALK, &REACH],
        Role::Agent => &[&COMMON, &LOOK, &TALK, &COUNT],
        Role::Server => &[&COMMON, &LOOK, &TALK, &ANSWER],
    }
}

#[cfg(test)]
mod tests;
