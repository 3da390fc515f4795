//! Containers of no pod that somebody runs on the node. Their addresses are in the same stores, and no
//! runtime of pods has a record of them.

use std::net::IpAddr;

use probe_common::event::class;
use probe_user::model::{
    fact::{Caller, CniCalled, CniVariables, Executed, Fact, Origin},
    id::ContainerId,
};

use super::{Sim, process::task};

impl Sim {
    /// Podman's ids look like those of pods' sandboxes. Nerdctl puts its namespace in front of the id for
    /// CNI.
    pub(crate) fn plain(&mut self, name: &str, network: &str, address: IpAddr) {
        let (number, shim, plugin) = (self.number(), self.number(), self.number());
        let before = name.split_once('-').map(|(before, _)| format!("{before}-")).unwrap_or_default();
        let id = ContainerId::parse(&format!("{before}{number:064x}")).expect("an id");
        self.plain.insert(name.to_owned(), (id.clone(), shim));
        let argv = ["/usr/bin/conmon", "-c", monitored(&id)].map(str::to_owned);
        self.emit(
            Origin::Kernel,
            Fact::Executed(Executed {
                ns_pid: shim,
                task: task(shim, 1, "conmon"),
                filename: "/usr/bin/conmon".to_owned(),
                argv_total: argv.iter().map(|arg| u32::try_from(arg.len() + 1).expect("short")).sum(),
                argv: argv.to_vec(),
                class: class::RUNTIME,
                pid_ns: 1,
                mnt_ns: 1,
            }),
        );
        let net = self.net(network);
        let call = task(plugin, 1, &net.plugin);
        self.emit(
            Origin::Kernel,
            Fact::CniCalled(CniCalled {
                task: call.clone(),
                filename: format!("/opt/cni/bin/{}", net.plugin),
                caller: Some(Caller { key: task(shim, 1, "podman").key, comm: "podman".to_owned() }),
                host: true,
                variables: CniVariables {
                    command: "ADD".to_owned(),
                    container_id: Some(id.as_str().to_owned()),
                    netns: Some(format!("/proc/{shim}/ns/net")),
                    ifname: Some(net.ifname.clone()),
                    args: Some("IgnoreUnknown=1".to_owned()),
                    path: Some("/opt/cni/bin".to_owned()),
                    ..CniVariables::default()
                },
                env_truncated: false,
            }),
        );
        self.held.insert((net.name.clone(), address), (id.clone(), net.ifname.clone()));
        self.cache.insert((id, net.ifname), (net.name, vec![address]));
        self.end(call, 0);
    }

    /// Adds a reservation from before the agent's start. Its sandbox is in the runtime's records if
    /// `recorded`.
    pub(crate) fn reserve(&mut self, network: &str, address: IpAddr, recorded: bool) {
        let number = self.number();
        let id = ContainerId::parse(&format!("{number:064x}")).expect("an id");
        if recorded {
            self.recorded.insert(id.clone());
        }
        self.held.insert((network.to_owned(), address), (id, "eth0".to_owned()));
    }
}

/// Returns the id in the arguments of a container's monitor.
pub(super) fn monitored(id: &ContainerId) -> &str {
    id.as_str().rsplit('-').next().unwrap_or_default()
}
