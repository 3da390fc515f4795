//! Checks what this process may do and what this kernel has, before anything is tried.

use std::{collections::BTreeSet, fs, io, path::Path};

use caps::Capability;

use crate::{
    confine::{ConfineError, Confined, State},
    sink::render::doctor::Check,
    source::{
        live::{attach::Pinning, btf::BTF, pin::PinError},
        node::{
            cgroup::{Hierarchy, Layout, Mode},
            missing_right::{MissingRight, Privileges},
        },
    },
};

/// Returns the missing requirements on any kernel. `CAP_SYS_RESOURCE` is not among them: few kernels need it,
/// and the hooks report that themselves.
pub(super) fn lacks(here: Privileges) -> BTreeSet<MissingRight> {
    let mut lacks = BTreeSet::new();
    if !here.may_load() {
        lacks.insert(MissingRight::Programs);
    }
    if !here.holds(Capability::CAP_SYS_PTRACE) {
        lacks.insert(MissingRight::Processes);
    }
    if !here.holds(Capability::CAP_DAC_READ_SEARCH) && !here.holds(Capability::CAP_DAC_OVERRIDE) {
        lacks.insert(MissingRight::Files);
    }
    lacks
}

pub(super) fn privilege(here: Privileges) -> Check {
    const NAME: &str = "privilege";
    if !here.may_load() {
        let found = "neither CAP_SYS_ADMIN nor CAP_BPF and CAP_PERFMON are held";
        return Check::cannot(NAME, found).advised(here.refusal(MissingRight::Programs));
    }
    let lacks = lacks(here);
    if let Some(cure) = here.cure(&lacks) {
        let found = format!(
            "{} is not held: of processes and files of others not all can be read, so that pods and namespaces may \
             stay unknown",
            here.named(&lacks)
        );
        return Check::degraded(NAME, found, cure);
    }
    if !here.holds(Capability::CAP_SYS_RESOURCE) {
        // Before 5.11 maps count as locked memory, whose limit is low without this capability. Whether it is
        // enough shows when the hooks are loaded.
        return Check::full(NAME, "the capabilities that hooks need are held, except CAP_SYS_RESOURCE")
            .advised("kernels before 5.11 may refuse to load without it");
    }
    Check::full(NAME, "the capabilities that hooks need are held")
}

pub(super) fn btf() -> Check {
    match fs::metadata(BTF) {
        Ok(about) => Check::full("kernel types", format!("{BTF}, {} KiB", about.len() >> 10)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Check::cannot("kernel types", format!("{BTF} is not there"))
                .advised("run a kernel built with CONFIG_DEBUG_INFO_BTF=y")
        }
        Err(error) => Check::cannot("kernel types", format!("cannot read {BTF}: {error}")),
    }
}

pub(super) fn lockdown() -> Check {
    // The file is absent if the kernel has no lockdown, and unreadable if securityfs is not mounted.
    locked(&fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default())
}

/// Parses `none [integrity] confidentiality`.
fn locked(text: &str) -> Check {
    let mode = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(mode, _)| mode);
    match mode {
        Some("confidentiality") => Check::cannot("lockdown", "confidentiality: kernel memory cannot be read")
            .advised("boot with lockdown=integrity, or without lockdown"),
        Some(mode) => Check::full("lockdown", mode),
        None => Check::full("lockdown", "none"),
    }
}

pub(super) fn ftrace() -> Check {
    ftrace_enabled(fs::read_to_string("/proc/sys/kernel/ftrace_enabled").ok().as_deref())
}

fn ftrace_enabled(text: Option<&str>) -> Check {
    match text.map(str::trim) {
        Some("0") => Check::degraded(
            "ftrace",
            "kernel.ftrace_enabled=0: fentry and kprobe hooks attach and never fire, so they are not used",
            "set kernel.ftrace_enabled=1 in sysctl.conf and reboot; changing it while anything is hooked can crash \
             the kernel",
        ),
        Some(_) => Check::full("ftrace", "kernel.ftrace_enabled=1"),
        None => Check::full("ftrace", "this kernel has no such switch"),
    }
}

/// `lacks` is what the hooks need and do not have.
pub(super) fn tracefs(lacks: &BTreeSet<MissingRight>) -> Check {
    let at = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    match at.iter().find(|dir| Path::new(dir).join("events").is_dir()) {
        Some(dir) => Check::full("tracefs", *dir),
        None if lacks.contains(&MissingRight::Tracefs) => Check::degraded(
            "tracefs",
            "not mounted, and hooks need it where there is neither fentry nor kprobes",
            "mount -t tracefs tracefs /sys/kernel/tracing",
        ),
        None => Check::full("tracefs", "not mounted, and not needed here"),
    }
}

/// Checks whether hooks stay in the kernel while no agent runs. `unusable` is why the folder for that cannot
/// be used.
pub(super) fn restart(unusable: Option<&PinError>, pinning: &Pinning) -> Check {
    const NAME: &str = "restart";
    const MISSED: &str = "what happens while no agent runs is not seen";
    match (unusable, pinning) {
        (Some(why), _) => Check::degraded(NAME, MISSED, why.to_string()),
        (None, Pinning::Failed(why)) => Check::degraded(NAME, MISSED, why.clone()),
        (None, Pinning::Off) => {
            Check::degraded(NAME, MISSED, "run it without --no-pin, and without --pin-dir none")
        }
        (None, Pinning::Pinned { unpinned, .. }) if !unpinned.is_empty() => Check::degraded(
            NAME,
            format!("{MISSED} by {}: this kernel cannot pin them", unpinned.join(", ")),
            "run Linux 5.15 or later",
        ),
        (None, Pinning::Pinned { .. }) => Check::full(
            NAME,
            "hooks stay in the kernel when the agent ends, and the next one goes on with them",
        ),
    }
}

/// Checks which rights `run` gives up once it is attached. Giving up fewer does not reduce what is seen.
pub(super) fn confinement(confined: Result<Confined, ConfineError>) -> Check {
    match confined {
        Err(error) => Check::cannot("confinement", error.to_string()),
        Ok(confined) => {
            let check = Check::full("confinement", confined.to_string());
            let lacks = confined.measures.iter().any(|(_, state)| matches!(state, State::Absent(_)));
            if lacks { check.advised("what each measure is for: docs/security.md") } else { check }
        }
    }
}

/// `PROC_PID_INIT_INO` of linux/proc_ns.h: the inode of the initial pid namespace on every kernel.
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

pub(super) fn pid_namespace() -> Check {
    match fs::read_link("/proc/self/ns/pid") {
        Ok(link) => own_pid_namespace(&link.to_string_lossy()),
        Err(error) => Check::cannot("pid namespace", format!("cannot read /proc/self/ns/pid: {error}")),
    }
}

fn own_pid_namespace(link: &str) -> Check {
    if link == INITIAL_PID_NAMESPACE {
        return Check::full("pid namespace", "the initial one");
    }
    Check::degraded(
        "pid namespace",
        format!(
            "{link}, not the initial one: hooks report the machine's pids, /proc here has others, so processes that \
                 run already are not tied to later events"
        ),
        "give a container the node's pid namespace (hostPID: true); a pod that has it is on a node of kind or k3d, which has \
         no other: docs/guides/kind.md",
    )
}

pub(super) fn cgroup(layout: &Layout, chosen: &Hierarchy) -> Check {
    let mode = match layout.mode() {
        Some(Mode::Unified) => "v2",
        Some(Mode::Hybrid) => "hybrid",
        Some(Mode::Legacy) => "v1",
        None => "none",
    };
    let which = if chosen.id == 0 {
        "the v2 hierarchy".to_owned()
    } else {
        format!("v1 hierarchy {} ({})", chosen.id, chosen.controllers.join(","))
    };
    Check::full("cgroup", format!("{mode}; containers are told apart by {which} at {}", chosen.mount))
}

#[cfg(test)]
mod tests {
    use super::{Capability, Privileges, ftrace_enabled, locked, own_pid_namespace, privilege};
    use crate::sink::render::doctor::Grade;

    #[test]
    fn capabilities_decide() {
        let with = |held: &[Capability]| privilege(Privileges::with(held));
        let others = [Capability::CAP_SYS_PTRACE, Capability::CAP_DAC_READ_SEARCH];
        let hooks = [Capability::CAP_BPF, Capability::CAP_PERFMON];
        assert_eq!(with(&[&hooks[..], &others].concat()).grade, Grade::Full);
        assert_eq!(with(&[&others[..], &[Capability::CAP_SYS_ADMIN]].concat()).grade, Grade::Full);
        let blind = with(&hooks);
        assert_eq!(blind.grade, Grade::Degraded);
        for name in ["CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"] {
            assert!(blind.found.contains(name) && blind.advice.as_ref().is_some_and(|it| it.contains(name)));
        }
        let cannot = with(&[Capability::CAP_BPF]);
        assert_eq!(cannot.grade, Grade::Cannot);
        assert!(cannot.advice.is_some_and(|it| it.contains("CAP_PERFMON") && !it.contains("CAP_BPF")));
        assert_eq!(with(&[]).grade, Grade::Cannot);
    }

    #[test]
    fn only_confidentiality_forbids() {
        assert_eq!(locked("none integrity [confidentiality]\n").grade, Grade::Cannot);
        assert_eq!(locked("none [integrity] confidentiality\n").grade, Grade::Full);
        assert_eq!(locked("").grade, Grade::Full);
    }

    #[test]
    fn a_switched_off_ftrace_is_told() {
        assert_eq!(ftrace_enabled(Some("0\n")).grade, Grade::Degraded);
        assert_eq!(ftrace_enabled(Some("1\n")).grade, Grade::Full);
        assert_eq!(ftrace_enabled(None).grade, Grade::Full);
    }

    #[test]
    fn only_the_initial_pid_namespace_has_the_kernel_s_pids() {
        assert_eq!(own_pid_namespace("pid:[4026531836]").grade, Grade::Full);
        let other = own_pid_namespace("pid:[4026532190]");
        assert_eq!(other.grade, Grade::Degraded);
        // The guide shows what doctor says there.
        let guide = include_str!("../../../../../docs/guides/kind.md");
        let advice = other.advice.expect("an advice");
        for line in [other.found, advice] {
            assert!(guide.contains(&line), "docs/guides/kind.md does not show {line:?}");
        }
    }
}
