//! Determines which program sent an entry, by the fields that journald got from the kernel. Any user can
//! choose the text of an entry, its identifier and the name of the process, but not the user, the executable
//! and the cgroup.

use probe_common::runtime::{self, KUBELET};

use crate::{engine::world::path::may_be_of_node, source::backfill};

/// Programs of the node whose entries are searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// A runtime or a kubelet.
    Daemon,
    Logind,
}

/// What a field shows about the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Root,
    /// Its unit or its executable belongs to such a program.
    Program(Sender),
    /// It has the name of a kubelet that is a process of its own.
    Kubelet,
    /// It is in a container or in a user's session, or it forwards a container's output, as Docker's log
    /// driver does.
    Foreign,
}

/// What all fields of an entry show.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Signs {
    is_root: bool,
    program: Option<Sender>,
    is_foreign: bool,
    pub(super) is_from_kubelet: bool,
}

const LOGIND: &str = "systemd-logind";
/// The kernel adds this to the path of an executable that was replaced, as by an update.
const DELETED: &str = " (deleted)";

impl Signs {
    pub(super) fn add(&mut self, sign: Sign) {
        match sign {
            Sign::Root => self.is_root = true,
            Sign::Program(sender) => self.program = Some(sender),
            Sign::Kubelet => self.is_from_kubelet = true,
            Sign::Foreign => self.is_foreign = true,
        }
    }

    /// Returns whether such a program of the node sent the entry.
    pub(super) fn are_of(self, sender: Sender) -> bool {
        self.is_root && !self.is_foreign && self.program == Some(sender)
    }
}

/// Returns what a field shows about the sender, if anything.
pub(super) fn sign(field: &[u8]) -> Option<Sign> {
    let (name, value) = std::str::from_utf8(field).ok()?.split_once('=')?;
    match name {
        "_UID" => (value == "0").then_some(Sign::Root),
        "_COMM" => (value == KUBELET).then_some(Sign::Kubelet),
        "_SYSTEMD_UNIT" => program(value.strip_suffix(".service")?, is_daemons_unit),
        "_EXE" => program(value.trim_end_matches(DELETED).rsplit('/').next()?, is_daemon),
        "_SYSTEMD_CGROUP" => {
            (backfill::is_in_container(value) || !may_be_of_node(value)).then_some(Sign::Foreign)
        }
        "CONTAINER_ID" | "CONTAINER_ID_FULL" => Some(Sign::Foreign),
        _ => None,
    }
}

fn program(name: &str, is_daemons: impl Fn(&str) -> bool) -> Option<Sign> {
    let sender = if name == LOGIND { Sender::Logind } else { Sender::Daemon };
    (sender == Sender::Logind || is_daemons(name)).then_some(Sign::Program(sender))
}

fn is_daemons_unit(name: &str) -> bool {
    let mut units = runtime::of_runtimes(|row| row.units).chain(runtime::of_distributions(|row| row.units));
    units.any(|unit| *unit == name)
}

/// Returns whether a file of this name is a runtime's program, or a program that contains a kubelet.
fn is_daemon(name: &str) -> bool {
    let supervisors = runtime::of_distributions(|row| row.supervisors).copied();
    runtime::servers().chain(runtime::kubelets()).chain(supervisors).any(|program| program == name)
}

#[cfg(test)]
mod tests {
    use super::{Sender, Sign, Signs, sign};

    /// Returns which program sent an entry with these fields.
    fn sender(fields: &[&str]) -> Option<Sender> {
        let mut signs = Signs::default();
        fields.iter().filter_map(|field| sign(field.as_bytes())).for_each(|it| signs.add(it));
        [Sender::Daemon, Sender::Logind].into_iter().find(|it| signs.are_of(*it))
    }

    #[test]
    fn daemons_are_known_by_unit_or_executable() {
        for (fields, known) in [
            (
                [
                    "_UID=0",
                    "_SYSTEMD_UNIT=containerd.service",
                    "_SYSTEMD_CGROUP=/system.slice/containerd.service",
                ],
                true,
            ),
            (["_UID=0", "_SYSTEMD_UNIT=k3s.service", "_EXE=/var/lib/rancher/k3s/data/ab/bin/k3s"], true),
            (["_UID=0", "_SYSTEMD_UNIT=host-runtime.service", "_EXE=/usr/bin/containerd"], true),
            (["_UID=0", "_SYSTEMD_UNIT=own.service", "_EXE=/usr/bin/kubelet (deleted)"], true),
            (
                [
                    "_UID=0",
                    "_SYSTEMD_UNIT=snap.microk8s.daemon-kubelite.service",
                    "_EXE=/snap/microk8s/7/kubelite",
                ],
                true,
            ),
            (["_UID=1000", "_SYSTEMD_UNIT=containerd.service", "_EXE=/usr/bin/containerd"], false),
            (["_UID=0", "_SYSTEMD_UNIT=ssh.service", "_EXE=/usr/sbin/sshd"], false),
            (
                ["_UID=0", "_SYSTEMD_UNIT=containerd.service.d.service", "_EXE=/usr/bin/containerd-stress"],
                false,
            ),
        ] {
            assert_eq!(sender(&fields), known.then_some(Sender::Daemon), "{fields:?}");
        }
        let logind =
            ["_UID=0", "_SYSTEMD_UNIT=systemd-logind.service", "_EXE=/usr/lib/systemd/systemd-logind"];
        assert_eq!(sender(&logind), Some(Sender::Logind));
    }

    /// A user can run a setuid program by a link with any name, from a session or from cron, and can choose
    /// the identifier.
    #[test]
    fn what_a_user_can_choose_counts_for_nothing() {
        for fields in [
            &["_UID=0", "_COMM=kubelet", "SYSLOG_IDENTIFIER=kubelet", "_EXE=/usr/bin/sudo"][..],
            &["_UID=0", "_COMM=kubelet", "_EXE=/usr/bin/sudo", "_SYSTEMD_UNIT=cron.service"],
            &["_UID=0", "UNIT=kubelet.service", "SYSTEMD_UNIT=kubelet.service", "EXE=/usr/bin/kubelet"],
            &["_UID=01", "_SYSTEMD_UNIT=kubelet.service"],
            &["_SYSTEMD_UNIT=kubelet.service"],
        ] {
            assert_eq!(sender(fields), None, "{fields:?}");
        }
    }

    #[test]
    fn what_a_container_writes_is_not_its_runtimes() {
        let pod = "_SYSTEMD_CGROUP=/kubepods/burstable/pod1-2/c";
        let nested =
            format!("_SYSTEMD_CGROUP=/system.slice/kubepods-pod1_2.slice:cri-containerd:{}", "ab".repeat(32));
        let docker = format!("_SYSTEMD_CGROUP=/system.slice/docker-{}.scope", "ab".repeat(32));
        let session = "_SYSTEMD_CGROUP=/user.slice/user-1000.slice/session-3.scope";
        for foreign in [pod, &nested, &docker, session, "CONTAINER_ID=ab", "CONTAINER_ID_FULL=abab"] {
            assert_eq!(sign(foreign.as_bytes()), Some(Sign::Foreign), "{foreign}");
            let fields = ["_UID=0", "_EXE=/usr/bin/kubelet", "_SYSTEMD_UNIT=docker.service", foreign];
            assert_eq!(sender(&fields), None, "{foreign}");
        }
    }
}
