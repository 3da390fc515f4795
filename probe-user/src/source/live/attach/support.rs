//! What this kernel and this process can do, asked before anything is loaded, so that a reason can be a sentence.

use std::{fs, path::Path};

use probe_common::knob::{ABSENT, Offsets, Switches};

use crate::{
    engine::fact::{Mechanism, Signal},
    source::live::{btf::Btf, error::Error, plan::Try},
};

pub(super) struct Support<'a> {
    btf: &'a Btf,
    offsets: &'a Offsets,
    switches: &'a Switches,
    refused: &'a [Mechanism],
    ftrace_off: bool,
    kprobes: bool,
    tracefs: bool,
}

/// Where tracefs is mounted, or was before 4.1.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

impl<'a> Support<'a> {
    pub(super) fn probe(
        btf: &'a Btf,
        offsets: &'a Offsets,
        switches: &'a Switches,
        refused: &'a [Mechanism],
    ) -> Self {
        let in_tracefs = |name: &str| TRACEFS.iter().any(|dir| Path::new(dir).join(name).exists());
        Self {
            btf,
            offsets,
            switches,
            refused,
            ftrace_off: fs::read("/proc/sys/kernel/ftrace_enabled")
                .is_ok_and(|text| text.trim_ascii() == b"0"),
            kprobes: Path::new("/sys/bus/event_source/devices/kprobe").exists()
                || in_tracefs("kprobe_events"),
            tracefs: in_tracefs("events"),
        }
    }

    /// Why a try cannot work, as far as that is known without trying.
    pub(super) fn check(&self, signal: Signal, one: &Try) -> Result<(), String> {
        if self.refused.contains(&one.mechanism) {
            return Err("not wanted".to_owned());
        }
        if let Some(member) = self.lacks(signal) {
            return Err(format!("this kernel's BTF has no {member}"));
        }
        match one.mechanism {
            Mechanism::Fentry | Mechanism::Fexit => {
                self.ftrace_is_on()?;
                one.programs.iter().try_for_each(|program| {
                    let found = self.btf.function(program.target);
                    match (found, program.arguments) {
                        (None, _) => Err(format!("this kernel's BTF has no function {}", program.target)),
                        (Some(n), Some(expected)) if n != expected => {
                            Err(format!("{} takes {n} arguments here, not {expected}", program.target))
                        }
                        _ => Ok(()),
                    }
                })
            }
            Mechanism::Kprobe | Mechanism::Kretprobe => {
                self.ftrace_is_on()?;
                if self.kprobes { Ok(()) } else { Err("this kernel has no kprobes".to_owned()) }
            }
            Mechanism::Tracepoint if !self.tracefs => {
                Err("tracefs is not mounted (mount -t tracefs tracefs /sys/kernel/tracing)".to_owned())
            }
            Mechanism::RawTracepoint if signal == Signal::NetnsDropped || signal == Signal::NetnsFreed => {
                if self.switches.cleanup_net == 0 {
                    Err("/proc/kallsyms does not show cleanup_net (kernel.kptr_restrict)".to_owned())
                } else {
                    Ok(())
                }
            }
            Mechanism::RawTracepoint | Mechanism::Tracepoint | Mechanism::Netlink => Ok(()),
        }
    }

    /// Without it both kinds attach and never fire, on 6.1 for instance.
    fn ftrace_is_on(&self) -> Result<(), String> {
        if self.ftrace_off {
            Err("kernel.ftrace_enabled is 0: it would attach and never fire (sysctl kernel.ftrace_enabled=1)"
                .to_owned())
        } else {
            Ok(())
        }
    }

    /// A member that only this signal's programs read, and that the kernel does not have.
    fn lacks(&self, signal: Signal) -> Option<&'static str> {
        let of = self.offsets;
        let needed: &[(u32, &'static str)] = match signal {
            Signal::NetnsDropped => &[(of.net_refcount, "reference count in struct net")],
            Signal::AddressV4 => &[
                (of.in_ifaddr_local, "in_ifaddr.ifa_local"),
                (of.in_ifaddr_prefixlen, "in_ifaddr.ifa_prefixlen"),
                (of.in_ifaddr_dev, "in_ifaddr.ifa_dev"),
                (of.in_device_dev, "in_device.dev"),
                (of.net_device_net, "net_device.nd_net"),
                (of.net_device_name, "net_device.name"),
            ],
            Signal::AddressV6 => &[
                (of.inet6_ifaddr_addr, "inet6_ifaddr.addr"),
                (of.inet6_ifaddr_prefix_len, "inet6_ifaddr.prefix_len"),
                (of.inet6_ifaddr_flags, "inet6_ifaddr.flags"),
                (of.inet6_ifaddr_idev, "inet6_ifaddr.idev"),
                (of.inet6_dev_dev, "inet6_dev.dev"),
                (of.net_device_net, "net_device.nd_net"),
                (of.net_device_name, "net_device.name"),
            ],
            Signal::Listening => {
                &[(of.sock_num, "sock.__sk_common.skc_num"), (of.sock_family, "sock.__sk_common.skc_family")]
            }
            _ => &[],
        };
        needed.iter().find(|(offset, _)| *offset == ABSENT).map(|(_, member)| *member)
    }
}

/// Whether this process may load programs that read kernel memory.
pub(super) fn permitted() -> Result<(), Error> {
    const SYS_ADMIN: u32 = 21;
    const PERFMON: u32 = 38;
    const BPF: u32 = 39;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = effective_capabilities(&status).unwrap_or(0);
    let has = |capability: u32| effective >> capability & 1 == 1;
    let may_load = has(SYS_ADMIN) || (has(BPF) && has(PERFMON));
    if !may_load {
        return Err(Error::NotPermitted);
    }
    // `none integrity [confidentiality]`
    let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    if lockdown.contains("[confidentiality]") { Err(Error::Lockdown) } else { Ok(()) }
}

fn effective_capabilities(status: &str) -> Option<u64> {
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(set.trim(), 16).ok()
}

/// The size of a memory page, of which the smallest ring is made.
pub(super) fn page_size() -> u32 {
    // SAFETY: `sysconf` only returns a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u32::try_from(size).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::effective_capabilities;

    #[test]
    fn effective_capabilities_are_read_from_a_status_file() {
        let status = "Name:\tsandprobe\nCapPrm:\t0000000000000000\nCapEff:\t000001fffeffffff\n";
        assert_eq!(effective_capabilities(status), Some(0x1ff_feff_ffff));
        assert_eq!(effective_capabilities("Name:\tx\n"), None);
    }
}
