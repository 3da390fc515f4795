//! Read-only globals that the loader sets before the programs are loaded.
//!
//! `Offsets` come from the running kernel's BTF: no offset is written down anywhere in the eBPF crate. A member
//! that this kernel lacks is `ABSENT`; only programs that are then not attached would have read it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The offset of a member that the running kernel does not have.
pub const ABSENT: u32 = u32::MAX;

/// Byte offsets of kernel struct members, named `struct_member`. The global's name is `OFFSETS`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Offsets {
    pub task_mm: u32,
    pub task_pid: u32,
    pub task_tgid: u32,
    pub task_real_parent: u32,
    pub task_group_leader: u32,
    pub task_exit_code: u32,
    pub task_start_boottime: u32,
    pub task_comm: u32,
    pub task_nsproxy: u32,
    pub task_thread_pid: u32,
    pub task_cgroups: u32,
    pub task_signal: u32,
    pub task_cred: u32,
    pub cred_uid: u32,
    pub cred_euid: u32,
    pub cred_user_ns: u32,
    pub user_ns_level: u32,
    pub signal_live: u32,
    pub signal_group_exit_code: u32,
    pub mm_arg_start: u32,
    pub mm_arg_end: u32,
    pub mm_env_start: u32,
    pub mm_env_end: u32,
    pub mm_exe_file: u32,
    pub file_inode: u32,
    pub inode_mode: u32,
    pub binprm_filename: u32,
    pub nsproxy_net_ns: u32,
    pub nsproxy_mnt_ns: u32,
    pub mnt_ns_inum: u32,
    pub pid_ns_inum: u32,
    pub pid_level: u32,
    pub pid_numbers: u32,
    pub upid_size: u32,
    pub upid_nr: u32,
    pub upid_ns: u32,
    pub css_set_dfl_cgrp: u32,
    pub css_set_subsys: u32,
    pub css_cgroup: u32,
    pub css_parent: u32,
    pub cgroup_self: u32,
    pub cgroup_kn: u32,
    pub cgroup_root: u32,
    pub cgroup_level: u32,
    pub cgroup_root_hierarchy_id: u32,
    pub kernfs_node_id: u32,
    pub kernfs_node_name: u32,
    pub siginfo_code: u32,
    pub net_inum: u32,
    pub net_cookie: u32,
    pub net_ns: u32,
    /// The counter of active references, from the start of `struct net`.
    pub net_refcount: u32,
    pub work_data: u32,
    pub work_func: u32,
    pub in_ifaddr_local: u32,
    pub in_ifaddr_prefixlen: u32,
    pub in_ifaddr_scope: u32,
    pub in_ifaddr_flags: u32,
    pub in_ifaddr_dev: u32,
    pub in_device_dev: u32,
    pub inet6_ifaddr_addr: u32,
    pub inet6_ifaddr_prefix_len: u32,
    pub inet6_ifaddr_scope: u32,
    pub inet6_ifaddr_flags: u32,
    pub inet6_ifaddr_idev: u32,
    pub inet6_dev_dev: u32,
    pub net_device_name: u32,
    pub net_device_ifindex: u32,
    pub net_device_net: u32,
    pub sock_num: u32,
    pub sock_family: u32,
}

impl Offsets {
    pub const NONE: Self = Self {
        task_mm: ABSENT,
        task_pid: ABSENT,
        task_tgid: ABSENT,
        task_real_parent: ABSENT,
        task_group_leader: ABSENT,
        task_exit_code: ABSENT,
        task_start_boottime: ABSENT,
        task_comm: ABSENT,
        task_nsproxy: ABSENT,
        task_thread_pid: ABSENT,
        task_cgroups: ABSENT,
        task_signal: ABSENT,
        task_cred: ABSENT,
        cred_uid: ABSENT,
        cred_euid: ABSENT,
        cred_user_ns: ABSENT,
        user_ns_level: ABSENT,
        signal_live: ABSENT,
        signal_group_exit_code: ABSENT,
        mm_arg_start: ABSENT,
        mm_arg_end: ABSENT,
        mm_env_start: ABSENT,
        mm_env_end: ABSENT,
        mm_exe_file: ABSENT,
        file_inode: ABSENT,
        inode_mode: ABSENT,
        binprm_filename: ABSENT,
        nsproxy_net_ns: ABSENT,
        nsproxy_mnt_ns: ABSENT,
        mnt_ns_inum: ABSENT,
        pid_ns_inum: ABSENT,
        pid_level: ABSENT,
        pid_numbers: ABSENT,
        upid_size: ABSENT,
        upid_nr: ABSENT,
        upid_ns: ABSENT,
        css_set_dfl_cgrp: ABSENT,
        css_set_subsys: ABSENT,
        css_cgroup: ABSENT,
        css_parent: ABSENT,
        cgroup_self: ABSENT,
        cgroup_kn: ABSENT,
        cgroup_root: ABSENT,
        cgroup_level: ABSENT,
        cgroup_root_hierarchy_id: ABSENT,
        kernfs_node_id: ABSENT,
        kernfs_node_name: ABSENT,
        siginfo_code: ABSENT,
        net_inum: ABSENT,
        net_cookie: ABSENT,
        net_ns: ABSENT,
        net_refcount: ABSENT,
        work_data: ABSENT,
        work_func: ABSENT,
        in_ifaddr_local: ABSENT,
        in_ifaddr_prefixlen: ABSENT,
        in_ifaddr_scope: ABSENT,
        in_ifaddr_flags: ABSENT,
        in_ifaddr_dev: ABSENT,
        in_device_dev: ABSENT,
        inet6_ifaddr_addr: ABSENT,
        inet6_ifaddr_prefix_len: ABSENT,
        inet6_ifaddr_scope: ABSENT,
        inet6_ifaddr_flags: ABSENT,
        inet6_ifaddr_idev: ABSENT,
        inet6_dev_dev: ABSENT,
        net_device_name: ABSENT,
        net_device_ifindex: ABSENT,
        net_device_net: ABSENT,
        sock_num: ABSENT,
        sock_family: ABSENT,
    };
}

/// What the agent was asked for and what it found out about this node. The global's name is `SWITCHES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Switches {
    /// Address of `cleanup_net`, from kallsyms; 0 = not found.
    pub cleanup_net: u64,
    /// Id of the cgroup at the root of the node's own cgroup namespace, where a walk up ends. Not the hierarchy's
    /// root where the node is itself a container (kind, k3d).
    pub root_cgroup: u64,
    /// The hierarchy whose cgroups identify containers (`cgroup_root.hierarchy_id`); 0 = cgroup v2.
    pub hierarchy: u32,
    /// Index into `css_set.subsys` of a controller of that hierarchy; `ABSENT` on v2.
    pub subsys: u32,
    /// Inode of the pid namespace that the node's runtimes are in.
    pub host_pid_ns: u32,
    /// Inode of the initial network namespace, whose reference count means nothing on 7.2.
    pub init_netns: u32,
    /// 1 = every exec is emitted, on the bulk ring.
    pub all_execs: u32,
    /// 1 = `mark_victim` passes a `task_struct *` (6.8 and later), 0 = a pid.
    pub oom_passes_task: u32,
    /// How many network namespaces the tier without kprobes and fentry keeps an eye on: a power of two, at most
    /// `NETS_MAX`.
    pub nets: u32,
    pub _pad: [u8; 4],
}

/// The most that `Switches::nets` can be.
pub const NETS_MAX: u32 = 1024;

impl Switches {
    /// Everything off, nothing known.
    pub const NONE: Self = Self {
        cleanup_net: 0,
        root_cgroup: 0,
        hierarchy: 0,
        subsys: ABSENT,
        host_pid_ns: 0,
        init_netns: 0,
        all_execs: 0,
        oom_passes_task: 0,
        nets: NETS_MAX,
        _pad: [0; 4],
    };
}
