//! Names by which both sides know the programs of a node, most of them from the table of runtimes. The kernel
//! side decides by these names.

use crate::{
    runtime::{CNITOOL, DISTRIBUTIONS, HELPERS, RUNTIMES as CONTAINER_RUNTIMES},
    text::sixteen,
};

/// Programs that call CNI plugins for pods, by comm (cut at 15 bytes by the kernel): runtimes, programs that
/// serve CRI for one, and kubelets.
///
/// A name proves nothing by itself: the hook also requires that the task is in the host's pid namespace,
/// outside every container's cgroup and in its caller's mount namespace.
pub const CALLERS: [[u8; 16]; callers(&mut [])] = {
    let mut names = [[0; 16]; callers(&mut [])];
    callers(&mut names);
    names
};

/// Writes the names of callers as far as there is room, and returns how many there are.
const fn callers(names: &mut [[u8; 16]]) -> usize {
    let mut count = 0;
    count = put(names, count, CNITOOL);
    let mut i = 0;
    while i < CONTAINER_RUNTIMES.len() {
        count = put(names, count, CONTAINER_RUNTIMES[i].daemon);
        if let Some(server) = CONTAINER_RUNTIMES[i].cri_server {
            count = put(names, count, server);
        }
        i += 1;
    }
    i = 0;
    while i < DISTRIBUTIONS.len() {
        let mut j = 0;
        while j < DISTRIBUTIONS[i].kubelets.len() {
            count = put(names, count, DISTRIBUTIONS[i].kubelets[j]);
            j += 1;
        }
        i += 1;
    }
    count
}

const fn put(names: &mut [[u8; 16]], at: usize, name: &str) -> usize {
    if at < names.len() {
        names[at] = sixteen(name);
    }
    at + 1
}

/// Programs that make, hold and end containers, by comm.
pub const RUNTIMES: [[u8; 16]; HELPERS.len()] = {
    let mut names = [[0; 16]; HELPERS.len()];
    let mut i = 0;
    while i < HELPERS.len() {
        names[i] = sixteen(HELPERS[i].name);
        i += 1;
    }
    names
};

/// The process that holds a sandbox, by comm.
pub const PAUSES: [[u8; 16]; 2] = [sixteen("pause"), sixteen("catatonit")];

/// The plugins of the CNI project itself, by comm: <https://www.cni.dev/plugins/current/>.
pub const PLUGINS: [[u8; 16]; 18] = [
    sixteen("bandwidth"),
    sixteen("bridge"),
    sixteen("dhcp"),
    sixteen("dummy"),
    sixteen("firewall"),
    sixteen("host-device"),
    sixteen("host-local"),
    sixteen("ipvlan"),
    sixteen("loopback"),
    sixteen("macvlan"),
    sixteen("portmap"),
    sixteen("ptp"),
    sixteen("sbr"),
    sixteen("static"),
    sixteen("tap"),
    sixteen("tuning"),
    sixteen("vlan"),
    sixteen("vrf"),
];

/// Programs that may order a restart of the node, by comm; their arguments say whether they do.
pub const ORDERS: [[u8; 16]; 9] = [
    sixteen("reboot"),
    sixteen("shutdown"),
    sixteen("poweroff"),
    sixteen("halt"),
    sixteen("telinit"),
    sixteen("init"),
    sixteen("kexec"),
    sixteen("systemctl"),
    // What systemd becomes at the end.
    sixteen("systemd-shutdow"),
];

/// The prefixes of the names of cgroup directories that a container runtime made (the systemd driver's
/// scopes). The cgroupfs driver's directories are named by the bare id: 64 hex digits.
pub const CONTAINER_PREFIXES: [&str; CONTAINER_RUNTIMES.len()] = {
    let mut prefixes = [""; CONTAINER_RUNTIMES.len()];
    let mut i = 0;
    while i < prefixes.len() {
        prefixes[i] = CONTAINER_RUNTIMES[i].cgroup_prefix;
        i += 1;
    }
    prefixes
};

/// The prefix of the directory at the root of all pods, with either driver.
pub const PODS_PREFIX: &str = "kubepods";

/// Returns the id of the container for which a runtime made a directory of this name:
///
/// * `ID`, by the cgroupfs driver;
/// * `cri-containerd-ID.scope` and its like, by systemd's;
/// * `kubepods-besteffort-podUID.slice:cri-containerd:ID`, by the cgroupfs driver of a runtime that a kubelet
///   with systemd's has given a slice: what was meant for systemd is then taken for a name.
///
/// conmon's directory (`crio-conmon-ID.scope`) is not a container's, since what follows the prefix is not an
/// id: 64 hex digits, in lower case, as the hooks require too.
#[must_use]
pub fn container_of(directory: &str) -> Option<&str> {
    let name = directory.strip_suffix(".scope").unwrap_or(directory);
    let id = match name.rsplit_once(':') {
        Some((before, id)) => {
            let (slice, runtime) = before.rsplit_once(':')?;
            let is_runtime =
                CONTAINER_PREFIXES.iter().any(|prefix| prefix.strip_suffix('-') == Some(runtime));
            (slice.ends_with(".slice") && is_runtime).then_some(id)?
        }
        None => CONTAINER_PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name),
    };
    (id.len() == 64 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))).then_some(id)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::BTreeSet;

    use super::{
        CALLERS, CONTAINER_PREFIXES, CONTAINER_RUNTIMES, HELPERS, ORDERS, PAUSES, PLUGINS, RUNTIMES,
        container_of,
    };
    use crate::runtime::{Runtime, kubelets, of_distributions};

    /// Each name costs the kernel side a comparison for every process that it checks.
    #[test]
    fn no_name_stands_twice() {
        let names = [&CALLERS[..], &RUNTIMES, &PAUSES, &ORDERS, &PLUGINS].concat();
        let once: BTreeSet<_> = names.iter().filter(|name| name[0] != 0).collect();
        assert_eq!(once.len(), names.len(), "{names:?}");
        assert_eq!(CONTAINER_PREFIXES.iter().collect::<BTreeSet<_>>().len(), CONTAINER_PREFIXES.len());
        assert!(CONTAINER_PREFIXES.iter().all(|prefix| prefix.len() > 1 && prefix.ends_with('-')));
    }

    /// The kernel cuts a comm at fifteen bytes, and other code compares whole names.
    #[test]
    fn each_name_fits_a_comm() {
        let programs = CONTAINER_RUNTIMES.iter().flat_map(Runtime::programs).chain(kubelets());
        let supervisors = of_distributions(|row| row.supervisors).copied();
        for name in programs.chain(supervisors).chain(HELPERS.iter().map(|row| row.name)) {
            assert!((1..16).contains(&name.len()), "{name}");
        }
    }

    #[test]
    fn a_directory_is_named_for_its_container() {
        const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        for (before, behind) in [
            ("", ""),
            ("cri-containerd-", ".scope"),
            ("crio-", ""),
            ("docker-", ".scope"),
            ("kubepods-besteffort-pod11111111_2222_3333_4444_555555555555.slice:cri-containerd:", ""),
            ("kubelet-kubepods-pod11111111_2222_3333_4444_555555555555.slice:crio:", ""),
            ("user.slice:nerdctl:", ""),
        ] {
            assert_eq!(container_of(&std::format!("{before}{ID}{behind}")), Some(ID), "{before}");
        }
        assert_eq!(container_of(&ID.to_uppercase()), None);
        for (before, behind) in [
            ("crio-conmon-", ".scope"),
            ("a.slice:crio-conmon:", ""),
            ("a.slice:", ""),
            ("a:cri-containerd:", ""),
            ("cri-containerd:", ""),
            ("", ":"),
            ("", "0"),
        ] {
            assert_eq!(container_of(&std::format!("{before}{ID}{behind}")), None, "{before}{behind}");
        }
    }
}
