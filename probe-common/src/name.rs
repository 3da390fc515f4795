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
