//! Read-only globals that the loader sets before the programs are loaded.
//!
//! `Offsets` come from the running kernel's BTF: no offset is written down anywhere in the eBPF crate. A new
//! one is a line here. A member that this kernel lacks is `ABSENT`; only programs that are then not attached
//! would have read it.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The offset of a member that the running kernel does not have.
pub const ABSENT: u32 = u32::MAX;

/// A member of a kernel struct, as the kernel's BTF names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its field in [`Offsets`].
    pub name: &'static str,
    pub of: &'static str,
    /// Its path through embedded structs, by every name that it had in some kernel, the latest first. Empty:
    /// the struct's own size.
    pub paths: &'static [&'static str],
    /// Whether every supported kernel has it. The other members are read only by the programs of some
    /// signals, which are left out without it.
    pub needed: bool,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.of)?;
        match self.paths {
            [] => Ok(()),
            [path, ..] => write!(f, ".{path}"),
        }
    }
}

/// Makes, from one line for each member, the struct of their offsets, how they are looked up, and their
/// names.
macro_rules! offsets {
    ($($(#[$doc:meta])* $field:ident: $need:ident $of:ident, [$($path:literal),*];)*) => {
        /// Byte offsets of kernel struct members, named `struct_member`. The global's name is `OFFSETS`.
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub struct Offsets {
            $($(#[$doc])* pub $field: u32,)*
        }

        impl Offsets {
            pub const NONE: Self = Self { $($field: ABSENT,)* };

            /// Every member, in the order of the fields.
            pub const MEMBERS: &'static [Member] = &[$(Member {
                name: stringify!($field),
                of: stringify!($of),
                paths: &[$($path),*],
                needed: offsets!(@$need),
            },)*];

            /// Makes the offsets that `find` returns.
            pub fn find(mut find: impl FnMut(&'static Member) -> Option<u32>) -> Self {
                let mut offsets = [ABSENT; Self::MEMBERS.len()];
                for (offset, member) in offsets.iter_mut().zip(Self::MEMBERS) {
                    *offset = find(member).unwrap_or(ABSENT);
                }
                let [$($field),*] = offsets;
                Self { $($field),* }
            }

            /// Returns the offset in the field of this name.
            #[must_use]
            pub fn named(&self, name: &str) -> Option<u32> {
                match name {
                    $(stringify!($field) => Some(self.$field),)*
                    _ => None,
                }
            }
        }
    };
    (@needs) => { true };
    (@may) => { false };
}

offsets! {
    task_mm: needs task_struct, ["mm"];
    task_pid: needs task_struct, ["pid"];
    task_tgid: needs task_struct, ["tgid"];
    task_real_parent: needs task_struct, ["real_parent"];
    task_group_leader: needs task_struct, ["group_leader"];
    task_exit_code: needs task_struct, ["exit_code"];
    task_start_boottime: needs task_struct, ["start_boottime"];
    task_comm: needs task_struct, ["comm"];
    task_nsproxy: needs task_struct, ["nsproxy"];
    task_thread_pid: needs task_struct, ["thread_pid"];
    task_cgroups: needs task_struct, ["cgroups"];
    task_signal: needs task_struct, ["signal"];
    task_files: needs task_struct, ["files"];
    task_cred: needs task_struct, ["cred"];
    cred_uid: needs cred, ["uid"];
    cred_euid: needs cred, ["euid"];
    cred_user_ns: needs cred, ["user_ns"];
    user_ns_level: needs user_namespace, ["level"];
    signal_live: needs signal_struct, ["live"];
    signal_group_exit_code: needs signal_struct, ["group_exit_code"];
    mm_arg_start: needs mm_struct, ["arg_start"];
    mm_arg_end: needs mm_struct, ["arg_end"];
    mm_env_start: needs mm_struct, ["env_start"];
    mm_env_end: needs mm_struct, ["env_end"];
    mm_exe_file: needs mm_struct, ["exe_file"];
    files_fdt: needs files_struct, ["fdt"];
    fdt_fd: needs fdtable, ["fd"];
    file_inode: needs file, ["f_inode"];
    inode_mode: needs inode, ["i_mode"];
    binprm_filename: needs linux_binprm, ["filename"];
    binprm_interp: needs linux_binprm, ["interp"];
    binprm_argc: needs linux_binprm, ["argc"];
    nsproxy_net_ns: needs nsproxy, ["net_ns"];
    nsproxy_mnt_ns: needs nsproxy, ["mnt_ns"];
    mnt_ns_inum: needs mnt_namespace, ["ns.inum"];
    pid_ns_inum: needs pid_namespace, ["ns.inum"];
    pid_level: needs pid, ["level"];
    pid_numbers: needs pid, ["numbers"];
    /// The size of the whole struct.
    upid_size: needs upid, [];
    upid_nr: needs upid, ["nr"];
    upid_ns: needs upid, ["ns"];
    css_set_dfl_cgrp: needs css_set, ["dfl_cgrp"];
    css_set_subsys: needs css_set, ["subsys"];
    css_cgroup: needs cgroup_subsys_state, ["cgroup"];
    css_parent: needs cgroup_subsys_state, ["parent"];
    cgroup_self: needs cgroup, ["self"];
    cgroup_kn: needs cgroup, ["kn"];
    cgroup_root: needs cgroup, ["root"];
    cgroup_level: needs cgroup, ["level"];
    cgroup_root_hierarchy_id: needs cgroup_root, ["hierarchy_id"];
    kernfs_node_id: needs kernfs_node, ["id"];
    kernfs_node_name: needs kernfs_node, ["name"];
    siginfo_code: needs kernel_siginfo, ["si_code"];
    net_inum: needs net, ["ns.inum"];
    /// Before 5.14 this is an `atomic64_t`, whose only member is the number.
    net_cookie: may net, ["net_cookie"];
    net_ns: needs net, ["ns"];
    /// The counter of active references. It moved into `ns_common` in 5.11 and was renamed in 6.18.
    net_refcount: may net, ["ns.__ns_ref", "ns.count", "count"];
    work_data: may work_struct, ["data"];
    work_func: may work_struct, ["func"];
    in_ifaddr_local: may in_ifaddr, ["ifa_local"];
    in_ifaddr_prefixlen: may in_ifaddr, ["ifa_prefixlen"];
    in_ifaddr_scope: may in_ifaddr, ["ifa_scope"];
    in_ifaddr_flags: may in_ifaddr, ["ifa_flags"];
    in_ifaddr_dev: may in_ifaddr, ["ifa_dev"];
    in_device_dev: may in_device, ["dev"];
    // IPv6 may be a module, whose types are not in the kernel's own BTF.
    inet6_ifaddr_addr: may inet6_ifaddr, ["addr"];
    inet6_ifaddr_prefix_len: may inet6_ifaddr, ["prefix_len"];
    inet6_ifaddr_scope: may inet6_ifaddr, ["scope"];
    inet6_ifaddr_flags: may inet6_ifaddr, ["flags"];
    inet6_ifaddr_idev: may inet6_ifaddr, ["idev"];
    inet6_dev_dev: may inet6_dev, ["dev"];
    net_device_name: may net_device, ["name"];
    net_device_ifindex: may net_device, ["ifindex"];
    net_device_net: may net_device, ["nd_net.net"];
    sock_num: may sock, ["__sk_common.skc_num"];
    sock_family: may sock, ["__sk_common.skc_family"];
}

/// What the agent was asked for, and what it found out about this node. The global's name is `SWITCHES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Switches {
    /// Address of `cleanup_net`, from kallsyms; 0 = not found.
    pub cleanup_net: u64,
    /// If no agent has read for this many nanoseconds, the programs do nothing.
    pub patience: u64,
    /// Id of the cgroup at the root of the node's own cgroup namespace, where a walk up ends. It is not the
    /// hierarchy's root if the node is itself a container (kind, k3d).
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
    /// How many network namespaces the tier without kprobes and fentry can track: a power of two, at most
    /// `NETS_MAX`.
    pub nets: u32,
    pub _pad: [u8; 4],
}

/// The most that `Switches::nets` can be.
pub const NETS_MAX: u32 = 1024;

impl Switches {
    /// Everything off, and nothing known.
    pub const NONE: Self = Self {
        cleanup_net: 0,
        patience: i64::MAX as u64,
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
