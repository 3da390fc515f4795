//! What the loader tells the eBPF programs of this kernel and this node: offsets and switches.

use std::path::Path;

use nix::errno::Errno;
use probe_common::knob::{ABSENT, NETS_MAX, Offsets, Switches};

use super::{btf::Btf, error::Error};
use crate::source::{
    cgroup::Hierarchy,
    host::{HostRoot, ReadError},
};

/// Looks up every member. What only hooks of one kind read may be absent; `plan` then leaves those out.
pub(super) fn offsets(btf: &Btf) -> Result<Offsets, Error> {
    let mut missing = Vec::new();
    let mut need = |name: &str, path: &str| {
        btf.member(name, path).unwrap_or_else(|| {
            missing.push(format!("{name}.{path}"));
            ABSENT
        })
    };
    let like = |name: &str, path: &str| btf.member(name, path).unwrap_or(ABSENT);
    let offsets = Offsets {
        task_mm: need("task_struct", "mm"),
        task_pid: need("task_struct", "pid"),
        task_tgid: need("task_struct", "tgid"),
        task_real_parent: need("task_struct", "real_parent"),
        task_group_leader: need("task_struct", "group_leader"),
        task_exit_code: need("task_struct", "exit_code"),
        task_start_boottime: need("task_struct", "start_boottime"),
        task_comm: need("task_struct", "comm"),
        task_nsproxy: need("task_struct", "nsproxy"),
        task_thread_pid: need("task_struct", "thread_pid"),
        task_cgroups: need("task_struct", "cgroups"),
        task_signal: need("task_struct", "signal"),
        task_cred: need("task_struct", "cred"),
        cred_uid: need("cred", "uid"),
        cred_euid: need("cred", "euid"),
        cred_user_ns: need("cred", "user_ns"),
        user_ns_level: need("user_namespace", "level"),
        signal_live: need("signal_struct", "live"),
        signal_group_exit_code: need("signal_struct", "group_exit_code"),
        mm_arg_start: need("mm_struct", "arg_start"),
        mm_arg_end: need("mm_struct", "arg_end"),
        mm_env_start: need("mm_struct", "env_start"),
        mm_env_end: need("mm_struct", "env_end"),
        mm_exe_file: need("mm_struct", "exe_file"),
        file_inode: need("file", "f_inode"),
        inode_mode: need("inode", "i_mode"),
        binprm_filename: need("linux_binprm", "filename"),
        nsproxy_net_ns: need("nsproxy", "net_ns"),
        nsproxy_mnt_ns: need("nsproxy", "mnt_ns"),
        mnt_ns_inum: need("mnt_namespace", "ns.inum"),
        pid_ns_inum: need("pid_namespace", "ns.inum"),
        pid_level: need("pid", "level"),
        pid_numbers: need("pid", "numbers"),
        upid_size: btf.size("upid").unwrap_or(ABSENT),
        upid_nr: need("upid", "nr"),
        upid_ns: need("upid", "ns"),
        css_set_dfl_cgrp: need("css_set", "dfl_cgrp"),
        css_set_subsys: need("css_set", "subsys"),
        css_cgroup: need("cgroup_subsys_state", "cgroup"),
        css_parent: need("cgroup_subsys_state", "parent"),
        cgroup_self: need("cgroup", "self"),
        cgroup_kn: need("cgroup", "kn"),
        cgroup_root: need("cgroup", "root"),
        cgroup_level: need("cgroup", "level"),
        cgroup_root_hierarchy_id: need("cgroup_root", "hierarchy_id"),
        kernfs_node_id: need("kernfs_node", "id"),
        kernfs_node_name: need("kernfs_node", "name"),
        siginfo_code: need("kernel_siginfo", "si_code"),
        net_inum: need("net", "ns.inum"),
        // Before 5.14 an `atomic64_t`, whose only member is the number.
        net_cookie: like("net", "net_cookie"),
        net_ns: need("net", "ns"),
        // It moved into `ns_common` in 5.11 and was renamed in 6.18.
        net_refcount: ["ns.__ns_ref", "ns.count", "count"]
            .iter()
            .find_map(|path| btf.member("net", path))
            .unwrap_or(ABSENT),
        work_data: like("work_struct", "data"),
        work_func: like("work_struct", "func"),
        in_ifaddr_local: like("in_ifaddr", "ifa_local"),
        in_ifaddr_prefixlen: like("in_ifaddr", "ifa_prefixlen"),
        in_ifaddr_scope: like("in_ifaddr", "ifa_scope"),
        in_ifaddr_flags: like("in_ifaddr", "ifa_flags"),
        in_ifaddr_dev: like("in_ifaddr", "ifa_dev"),
        in_device_dev: like("in_device", "dev"),
        // Absent where IPv6 is a module, whose types are not in the kernel's own BTF.
        inet6_ifaddr_addr: like("inet6_ifaddr", "addr"),
        inet6_ifaddr_prefix_len: like("inet6_ifaddr", "prefix_len"),
        inet6_ifaddr_scope: like("inet6_ifaddr", "scope"),
        inet6_ifaddr_flags: like("inet6_ifaddr", "flags"),
        inet6_ifaddr_idev: like("inet6_ifaddr", "idev"),
        inet6_dev_dev: like("inet6_dev", "dev"),
        net_device_name: like("net_device", "name"),
        net_device_ifindex: like("net_device", "ifindex"),
        net_device_net: like("net_device", "nd_net.net"),
        sock_num: like("sock", "__sk_common.skc_num"),
        sock_family: like("sock", "__sk_common.skc_family"),
    };
    if offsets.upid_size == ABSENT {
        missing.push("upid".to_owned());
    }
    if missing.is_empty() { Ok(offsets) } else { Err(Error::Members(missing.join(", "))) }
}

/// What holds on this node for the hierarchy that identifies containers. `cleanup_net` is the address of the work function
/// that takes network namespaces down; 0 if it is not told.
pub(super) fn switches(
    btf: &Btf,
    root: &HostRoot,
    hierarchy: &Hierarchy,
    all_execs: bool,
    cleanup_net: u64,
    nets: u32,
) -> Result<Switches, Error> {
    Ok(Switches {
        cleanup_net,
        root_cgroup: root.folder(&hierarchy.mount).and_then(|folder| folder.inode()).unwrap_or(0),
        hierarchy: hierarchy.id,
        subsys: subsys(btf, hierarchy)?,
        host_pid_ns: namespace(root, "pid")?,
        // In a node that is a container (kind) the first process has a namespace of its own, which is not the
        // initial one; kernels that number it for good say so.
        init_netns: match btf.enumerator("init_ns_ino", "NET_NS_INIT_INO") {
            Some(inode) => inode,
            None => namespace(root, "net")?,
        },
        all_execs: all_execs.into(),
        oom_passes_task: btf.tracepoint_passes_pointer("mark_victim", 0).unwrap_or(false).into(),
        nets: nets.clamp(1, NETS_MAX).next_power_of_two(),
        _pad: [0; 4],
    })
}

/// On cgroup v1, which of a task's subsystems leads to the hierarchy.
fn subsys(btf: &Btf, hierarchy: &Hierarchy) -> Result<u32, Error> {
    if hierarchy.id == 0 {
        return Ok(ABSENT);
    }
    hierarchy
        .controllers
        .iter()
        .find_map(|controller| btf.enumerator("cgroup_subsys_id", &format!("{controller}_cgrp_id")))
        .ok_or_else(|| Error::Members(format!("a cgroup controller of {}", hierarchy.mount)))
}

/// The inode of the namespace of the node's first process. That may have capabilities which this one has not, and
/// then is not to be looked at: in such a place both have the same.
fn namespace(root: &HostRoot, kind: &str) -> Result<u32, Error> {
    const FIRST: &str = "/proc/1/ns";
    let link = match root.folder(FIRST).and_then(|folder| folder.link(kind)) {
        Err(ReadError::Unreadable(Errno::EACCES)) => HostRoot::open(Path::new("/"))
            .map_err(|error| Error::Namespaces { path: FIRST, why: error.to_string() })?
            .folder("/proc/thread-self/ns")
            .and_then(|folder| folder.link(kind)),
        link => link,
    };
    let inode = link.and_then(|link| inode_of(&link).ok_or(ReadError::Malformed));
    inode.map_err(|miss| Error::Namespaces { path: FIRST, why: miss.to_string() })
}

/// `pid:[4026531836]`
fn inode_of(link: &str) -> Option<u32> {
    link.split_once(":[")?.1.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::inode_of;

    #[test]
    fn a_namespace_link_holds_its_inode() {
        assert_eq!(inode_of("pid:[4026531836]"), Some(4_026_531_836));
        assert_eq!(inode_of("pid:[x]"), None);
        assert_eq!(inode_of("pid"), None);
    }
}
