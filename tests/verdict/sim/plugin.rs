//! The work of CNI plugins and their IPAM when the runtime calls them.

use std::{net::IpAddr, time::Duration};

use probe_common::event::class;
use probe_user::model::{
    fact::{Address, Caller, CniCalled, CniVariables, Exited, Fact, Task},
    id::{NetnsKey, Subnet},
};

use super::{Ipam, NEWCOMER, NODES, Net, Sandbox, Sim};

/// How an ADD ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Add {
    Succeeds,
    /// The ADD fails before it takes an address.
    Fails,
    /// The ADD fails and keeps its address.
    FailsHolding,
    /// The runtime does not find the next plugin of the chain.
    Stops,
}

/// How a DEL ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Del {
    Succeeds,
    Fails,
    /// It reports success and frees nothing.
    Hollow,
    /// The runtime does not call DEL.
    Missing,
}

impl Sim {
    /// A program in the pod adds an address by itself, as a nested Docker or a virtual IP does.
    pub(crate) fn own_address(&mut self, name: &str, address: IpAddr, ifname: &str) {
        let row = self.sandboxes.get(name).expect("the sandbox is known").clone();
        let by = self.task("dockerd", 1);
        self.kernel(Fact::AddressAdded(at_interface(&row, address, ifname, &by)));
    }

    /// The runtime calls CHECK, STATUS or VERSION of a network's plugin.
    pub(crate) fn ask_plugin(&mut self, name: &str, command: &str) {
        let row = self.sandboxes.get(name).expect("the sandbox is known").clone();
        let net = self.nets[0].clone();
        let call = self.call(&row, &net.plugin, command, &net.ifname, row.path.as_deref());
        self.end(call, 0x100);
    }

    /// Returns the lowest address that the IPAM of a network does not hold. (host-local would choose the next
    /// one.)
    #[must_use]
    pub(crate) fn next_address(&self, network: &str) -> IpAddr {
        let subnet = if network == "podnet" { 88 } else { 99 };
        let mut all = (2..=254).map(|last| IpAddr::from([10, subnet, 0, last]));
        all.find(|address| !self.held.contains_key(&(network.to_owned(), *address)))
            .expect("fewer pods than addresses")
    }

    /// The ADD of one network.
    pub(crate) fn add(&mut self, name: &str, network: &str, addresses: &[IpAddr], end: Add) {
        let net = self.net(network);
        let row = self.sandboxes.get(name).expect("the sandbox is known").clone();
        let call = self.call(&row, &net.plugin, "ADD", &net.ifname, row.path.as_deref());
        let holds = end != Add::Fails;
        if holds {
            for address in addresses {
                self.held.insert((net.name.clone(), *address), (row.id.clone(), net.ifname.clone()));
            }
        }
        let succeeds = matches!(end, Add::Succeeds | Add::Stops);
        if succeeds {
            for address in addresses {
                self.kernel(Fact::AddressAdded(at_interface(&row, *address, &net.ifname, &call)));
            }
        }
        self.end(call, if succeeds { 0 } else { 0x100 });
        if end != Add::Succeeds {
            return;
        }
        for plugin in &net.chained {
            let call = self.call(&row, plugin, "ADD", &net.ifname, row.path.as_deref());
            self.end(call, 0);
        }
        self.cache.insert((row.id.clone(), net.ifname.clone()), (net.name.clone(), addresses.to_vec()));
        let row = self.sandboxes.get_mut(name).expect("the sandbox is known");
        row.addresses.insert(net.name, addresses.to_vec());
    }

    /// The runtime calls DEL before the ADD has ended.
    pub(crate) fn add_overtaken(&mut self, name: &str, network: &str) {
        let (row, net) = (self.sandboxes[name].clone(), self.net(network));
        let add = self.call(&row, &net.plugin, "ADD", &net.ifname, row.path.as_deref());
        let del = self.call(&row, &net.plugin, "DEL", &net.ifname, row.path.as_deref());
        self.end(del, 0);
        self.end(add, 0x100);
    }

    /// The ADD is killed, and the runtime calls DEL.
    pub(crate) fn add_killed(&mut self, name: &str, network: &str) {
        let (row, net) = (self.sandboxes[name].clone(), self.net(network));
        let add = self.call(&row, &net.plugin, "ADD", &net.ifname, row.path.as_deref());
        self.end(add, 9);
        let del = self.call(&row, &net.plugin, "DEL", &net.ifname, row.path.as_deref());
        self.end(del, 0);
    }

    /// The runtime calls DEL for a sandbox with the namespace of another one.
    pub(crate) fn del_in(&mut self, name: &str, network: &str, other: &str) {
        let (row, net) = (self.sandboxes[name].clone(), self.net(network));
        let path = self.sandboxes[other].path.clone();
        let del = self.call(&row, &net.plugin, "DEL", &net.ifname, path.as_deref());
        self.end(del, 0);
    }

    /// The runtime calls DEL for a sandbox with the path of a process's namespace: that of another sandbox's
    /// pause, or of a program of the node.
    pub(crate) fn del_in_process(&mut self, name: &str, network: &str, other: &str) {
        let (row, net) = (self.sandboxes[name].clone(), self.net(network));
        let pid = match other {
            "node" => NODES,
            "newcomer" => NEWCOMER,
            other => self.sandboxes[other].pause.expect("it runs"),
        };
        let path = format!("/proc/{pid}/ns/net");
        let del = self.call(&row, &net.plugin, "DEL", &net.ifname, Some(&path));
        self.end(del, 0);
    }

    /// containerd tries to start a pod whose network fails. It makes a sandbox with a namespace, calls the
    /// loopback's ADD and the failing ADD, and removes everything. The simulation forgets the sandbox.
    pub(crate) fn try_fails(&mut self, name: &str, pod: &str, network: &str) {
        self.sandbox_begins(name, pod);
        let net = self.net(network);
        let row = self.sandboxes.get(name).expect("just made").clone();
        let path = row.path.as_deref();
        let loopback = self.call(&row, "loopback", "ADD", "lo", path);
        let call = self.call(&row, &net.plugin, "ADD", &net.ifname, path);
        self.end(loopback, 0);
        self.end(call, 0x100);
        for (plugin, ifname) in [(net.plugin.as_str(), net.ifname.as_str()), ("loopback", "lo")] {
            let call = self.call(&row, plugin, "DEL", ifname, path);
            self.end(call, 0);
        }
        self.netns_file_goes(name);
        self.sandboxes.remove(name);
    }

    /// The runtime tries to start a pod whose ADD takes this long, and removes the sandbox. The simulation
    /// forgets it.
    pub(crate) fn try_hangs(&mut self, name: &str, pod: &str, network: &str, took: Duration) {
        self.sandbox_begins(name, pod);
        let net = self.net(network);
        let row = self.sandboxes.get(name).expect("just made").clone();
        let call = self.call(&row, &net.plugin, "ADD", &net.ifname, row.path.as_deref());
        self.pass_to(self.now() + took);
        self.end(call, 0);
        self.netns_file_goes(name);
        self.sandboxes.remove(name);
    }

    /// The runtime calls DEL for every network, with the namespace if it exists.
    pub(crate) fn del(&mut self, name: &str, end: Del) {
        if end == Del::Missing {
            return;
        }
        let row = self.sandboxes.get(name).expect("the sandbox is known").clone();
        let given: Vec<Net> = self.nets.clone();
        let of_sandbox = |net: &&Net| {
            let holds = self.held.iter().any(|((network, _), (id, _))| *network == net.name && *id == row.id);
            row.addresses.contains_key(&net.name) || holds
        };
        for net in given.iter().filter(of_sandbox).cloned().collect::<Vec<_>>() {
            let path = row.path.as_deref().filter(|_| row.netns_lives);
            for plugin in net.chained.iter().rev() {
                let call = self.call(&row, plugin, "DEL", &net.ifname, Some(path.unwrap_or("")));
                self.end(call, 0);
            }
            let call = self.call(&row, &net.plugin, "DEL", &net.ifname, Some(path.unwrap_or("")));
            if end == Del::Succeeds && (net.ipam == Ipam::HostLocal || path.is_some()) {
                self.held.retain(|(network, _), (id, _)| !(*network == net.name && *id == row.id));
            }
            if end != Del::Fails {
                self.cache.remove(&(row.id.clone(), net.ifname.clone()));
            }
            self.end(call, if end == Del::Fails { 0x100 } else { 0 });
        }
    }

    /// A plugin begins.
    fn call(
        &mut self,
        row: &Sandbox,
        plugin: &str,
        command: &str,
        ifname: &str,
        netns: Option<&str>,
    ) -> Task {
        let runtime = self.by_runtime().key.pid;
        let task = self.task(plugin, runtime);
        let pod = &self.pods[&row.pod];
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={};K8S_POD_UID={}",
            pod.name, row.id, pod.uid
        );
        self.kernel(Fact::CniCalled(CniCalled {
            task: task.clone(),
            filename: format!("/opt/cni/bin/{plugin}"),
            caller: Some(Caller { key: self.by_runtime().key, comm: "containerd".to_owned() }),
            host: true,
            variables: CniVariables {
                command: command.to_owned(),
                container_id: Some(row.id.as_str().to_owned()),
                netns: netns.map(str::to_owned),
                ifname: Some(ifname.to_owned()),
                args: Some(args),
                path: Some("/opt/cni/bin".to_owned()),
                ..CniVariables::default()
            },
            env_truncated: false,
        }));
        task
    }

    pub(super) fn end(&mut self, task: Task, status: u32) {
        self.kernel(Fact::Exited(Exited { task, status, class: class::CNI }));
    }
}

fn at_interface(row: &Sandbox, address: IpAddr, ifname: &str, by: &Task) -> Address {
    Address {
        netns: NetnsKey::new(row.inode, 0),
        address: Subnet { address, prefix: if address.is_ipv4() { 24 } else { 64 } },
        ifname: ifname.to_owned(),
        ifindex: 2,
        flags: 0,
        scope: 0,
        by: by.clone(),
    }
}
