//! Names by which both sides know the programs of a node. What is decided in the kernel is decided by these.

use crate::text::sixteen;

/// Programs that call CNI plugins for pods, by comm (cut at 15 bytes by the kernel).
///
/// A name proves nothing by itself: the hook also asks that the task is in the host's pid namespace, outside
/// every container's cgroup and in its caller's mount namespace.
pub const CALLERS: [[u8; 16]; 11] = [
    sixteen("containerd"),
    sixteen("crio"),
    sixteen("cri-dockerd"),
    sixteen("dockerd"),
    sixteen("kubelet"),
    sixteen("podman"),
    sixteen("nerdctl"),
    sixteen("cnitool"),
    sixteen("k3s-server"),
    sixteen("k3s-agent"),
    sixteen("kubelite"),
];

/// Programs that make, hold and end containers, by comm.
pub const RUNTIMES: [[u8; 16]; 9] = [
    sixteen("runc"),
    sixteen("crun"),
    sixteen("youki"),
    sixteen("runsc"),
    sixteen("kata-runtime"),
    sixteen("conmon"),
    sixteen("conmonrs"),
    sixteen("pinns"),
    sixteen("containerd-shim"),
];

/// The process that holds a sandbox, by comm.
pub const PAUSES: [[u8; 16]; 2] = [sixteen("pause"), sixteen("catatonit")];

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

/// How a cgroup directory's name shows that a container runtime made it (the systemd driver's scopes); the
/// cgroupfs driver's directories are named by the bare id: 64 hex digits.
pub const CONTAINER_PREFIXES: [&str; 5] = ["cri-containerd-", "crio-", "docker-", "libpod-", "nerdctl-"];

/// How the directory at the root of all pods is named, by either driver.
pub const PODS_PREFIX: &str = "kubepods";

/// The id of the container for which a runtime made a directory of this name:
///
/// * `ID`, by the cgroupfs driver;
/// * `cri-containerd-ID.scope` and its like, by systemd's;
/// * `kubepods-besteffort-podUID.slice:cri-containerd:ID`, by the cgroupfs driver of a runtime that a kubelet with
///   systemd's has given a slice: what was meant for systemd is then taken for a name.
///
/// conmon's (`crio-conmon-ID.scope`) is none, since what follows the prefix is then no id.
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
    (id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(id)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::container_of;

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
