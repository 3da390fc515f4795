//! `struct task_struct` and what it points to.

use aya_ebpf::helpers::generated::bpf_get_current_task;
use probe_common::{event, id::TaskKey, text::Comm};

use super::{
    cgroup::{Cgroup, Container},
    net::Net,
    offset, read, read_str,
};
use crate::branchless::is_zero;

/// A thread. Functions about the process read its leader.
#[derive(Clone, Copy)]
pub(crate) struct Task(u64);

impl Task {
    #[inline(always)]
    pub(crate) fn current() -> Self {
        // SAFETY: a helper without arguments.
        Self(unsafe { bpf_get_current_task() })
    }

    /// Returns the container that the current task belongs to.
    #[inline(always)]
    pub(crate) fn current_container() -> Container {
        match Container::of_current_id() {
            Some(container) => container,
            None => Self::current().cgroup().container(),
        }
    }

    /// `task` is a `struct task_struct *`.
    #[inline(always)]
    pub(crate) fn at(task: u64) -> Self {
        Self(task)
    }

    #[inline(always)]
    pub(crate) fn address(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub(crate) fn leader(self) -> Self {
        Self(read(self.0, offset!(task_group_leader)))
    }

    /// Returns the leader of the process that the kernel would notify of this one's end.
    #[inline(always)]
    pub(crate) fn parent(self) -> Self {
        Self(read(self.0, offset!(task_real_parent))).leader()
    }

    #[inline(always)]
    pub(crate) fn tgid(self) -> u32 {
        read(self.0, offset!(task_tgid))
    }

    #[inline(always)]
    pub(crate) fn key(self) -> TaskKey {
        TaskKey::new(self.tgid(), self.leader().start())
    }

    #[inline(always)]
    fn start(self) -> u64 {
        read(self.0, offset!(task_start_boottime))
    }

    /// Returns this thread's name. It is read as a string: before 5.17 the kernel leaves the rest of an
    /// older, longer name after the NUL.
    #[inline(always)]
    pub(crate) fn comm(self) -> Comm {
        let mut comm = [0; 16];
        read_str(&mut comm, self.0.wrapping_add(offset!(task_comm) as u64));
        Comm(comm)
    }

    /// Zero for a kernel thread, and on some kernels at exit.
    #[inline(always)]
    pub(crate) fn mm(self) -> u64 {
        read(self.0, offset!(task_mm))
    }

    #[inline(always)]
    pub(crate) fn cgroup(self) -> Cgroup {
        Cgroup::of_css_set(self.css_set())
    }

    #[inline(always)]
    fn css_set(self) -> u64 {
        read(self.0, offset!(task_cgroups))
    }

    /// Whether both are in the same cgroup of each hierarchy.
    #[inline(always)]
    pub(crate) fn shares_cgroups(self, other: Self) -> bool {
        self.css_set() == other.css_set()
    }

    #[inline(always)]
    fn nsproxy(self) -> u64 {
        read(self.0, offset!(task_nsproxy))
    }

    #[inline(always)]
    pub(crate) fn net(self) -> Net {
        Net::at(read(self.nsproxy(), offset!(nsproxy_net_ns)))
    }

    /// Whether its standard input is open and is not a character device. Nobody can hand a configuration to a
    /// process whose input is a terminal or `/dev/null`.
    #[inline(always)]
    pub(crate) fn is_given_input(self) -> bool {
        const TYPE: u16 = 0o170_000;
        const CHARACTER_DEVICE: u16 = 0o020_000;
        let files: u64 = read(self.0, offset!(task_files));
        let table: u64 = read(files, offset!(files_fdt));
        let first: u64 = read(read(table, offset!(fdt_fd)), 0);
        let mode: u16 = read(read::<u64>(first, offset!(file_inode)), offset!(inode_mode));
        mode & TYPE != 0 && mode & TYPE != CHARACTER_DEVICE
    }

    /// Returns 1 if it is root's in the initial user namespace. It is then neither the root of another user
    /// namespace nor a setuid program that a user started, to which the user can give any name by a link.
    #[inline(always)]
    pub(crate) fn is_root(self) -> u64 {
        task_is_root(self.0)
    }

    /// Returns 1 if it is root's and the file of its program is not setuid. A setuid program may call
    /// setuid(2) and be root's for good, under whatever name a user gave it. This is not asked of plugins:
    /// root itself calls some whose file is setuid (Calico's).
    #[inline(always)]
    pub(crate) fn is_root_by_itself(self) -> u64 {
        task_is_root_by_itself(self.0)
    }

    /// Returns the inode of its mount namespace.
    #[inline(always)]
    pub(crate) fn mnt_ns(self) -> u32 {
        read(read(self.nsproxy(), offset!(nsproxy_mnt_ns)), offset!(mnt_ns_inum))
    }

    /// Returns its pid in its own pid namespace, and that namespace's inode.
    #[inline(always)]
    pub(crate) fn pid_ns(self) -> (u32, u32) {
        let pid: u64 = read(self.0, offset!(task_thread_pid));
        let level: u32 = read(pid, offset!(pid_level));
        let upid = pid
            .wrapping_add(offset!(pid_numbers) as u64)
            .wrapping_add(u64::from(level).wrapping_mul(offset!(upid_size) as u64));
        let ns: u64 = read(upid, offset!(upid_ns));
        (read(upid, offset!(upid_nr)), read(ns, offset!(pid_ns_inum)))
    }

    /// Whether no thread of the process is left. Each thread lowers the count before it passes
    /// `sched_process_exit`, so this can hold for several threads that end at the same time.
    #[inline(always)]
    pub(crate) fn is_last(self) -> bool {
        let signal: u64 = read(self.0, offset!(task_signal));
        read::<u32>(signal, offset!(signal_live)) == 0
    }

    /// Returns the process's wait status, once its last thread ends. A single thread that called `exit` sets
    /// only its own.
    #[inline(always)]
    pub(crate) fn status(self) -> u32 {
        let signal: u64 = read(self.0, offset!(task_signal));
        let group: u32 = read(signal, offset!(signal_group_exit_code));
        let own: u32 = read(self.0, offset!(task_exit_code));
        if group != 0 { group } else { own }
    }

    #[inline(always)]
    pub(crate) fn describe(self) -> event::Task {
        let leader = self.leader();
        let parent = self.parent();
        event::Task {
            start: leader.start(),
            parent_start: parent.start(),
            cgroup: self.cgroup().id(),
            pid: self.tgid(),
            tid: read(self.0, offset!(task_pid)),
            parent: parent.tgid(),
            netns: self.net().inode(),
            comm: leader.comm(),
        }
    }
}

/// A function of its own, so that its stack is not also that of a caller of `container`: both share 512
/// bytes.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn task_is_root(task: u64) -> u64 {
    let cred: u64 = read(task, offset!(task_cred));
    let uid: u32 = read(cred, offset!(cred_uid));
    let euid: u32 = read(cred, offset!(cred_euid));
    let level: u32 = read(read::<u64>(cred, offset!(cred_user_ns)), offset!(user_ns_level));
    is_zero(u64::from(uid | euid | level))
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn task_is_root_by_itself(task: u64) -> u64 {
    const S_ISUID: u16 = 0o4000;
    let file: u64 = read(Task::at(task).mm(), offset!(mm_exe_file));
    let mode: u16 = read(read::<u64>(file, offset!(file_inode)), offset!(inode_mode));
    task_is_root(task) & is_zero(u64::from(mode & S_ISUID))
}
