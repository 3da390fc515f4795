//! The table of hooks: for each signal its mechanisms, the best first.
//!
//! If two mechanisms are equally good, the first is the one whose link can be pinned on every kernel: raw
//! tracepoints and fentry rather than perf events (tracepoints and kprobes before 5.15).

use crate::model::fact::{Mechanism, Signal};

/// A signal and its mechanisms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hook {
    pub signal: Signal,
    pub need: Need,
    /// The fields of `probe_common::knob::Offsets` that only its programs read, and that a kernel may lack.
    pub members: &'static [&'static str],
    pub tries: &'static [Try],
    /// Whether rtnetlink can report the signal if no mechanism works.
    pub netlink: bool,
}

/// The program whose skipped runs are no loss. It runs for each state change of each TCP connection, and
/// reports almost none of them. A segment that arrives by an interrupt within a run starts another run, which
/// the kernel skips (`__bpf_trace_run`, Linux 6.1 and later), many times a second on a busy node. `listen(2)`
/// is never called from there. A listening socket can be missed only if tasks are preempted within a run
/// (Linux 7).
pub(crate) const CROWDED: &str = "listen";

/// How important a signal is. A signal is `Core` only if loading a program is enough for it. An agent that
/// stops because it lacks a capability cannot be asked which one, and neither can a pod in a crash loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Need {
    /// The agent cannot work without it.
    Core,
    /// The stream is less complete without it.
    Nice,
}

/// The programs that together report a signal. All of them are attached, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Try {
    pub mechanism: Mechanism,
    pub programs: &'static [Program],
    /// What is less precise than with the mechanisms before; empty if nothing is.
    pub note: &'static str,
}

/// A program of the object, and the kernel function or tracepoint that it is attached to (`category:name` for
/// a tracepoint that is not raw).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    pub name: &'static str,
    pub target: &'static str,
    /// How many arguments the function must have: its return value follows them.
    pub arguments: Option<usize>,
}

impl Try {
    /// Returns the names of its programs.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.programs.iter().map(|program| program.name).collect()
    }
}

const fn program(name: &'static str, target: &'static str) -> Program {
    Program { name, target, arguments: None }
}

const fn exact(mechanism: Mechanism, programs: &'static [Program]) -> Try {
    Try { mechanism, programs, note: "" }
}

/// Makes the row of a signal with one mechanism.
const fn only(signal: Signal, need: Need, tries: &'static [Try]) -> Hook {
    Hook { signal, need, members: &[], tries, netlink: false }
}

pub(crate) const HOOKS: &[Hook] = &[
    only(
        Signal::Exec,
        Need::Core,
        &[exact(Mechanism::RawTracepoint, &[program("exec", "sched_process_exec")])],
    ),
    only(
        Signal::Exit,
        Need::Core,
        &[exact(Mechanism::RawTracepoint, &[program("exit", "sched_process_exit")])],
    ),
    only(
        Signal::FatalSignal,
        Need::Nice,
        &[exact(Mechanism::RawTracepoint, &[program("signal", "signal_generate")])],
    ),
    only(Signal::OomKill, Need::Nice, &[exact(Mechanism::RawTracepoint, &[program("oom", "mark_victim")])]),
    only(
        Signal::CgroupCreated,
        Need::Core,
        &[exact(Mechanism::RawTracepoint, &[program("cgroup_mkdir", "cgroup_mkdir")])],
    ),
    only(
        Signal::CgroupRemoved,
        Need::Core,
        &[exact(Mechanism::RawTracepoint, &[program("cgroup_rmdir", "cgroup_rmdir")])],
    ),
    only(
        Signal::CgroupReleased,
        Need::Nice,
        &[exact(Mechanism::RawTracepoint, &[program("cgroup_release", "cgroup_release")])],
    ),
    only(
        Signal::CgroupEntered,
        Need::Nice,
        &[exact(Mechanism::RawTracepoint, &[program("cgroup_attach", "cgroup_attach_task")])],
    ),
    only(
        Signal::CgroupEmptied,
        Need::Nice,
        &[exact(Mechanism::RawTracepoint, &[program("cgroup_emptied", "cgroup_notify_populated")])],
    ),
    Hook {
        signal: Signal::Listening,
        need: Need::Nice,
        members: &["sock_num", "sock_family"],
        tries: &[exact(Mechanism::RawTracepoint, &[program(CROWDED, "inet_sock_set_state")])],
        netlink: false,
    },
    Hook {
        signal: Signal::NetnsCreated,
        need: Need::Nice,
        members: &[],
        tries: &[
            exact(
                Mechanism::Fexit,
                &[Program { name: "fx_copy_net_ns", target: "copy_net_ns", arguments: Some(3) }],
            ),
            exact(Mechanism::Kretprobe, &[program("kr_copy_net_ns", "copy_net_ns")]),
            Try {
                mechanism: Mechanism::Tracepoint,
                programs: &[
                    program("netns_fork", "sched_process_fork"),
                    program("netns_unsharing", "syscalls:sys_enter_unshare"),
                    program("netns_unshare", "syscalls:sys_exit_unshare"),
                ],
                note: "syscall tracepoints make every system call of every process a little slower",
            },
        ],
        netlink: false,
    },
    Hook {
        signal: Signal::NetnsDropped,
        need: Need::Nice,
        members: &["net_refcount"],
        tries: &[
            exact(
                Mechanism::Fentry,
                &[program("fe_put_net", "__put_net"), program("fe_netns_put", "netns_put")],
            ),
            exact(
                Mechanism::Kprobe,
                &[program("kp_put_net", "__put_net"), program("kp_netns_put", "netns_put")],
            ),
            Try {
                mechanism: Mechanism::RawTracepoint,
                programs: &[
                    program("netns_exit", "sched_process_exit"),
                    program("netns_work", "workqueue_execute_start"),
                ],
                note: "the time is that of the kernel's clean-up, usually within a millisecond; of namespaces older \
                       than the hooks only those are seen in which a process has forked or ended since; of more than 1,024 \
                       at a time rtnetlink tells",
            },
        ],
        netlink: true,
    },
    Hook {
        signal: Signal::NetnsFreed,
        need: Need::Nice,
        members: &[],
        tries: &[
            exact(Mechanism::Fentry, &[program("fe_free_inum", "proc_free_inum")]),
            exact(Mechanism::Kprobe, &[program("kp_free_inum", "proc_free_inum")]),
            Try {
                mechanism: Mechanism::RawTracepoint,
                programs: &[program("netns_worked", "workqueue_execute_end")],
                note: "namespaces that end together are reported when the last of them is taken down",
            },
        ],
        netlink: false,
    },
    Hook {
        signal: Signal::AddressV4,
        need: Need::Nice,
        members: &[
            "in_ifaddr_local",
            "in_ifaddr_prefixlen",
            "in_ifaddr_dev",
            "in_device_dev",
            "net_device_net",
            "net_device_name",
        ],
        tries: &[
            exact(Mechanism::Fentry, &[program("fe_rtmsg_ifa", "rtmsg_ifa")]),
            exact(Mechanism::Kprobe, &[program("kp_rtmsg_ifa", "rtmsg_ifa")]),
        ],
        netlink: true,
    },
    Hook {
        signal: Signal::AddressV6,
        need: Need::Nice,
        members: &[
            "inet6_ifaddr_addr",
            "inet6_ifaddr_prefix_len",
            "inet6_ifaddr_flags",
            "inet6_ifaddr_idev",
            "inet6_dev_dev",
            "net_device_net",
            "net_device_name",
        ],
        tries: &[
            exact(Mechanism::Fentry, &[program("fe_ifa6_notify", "__ipv6_ifa_notify")]),
            exact(Mechanism::Kprobe, &[program("kp_ifa6_notify", "__ipv6_ifa_notify")]),
        ],
        netlink: true,
    },
];

/// Returns the kernel functions and tracepoints of all programs.
pub(crate) fn targets() -> impl Iterator<Item = &'static str> {
    HOOKS.iter().flat_map(|hook| hook.tries).flat_map(|one| one.programs).map(|program| program.target)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use probe_common::knob::Offsets;

    use super::{CROWDED, HOOKS};

    #[test]
    fn each_member_that_may_be_absent_is_one_of_the_offsets() {
        for name in HOOKS.iter().flat_map(|hook| hook.members) {
            let member = Offsets::MEMBERS.iter().find(|member| member.name == *name);
            assert!(member.is_some_and(|member| !member.needed), "{name}");
        }
    }

    #[test]
    fn each_signal_and_each_program_stands_once() {
        let signals: BTreeSet<_> = HOOKS.iter().map(|hook| hook.signal).collect();
        assert_eq!(signals.len(), HOOKS.len());
        let names = || {
            HOOKS.iter().flat_map(|hook| hook.tries).flat_map(|one| one.programs).map(|program| program.name)
        };
        let once: BTreeSet<_> = names().collect();
        assert_eq!(once.len(), names().count());
    }

    #[test]
    fn the_crowded_program_is_one_of_them() {
        let programs = HOOKS.iter().flat_map(|hook| hook.tries).flat_map(|one| one.programs);
        assert!(programs.into_iter().any(|program| program.name == CROWDED));
    }

    /// The kernel cuts a program's name at fifteen bytes.
    #[test]
    fn bpftool_shows_the_whole_name() {
        for name in
            HOOKS.iter().flat_map(|hook| hook.tries).flat_map(|one| one.programs).map(|program| program.name)
        {
            assert!(name.len() <= 15, "{name}");
        }
    }
}
