//! Prints facts as lines for people.

use std::{collections::HashMap, fmt::Write as _};

use probe_user::{
    model::{
        fact::{
            Address, CacheFound, Cgroup, CniVariables, ContainerFound, Fact, Holder, Network, NetworksRead,
            PodName, Pool, ProcessFound, Reservation, Role, RuntimeRead, RuntimeSandbox, Store, StoreRead,
            Task,
        },
        id::{CgroupKey, TaskKey},
    },
    source::node::cgroup::{Hierarchy, Layout},
};

/// Numbers cgroups in the order in which they are found, because a frozen cgroup directory has another inode
/// in each copy.
#[derive(Default)]
pub(crate) struct Render(HashMap<u64, usize>);

impl Render {
    #[expect(clippy::unused_self, reason = "called like `fact`")]
    pub(crate) fn layout(&self, layout: &Layout) -> String {
        let mut text = format!("cgroups {:?}\n", layout.mode().expect("a hierarchy is mounted"));
        for Hierarchy { id, controllers, mount } in &layout.hierarchies {
            writeln!(text, "  {id} [{}] {mount}", controllers.join(",")).expect("text grows");
        }
        text
    }

    pub(crate) fn fact(&mut self, fact: &Fact) -> String {
        match fact {
            Fact::ListBegun(list) => format!("\n{list:?}\n"),
            Fact::ListEnded { complete: true, .. } => "  end\n".to_owned(),
            Fact::ListEnded { complete: false, .. } => "  end, incomplete\n".to_owned(),
            Fact::PodFound { uid, namespace, name, source } => {
                format!("  pod {namespace}/{name} {uid} by {source:?}\n")
            }
            Fact::PodUnknown(uid) => format!("  no pod {uid}\n"),
            Fact::ContainerFound(found) => container(found),
            Fact::ContainerUnknown(id) => format!("  unknown {id}\n"),
            Fact::CgroupFound { cgroup, populated } => self.cgroup(cgroup, *populated),
            Fact::ProcessFound(found) => self.process(found),
            Fact::NetnsFound { netns, mounts, vacant } => {
                let vacant = if *vacant { " vacant" } else { "" };
                format!("  netns {} {}{vacant}\n", netns.inode, mounts.join(" "))
            }
            Fact::AddressFound(found) => address(found),
            Fact::CacheFound(found) => cache(found),
            Fact::StoreRead(read) => store(read),
            Fact::RuntimeRead(read) => runtime(read),
            Fact::NetworksRead(read) => networks(read),
            Fact::KubeletExpected(expected) => format!("  kubelet expected: {expected}\n"),
            other => panic!("a listing never gives {other:?}"),
        }
    }

    fn cgroup(&mut self, cgroup: &Cgroup, populated: bool) -> String {
        let Cgroup { key, path, level, nested } = cgroup;
        let nested = if *nested { " nested" } else { "" };
        let populated = if populated { "" } else { " empty" };
        format!("  {} level {level} {path}{nested}{populated}\n", self.key(*key))
    }

    fn key(&mut self, key: CgroupKey) -> String {
        if key == CgroupKey::default() {
            return "no cgroup".to_owned();
        }
        let next = self.0.len() + 1;
        let order = self.0.entry(key.id).or_insert(next);
        format!("cgroup {}#{order}", key.hierarchy)
    }

    fn process(&mut self, found: &ProcessFound) -> String {
        let ProcessFound { task, argv, cgroup_path, ns_pid, cni, filename, forged } = found;
        let Task { key, tid, parent, comm, cgroup, netns } = task;
        assert_eq!(key.pid, *tid, "a listing contains no threads");
        let mut text =
            format!("  {comm} {} of {} netns {netns} itself {ns_pid}\n", task_key(*key), task_key(*parent));
        let cgroup = self.key(*cgroup);
        writeln!(text, "    {filename} {argv:?}\n    {cgroup} {cgroup_path}").expect("text grows");
        if *forged {
            writeln!(text, "    not root's by itself").expect("text grows");
        }
        if let Some(CniVariables {
            command,
            container_id,
            netns,
            ifname,
            args,
            path,
            traceparent,
            tracestate,
        }) = cni
        {
            let set = [
                ("id", container_id),
                ("netns", netns),
                ("ifname", ifname),
                ("args", args),
                ("path", path),
                ("traceparent", traceparent),
                ("tracestate", tracestate),
            ];
            let set =
                set.into_iter().filter_map(|(name, value)| Some(format!(" {name} {:?}", value.as_ref()?)));
            writeln!(text, "    cni {command}{}", set.collect::<String>()).expect("text grows");
        }
        text
    }
}

fn task_key(key: TaskKey) -> String {
    format!("{}@{}ms", key.pid, key.start / 1_000_000)
}

fn container(found: &ContainerFound) -> String {
    let ContainerFound { id, role, sandbox, name, pod, source, started: _ } = found;
    let role = match role {
        Role::Sandbox => "sandbox",
        Role::Container => "container",
    };
    let name = name.as_deref().unwrap_or("-");
    let sandbox = sandbox.as_ref().map_or("-", |id| id.as_str());
    let pod = pod_name(pod.as_ref());
    format!("  {role} {id} {name} {pod} by {source:?}\n    in {sandbox}\n")
}

fn pod_name(pod: Option<&PodName>) -> String {
    pod.map_or("of no pod".to_owned(), |PodName { namespace, name, uid }| {
        let or = |text: Option<&str>| text.unwrap_or("-").to_owned();
        let (namespace, name) = (or(namespace.as_deref()), or(name.as_deref()));
        format!("of {namespace}/{name} {}", or(uid.as_ref().map(|uid| uid.as_str())))
    })
}

fn address(found: &Address) -> String {
    let Address { netns, address, ifname, ifindex, flags, scope, .. } = found;
    format!("  {address} on {ifname:?} {ifindex} in {} flags {flags:#x} scope {scope}\n", netns.inode)
}

fn cache(found: &CacheFound) -> String {
    let CacheFound { network, container, ifname, addresses, netns, args } = found;
    let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    let args: Vec<_> = args.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let netns = netns.as_deref().unwrap_or("-");
    format!(
        "  cached {network} {container} {ifname} {} {netns}\n    {}\n",
        addresses.join(","),
        args.join(";")
    )
}

fn store(read: &StoreRead) -> String {
    let StoreRead { store: Store { kind, path, network, bound: _ }, reservations, complete } = read;
    let partial = if *complete { "" } else { ", incomplete" };
    let mut text = format!("  store {kind:?} {path} of {}{partial}\n", network.as_deref().unwrap_or("?"));
    for Reservation { address, holder, .. } in reservations {
        text += &match holder {
            Some(Holder { container, ifname }) => format!("    {address} for {container} {ifname:?}\n"),
            None => format!("    {address} for ?\n"),
        };
    }
    text
}

fn runtime(read: &RuntimeRead) -> String {
    let RuntimeRead { place, kind, sandboxes, complete, unread } = read;
    let kind = kind.map(|kind| format!(" of {kind:?}")).unwrap_or_default();
    let unread = if *unread == 0 { String::new() } else { format!(", {unread} unread") };
    let whole = if *complete { "" } else { ", incomplete" };
    let mut text = format!("  runtime {place}{kind}{whole}{unread}\n");
    for RuntimeSandbox { id, pod } in sandboxes {
        writeln!(text, "    {id} {}", pod_name(pod.as_ref())).expect("text grows");
    }
    text
}

fn networks(read: &NetworksRead) -> String {
    let mut text = format!("  networks{}\n", if read.complete { "" } else { ", incomplete" });
    for Network { name, plugins, delegates, ipam, pools } in &read.networks {
        let ipam = ipam.as_deref().unwrap_or("-");
        // Plugins that another plugin calls are in brackets.
        let plugin = |name: &String| match delegates.contains(name) {
            true => format!("({name})"),
            false => name.clone(),
        };
        let plugins: Vec<String> = plugins.iter().map(plugin).collect();
        writeln!(text, "    {name} of {} with {ipam}", plugins.join(" ")).expect("text grows");
        for Pool { subnet, first, last, size } in pools {
            writeln!(text, "      {subnet} from {first} to {last}: {size}").expect("text grows");
        }
    }
    text
}
