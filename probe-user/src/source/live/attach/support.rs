//! Checks what this kernel and this process can do before anything is loaded, so that a reason can be given
//! in words.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
};

use aya::programs::ProgramError;
use probe_common::knob::{ABSENT, Member, Offsets};

use super::{
    reason::{Why, may_pass, reason},
    symbol::Symbol,
};
use crate::{
    model::fact::{Mechanism, Signal},
    source::{
        live::{
            btf::Btf,
            error::Error,
            plan::{Hook, Try, targets},
        },
        node::{
            clock,
            missing_right::{MissingRight, Privileges},
        },
    },
};

pub(super) struct Support<'a> {
    /// The number of arguments of each function to which a program can be attached. Functions that this
    /// kernel lacks are left out.
    arguments: BTreeMap<&'static str, usize>,
    /// Whether the tracepoint of an OOM kill passes the task. `None` if the BTF does not show it.
    passes_victim: Option<bool>,
    offsets: &'a Offsets,
    /// The symbol of the work function that tears network namespaces down.
    cleanup_net: &'a Symbol,
    refused: &'a [Mechanism],
    here: Privileges,
    ftrace_off: bool,
    kprobes: bool,
    tracefs: bool,
    /// The node's setting.
    kptr_restrict: Option<String>,
    perf_event_paranoid: Option<String>,
}

/// The kernel's work function that tears network namespaces down.
pub(super) const CLEANUP_NET: &str = "cleanup_net";

/// Where tracefs is mounted; before Linux 4.1, the second.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

fn sysctl(name: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok().map(|text| text.trim().to_owned())
}

fn is_in_tracefs(name: &str) -> bool {
    TRACEFS.iter().any(|dir| Path::new(dir).join(name).exists())
}

impl<'a> Support<'a> {
    pub(super) fn probe(
        btf: &Btf,
        offsets: &'a Offsets,
        cleanup_net: &'a Symbol,
        refused: &'a [Mechanism],
    ) -> Self {
        let arguments = targets().filter_map(|target| Some((target, btf.function(target)?))).collect();
        Self {
            arguments,
            passes_victim: btf.tracepoint_passes_pointer("mark_victim", 0),
            offsets,
            cleanup_net,
            refused,
            here: Privileges::find(),
            ftrace_off: sysctl("ftrace_enabled").as_deref() == Some("0"),
            kprobes: Path::new("/sys/bus/event_source/devices/kprobe").exists()
                || is_in_tracefs("kprobe_events"),
            tracefs: is_in_tracefs("events"),
            kptr_restrict: sysctl("kptr_restrict"),
            perf_event_paranoid: sysctl("perf_event_paranoid"),
        }
    }

    /// Checks whether a mechanism can work, as far as that is known without trying it.
    pub(super) fn check(&self, hook: &Hook, one: &Try) -> Result<(), Why> {
        let signal = hook.signal;
        if self.refused.contains(&one.mechanism) {
            return Err("not wanted".to_owned().into());
        }
        if let Some(member) = self.lacks(hook) {
            return Err(format!("this kernel's BTF has no {member}").into());
        }
        if signal == Signal::OomKill && self.passes_victim.is_none() {
            return Err("this kernel's BTF does not say what mark_victim passes".to_owned().into());
        }
        match one.mechanism {
            Mechanism::Fentry | Mechanism::Fexit => {
                self.ftrace_is_on()?;
                one.programs.iter().try_for_each(|program| {
                    let found = self.arguments.get(program.target);
                    match (found, program.arguments) {
                        (None, _) => {
                            Err(format!("this kernel's BTF has no function {}", program.target).into())
                        }
                        (Some(n), Some(expected)) if *n != expected => {
                            Err(format!("{} takes {n} arguments here, not {expected}", program.target).into())
                        }
                        _ => Ok(()),
                    }
                })
            }
            Mechanism::Kprobe | Mechanism::Kretprobe => {
                self.ftrace_is_on()?;
                if self.kprobes { Ok(()) } else { Err("this kernel has no kprobes".to_owned().into()) }
            }
            Mechanism::Tracepoint if !self.tracefs => {
                let why = Why::from("tracefs is not mounted".to_owned());
                Err(Why { lacks: BTreeSet::from([MissingRight::Tracefs]), ..why })
            }
            Mechanism::RawTracepoint if signal == Signal::NetnsDropped || signal == Signal::NetnsFreed => {
                let why = self.cleanup_net.why_not(CLEANUP_NET, self.here, self.kptr_restrict.as_deref());
                why.map_or(Ok(()), Err)
            }
            Mechanism::RawTracepoint | Mechanism::Tracepoint | Mechanism::Netlink => Ok(()),
        }
    }

    /// Checks that ftrace is on. Without it both kinds attach and never fire, on Linux 6.1 for instance.
    fn ftrace_is_on(&self) -> Result<(), Why> {
        if self.ftrace_off {
            let text =
                "kernel.ftrace_enabled is 0: it would attach and never fire (sysctl kernel.ftrace_enabled=1)";
            Err(Why { may_pass: true, ..text.to_owned().into() })
        } else {
            Ok(())
        }
    }

    /// Returns why the kernel refused to attach a program.
    pub(super) fn refused(&self, error: &ProgramError, is_perf_event: bool) -> Why {
        let paranoid = self.perf_event_paranoid.as_deref().and_then(|text| text.parse().ok());
        Why { may_pass: may_pass(error), ..why(error, is_perf_event, paranoid) }
    }

    /// Returns a struct member that only this hook's programs read, and that this kernel does not have.
    fn lacks(&self, hook: &Hook) -> Option<&'static Member> {
        let mut members = Offsets::MEMBERS.iter().filter(|member| hook.members.contains(&member.name));
        members.find(|member| self.offsets.named(member.name) == Some(ABSENT))
    }
}

/// Returns why the kernel refused to attach a program; `paranoid` is `kernel.perf_event_paranoid`. A kprobe
/// and a tracepoint that is not raw are perf events. Each is made by a system call of its own, for which aya
/// has several names.
fn why(error: &ProgramError, is_perf_event: bool, paranoid: Option<i32>) -> Why {
    let text = reason(error);
    let ProgramError::SyscallError(call) = error else { return text.into() };
    if !is_perf_event || call.io_error.kind() != io::ErrorKind::PermissionDenied {
        return text.into();
    }
    let forbids = match (paranoid, call.io_error.raw_os_error()) {
        // Levels above 2 exist on distribution kernels only; upstream, CAP_PERFMON is enough.
        (Some(level), _) if level > 2 => format!("kernel.perf_event_paranoid is {level}"),
        // The kernel itself allows it to processes that may load programs. Runtimes' seccomp profiles refuse
        // with EPERM.
        (_, Some(libc::EPERM)) => "the seccomp profile of the container forbids it".to_owned(),
        (_, _) => return text.into(),
    };
    Why { lacks: BTreeSet::from([MissingRight::PerfEvents]), ..format!("{text}: {forbids}").into() }
}

/// Checks whether this process may load programs that read kernel memory.
pub(super) fn permitted() -> Result<(), Error> {
    let here = Privileges::find();
    if !here.may_load() {
        return Err(Error::NotPermitted { cure: here.refusal(MissingRight::Programs) });
    }
    if let Some(offset) = clock::namespace_offset() {
        return Err(Error::TimeNamespace { offset });
    }
    // `none integrity [confidentiality]`
    let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    if lockdown.contains("[confidentiality]") { Err(Error::Lockdown) } else { Ok(()) }
}

/// Returns the size of a memory page, which is the smallest size of a ring.
pub(super) fn page_size() -> u32 {
    // SAFETY: `sysconf` only returns a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u32::try_from(size).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, io};

    use aya::{programs::ProgramError, sys::SyscallError};

    use super::{MissingRight, why};

    #[test]
    fn a_perf_event_that_is_refused_names_what_it_takes() {
        let refused = |call: &'static str, number: i32| {
            ProgramError::SyscallError(SyscallError { call, io_error: io::Error::from_raw_os_error(number) })
        };
        let perf_events = BTreeSet::from([MissingRight::PerfEvents]);
        // Kernels of Debian and Ubuntu, by each of aya's names for the system call.
        for call in ["perf_event_open", "perf_event_open_trace_point", "perf_event_open_probe"] {
            for paranoid in [3, 4] {
                let why = why(&refused(call, libc::EACCES), true, Some(paranoid));
                assert_eq!(why.lacks, perf_events, "{call}");
                let setting = format!("kernel.perf_event_paranoid is {paranoid}");
                assert!(why.text.ends_with(&setting) && why.text.starts_with(call), "{}", why.text);
            }
        }
        let call = "perf_event_open_trace_point";
        let by_profile = why(&refused(call, libc::EPERM), true, Some(2));
        assert_eq!(by_profile.lacks, perf_events);
        assert!(
            by_profile.text.ends_with("seccomp profile of the container forbids it"),
            "{}",
            by_profile.text
        );
        // No capability is known to help with these.
        for (number, is_perf_event) in [(libc::EACCES, true), (libc::ENOENT, true), (libc::EPERM, false)] {
            assert!(why(&refused(call, number), is_perf_event, Some(2)).lacks.is_empty(), "{number}");
        }
    }
}
