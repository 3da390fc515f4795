//! The requirements of hooks and other sources that an administrator can grant: capabilities and settings of
//! the node. All refusals, `/readyz` and `doctor` use this table, so that they name the same remedy.
//!
//! **Invariant:** a capability that this process holds is never named as missing.

use std::{collections::BTreeSet, env, fs};

use caps::Capability;

/// A requirement that is not met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MissingRight {
    /// Loading and attaching eBPF programs that read kernel memory.
    Programs,
    /// Making BPF maps before Linux 5.11, where they count as locked memory.
    Memory,
    /// Reading other users' processes in `/proc`: namespaces, executable, environment.
    Processes,
    /// Reading files of users other than root.
    Files,
    /// Reading the addresses of kernel functions in `/proc/kallsyms`.
    Symbols,
    /// The node hides those addresses from every process.
    HiddenSymbols,
    /// Finding the tracepoints of system calls.
    Tracefs,
    /// Attaching to tracepoints on kernels of Debian and Ubuntu, whose `perf_event_paranoid` may be above 2,
    /// and under a runtime's seccomp profile that restricts `perf_event_open`.
    PerfEvents,
    /// Receiving rtnetlink notifications of other network namespaces: giving them an id, and listening to
    /// them.
    Netlink,
}

impl MissingRight {
    fn capabilities(self) -> &'static [Capability] {
        match self {
            Self::Programs => &[Capability::CAP_BPF, Capability::CAP_PERFMON],
            Self::Memory => &[Capability::CAP_SYS_RESOURCE],
            Self::Processes => &[Capability::CAP_SYS_PTRACE],
            Self::Files => &[Capability::CAP_DAC_READ_SEARCH],
            // With kernel.kptr_restrict below 2, the kernel shows them to processes with this capability.
            Self::Symbols | Self::HiddenSymbols => &[Capability::CAP_SYSLOG],
            Self::Tracefs => &[],
            Self::PerfEvents => &[Capability::CAP_SYS_ADMIN],
            Self::Netlink => &[Capability::CAP_NET_ADMIN, Capability::CAP_NET_BROADCAST],
        }
    }

    /// Returns a setting that no capability replaces, and how to change it.
    fn setting(self, is_pod: bool) -> Option<(&'static str, &'static str)> {
        match self {
            Self::HiddenSymbols => {
                Some(("kernel.kptr_restrict below 2", "on the node: sysctl kernel.kptr_restrict=1"))
            }
            Self::Tracefs if is_pod => Some((
                "tracefs",
                "on the node: mount -t tracefs tracefs /sys/kernel/tracing; in the chart: /sys among hostPaths",
            )),
            Self::Tracefs => Some(("tracefs", "mount -t tracefs tracefs /sys/kernel/tracing")),
            Self::Programs
            | Self::Memory
            | Self::Processes
            | Self::Files
            | Self::Symbols
            | Self::PerfEvents
            | Self::Netlink => None,
        }
    }
}

/// The rights of this process, and where it runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Privileges {
    held: u64,
    /// The process is in a pod, so the chart sets its rights.
    is_pod: bool,
}

impl Privileges {
    /// Reads the rights. Call it before rights are given up.
    #[must_use]
    pub(crate) fn find() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        // The kubelet sets this variable in each container.
        Self {
            held: effective(&status).unwrap_or(0),
            is_pod: env::var_os("KUBERNETES_SERVICE_HOST").is_some(),
        }
    }

    /// Returns the rights of a process that holds these capabilities, outside of a pod.
    #[cfg(test)]
    pub(crate) fn with(held: &[Capability]) -> Self {
        Self { held: held.iter().map(Capability::bitmask).sum(), is_pod: false }
    }

    #[must_use]
    pub(crate) fn holds(self, capability: Capability) -> bool {
        self.held & capability.bitmask() != 0
    }

    /// Returns whether it may load programs. The old capability includes the two that were split from it.
    #[must_use]
    pub(crate) fn may_load(self) -> bool {
        self.holds(Capability::CAP_SYS_ADMIN)
            || self.holds(Capability::CAP_BPF) && self.holds(Capability::CAP_PERFMON)
    }

    /// Names the missing capabilities and settings: `CAP_NET_ADMIN and CAP_NET_BROADCAST`. Empty if nothing
    /// that could be granted is missing.
    #[must_use]
    pub(crate) fn named(self, lacks: &BTreeSet<MissingRight>) -> String {
        let settings = lacks.iter().filter_map(|lack| Some(lack.setting(self.is_pod)?.0.to_owned()));
        let names: Vec<String> =
            self.missing(lacks).iter().map(ToString::to_string).chain(settings).collect();
        match names.split_last() {
            None => String::new(),
            Some((only, [])) => only.clone(),
            Some((last, others)) => format!("{} and {last}", others.join(", ")),
        }
    }

    /// Returns how to get everything that is missing; `None` if nothing is missing that could be granted.
    #[must_use]
    pub(crate) fn cure(self, lacks: &BTreeSet<MissingRight>) -> Option<String> {
        let missing = self.missing(lacks);
        let mut steps = Vec::new();
        if !missing.is_empty() && self.is_pod {
            let held = caps::all().into_iter().filter(|it| self.holds(*it));
            let mut all: Vec<Capability> = held.chain(missing).collect();
            all.sort_by_key(Capability::index);
            let names: Vec<String> = all.iter().map(|it| it.to_string().replace("CAP_", "")).collect();
            steps.push(format!("in the chart: --set 'capabilities={{{}}}'", names.join(",")));
        } else if !missing.is_empty() {
            let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
            let names = names.join(" ");
            steps.push(format!("run it as root with {names} (in a systemd unit: CapabilityBoundingSet)"));
        }
        steps.extend(lacks.iter().filter_map(|lack| Some(lack.setting(self.is_pod)?.1.to_owned())));
        (!steps.is_empty()).then(|| steps.join("; "))
    }

    /// Returns the missing rights and the remedy, as the second half of an error message.
    #[must_use]
    pub(crate) fn refusal(self, lack: MissingRight) -> String {
        let lacks = BTreeSet::from([lack]);
        match self.cure(&lacks) {
            Some(cure) => format!("it lacks {}: {cure}", self.named(&lacks)),
            None => "the kernel forbids it although the capabilities are held (another user namespace?)"
                .to_owned(),
        }
    }

    fn missing(self, lacks: &BTreeSet<MissingRight>) -> Vec<Capability> {
        let mut missing: Vec<Capability> = lacks
            .iter()
            .flat_map(|lack| lack.capabilities())
            .copied()
            .filter(|it| !self.holds(*it))
            .collect();
        missing.sort_by_key(Capability::index);
        missing.dedup();
        missing
    }
}

fn effective(status: &str) -> Option<u64> {
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(set.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use caps::Capability::{
        CAP_BPF, CAP_DAC_READ_SEARCH, CAP_NET_ADMIN, CAP_PERFMON, CAP_SYS_ADMIN, CAP_SYS_PTRACE,
    };

    use super::{MissingRight, Privileges, effective};

    fn here(is_pod: bool, held: &[caps::Capability]) -> Privileges {
        Privileges { is_pod, ..Privileges::with(held) }
    }

    #[test]
    fn effective_capabilities_are_read_from_a_status_file() {
        let status = "Name:\tsandprobe\nCapPrm:\t0000000000000000\nCapEff:\t000001fffeffffff\n";
        assert_eq!(effective(status), Some(0x1ff_feff_ffff));
        assert_eq!(effective("Name:\tx\n"), None);
    }

    #[test]
    fn in_a_pod_the_chart_s_value_is_whole() {
        let pod = here(true, &[CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH]);
        let lacks = BTreeSet::from([MissingRight::Symbols, MissingRight::Netlink]);
        assert_eq!(pod.named(&lacks), "CAP_NET_BROADCAST, CAP_NET_ADMIN and CAP_SYSLOG");
        // helm replaces a list as a whole, so the remedy repeats the capabilities that are set.
        assert_eq!(
            pod.cure(&lacks).as_deref(),
            Some(
                "in the chart: --set 'capabilities={DAC_READ_SEARCH,NET_BROADCAST,NET_ADMIN,SYS_PTRACE,SYSLOG,\
                 PERFMON,BPF}'"
            )
        );
    }

    #[test]
    fn what_is_held_is_not_missing() {
        let node = here(false, &[CAP_NET_ADMIN]);
        let lacks = BTreeSet::from([MissingRight::Netlink]);
        assert_eq!(node.named(&lacks), "CAP_NET_BROADCAST");
        assert_eq!(
            node.cure(&lacks).as_deref(),
            Some("run it as root with CAP_NET_BROADCAST (in a systemd unit: CapabilityBoundingSet)")
        );
        let all = here(true, &[CAP_SYS_ADMIN]);
        assert_eq!(all.cure(&BTreeSet::from([MissingRight::PerfEvents])), None);
        assert!(all.may_load() && !node.may_load());
    }

    #[test]
    fn a_setting_is_named_with_the_capability_that_it_takes() {
        let node = here(false, &[]);
        let hidden = BTreeSet::from([MissingRight::HiddenSymbols]);
        assert_eq!(node.named(&hidden), "CAP_SYSLOG and kernel.kptr_restrict below 2");
        assert!(
            node.cure(&hidden).is_some_and(|it| it.ends_with("; on the node: sysctl kernel.kptr_restrict=1"))
        );
        let tracefs = BTreeSet::from([MissingRight::Tracefs]);
        assert!(node.cure(&tracefs).is_some_and(|it| it.starts_with("mount -t tracefs")));
        assert!(here(true, &[]).cure(&tracefs).is_some_and(|it| it.ends_with("/sys among hostPaths")));
    }
}
