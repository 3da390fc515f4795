//! What this process may do and what this kernel has, before anything is tried.

use std::{fs, io, path::Path};

use crate::{
    confine::{ConfineError, Confined, State},
    sink::doctor::Check,
    source::{
        cgroup::{Hierarchy, Layout, Mode},
        live::attach::BTF,
    },
};

/// Capabilities without which nothing attaches, by number (linux/capability.h). `CAP_SYS_ADMIN` stands for the first
/// two.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_RESOURCE: u32 = 24;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

pub(super) fn privilege() -> Check {
    match fs::read_to_string("/proc/self/status") {
        Ok(status) => capabilities(&status),
        Err(error) => Check::cannot("privilege", format!("cannot read /proc/self/status: {error}")),
    }
}

fn capabilities(status: &str) -> Check {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let Some(held) = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()) else {
        return Check::cannot("privilege", "/proc/self/status tells no capabilities");
    };
    let has = |number: u32| held & (1 << number) != 0;
    let bpf = has(CAP_SYS_ADMIN) || has(CAP_BPF) && has(CAP_PERFMON);
    if !bpf {
        return Check::cannot("privilege", "neither CAP_SYS_ADMIN nor CAP_BPF and CAP_PERFMON are held")
            .advised("run it as root, or in a privileged container");
    }
    if !has(CAP_SYS_RESOURCE) {
        // Before 5.11 maps count as locked memory, of which little is allowed without it; whether that is enough is
        // seen when the hooks are loaded.
        return Check::full(
            "privilege",
            "the capabilities that hooks need are held, except CAP_SYS_RESOURCE",
        )
        .advised("kernels before 5.11 may refuse to load without it");
    }
    Check::full("privilege", "the capabilities that hooks need are held")
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
    // Absent where the kernel has no lockdown, unreadable where securityfs is not mounted.
    locked(&fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default())
}

/// `none [integrity] confidentiality`
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

pub(super) fn tracefs() -> Check {
    let at = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    match at.iter().find(|dir| Path::new(dir).join("events").is_dir()) {
        Some(dir) => Check::full("tracefs", *dir),
        None => Check::full("tracefs", "not mounted")
            .advised("needed only where there is neither fentry nor kprobes: mount -t tracefs tracefs /sys/kernel/tracing"),
    }
}

/// What `run` gives up once it is attached. Nothing less is seen where it can give up less.
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

/// `PROC_PID_INIT_INO` of linux/proc_ns.h: the initial pid namespace has it on every kernel.
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
            "{link}, not the initial one: hooks tell the machine's pids, /proc here has others, so processes that \
                 run already are not tied to later events"
        ),
        "in a container give it the host's pid namespace (hostPID: true); on kind or k3d run it on the machine itself",
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
    use super::{capabilities, ftrace_enabled, locked, own_pid_namespace};
    use crate::sink::doctor::Grade;

    #[test]
    fn capabilities_decide() {
        let with = |mask: u64| capabilities(&format!("Name:\tx\nCapEff:\t{mask:016x}\n")).grade;
        assert_eq!(with(u64::MAX), Grade::Full);
        assert_eq!(with(1 << 39 | 1 << 38 | 1 << 24), Grade::Full);
        assert_eq!(with(1 << 21), Grade::Full);
        assert_eq!(with(1 << 39), Grade::Cannot);
        assert_eq!(with(0), Grade::Cannot);
        assert_eq!(capabilities("").grade, Grade::Cannot);
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
        assert_eq!(own_pid_namespace("pid:[4026532190]").grade, Grade::Degraded);
    }
}
