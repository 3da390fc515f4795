//! Random facts about a handful of processes, namespaces, cgroups and containers.

use std::time::Duration;

use probe_common::{event::class, id::CgroupKey};
use proptest::prelude::*;

use crate::{
    engine::tests::story::{self, HOST, UID, Who, address, call, cgroup, executed, id, pod_name, uid},
    model::{
        fact::{
            AddressAnswered, Answer, Attached, Believed, Bound, CacheFound, CniCalled, ContainerFound,
            DaemonWordsFound, Described, EventStream, Exited, Fact, Family, Holder, List, Listened, Listener,
            Loss, Mechanism, NameSource, Network, NetworksRead, NodeFolders, Origin, ProcessFound,
            ProcessState, Role, RunState, RuntimeEvent, RuntimeEventKind, RuntimeLink, RuntimeStatus, Said,
            Signal, Signaled, Speaker, Stated, Store, StoreAnswer, StoreKind, StoreLink, Task, WordsFound,
        },
        id::NetnsKey,
        time::Timestamp,
    },
};

const COMMS: [&str; 6] = ["containerd", "runc:[1:CHILD]", "pause", "sleep", "bridge", "pinns"];
const LISTS: [List; 6] =
    [List::Processes, List::Netns, List::Addresses, List::Cgroups, List::Containers, List::Pods];
const BITS: [u32; 4] = [0, class::CONTAINER_TOP, class::CONTAINER_TOP | class::PAUSE, class::CALLER];

fn path(number: u64) -> String {
    match number {
        0 => "/kubepods".to_owned(),
        1 => format!("/kubepods/pod{UID}"),
        2 => format!("/system.slice/docker-{}.scope", id('d')),
        3 => format!("/kubepods/pod{UID}/{}/{}", id('a'), id('b')),
        other => story::leaf(digit(other)),
    }
}

fn digit(number: u64) -> char {
    char::from_digit(u32::try_from(number % 3 + 10).unwrap_or(10), 16).unwrap_or('a')
}

fn who() -> impl Strategy<Value = Who> {
    (1_u32..6, 0_u32..6, 0..COMMS.len(), 0_u64..7, prop_oneof![Just(HOST), 40_u32..43]).prop_map(
        |(pid, parent, comm, number, netns)| Who::new(pid, parent, COMMS[comm]).within(number, netns),
    )
}

fn netns() -> impl Strategy<Value = NetnsKey> {
    (40_u32..43, prop_oneof![Just(0_u64), 1_u64..4]).prop_map(|(inode, cookie)| NetnsKey::new(inode, cookie))
}

fn asked_store() -> Store {
    Store { kind: StoreKind::Calico, path: "handles".to_owned(), network: None, bound: Bound::Sandbox }
}

/// Facts from hooks.
pub(super) fn happened() -> impl Strategy<Value = Fact> {
    let cgroups = || (0_u64..7).prop_map(|number| cgroup(number, &path(number)));
    let calls = (who(), 0..4_usize, 0..3_usize, any::<bool>()).prop_map(|(who, command, digit, host)| {
        let command = ["ADD", "DEL", "CHECK", "VERSION"][command];
        let netns = ["", "/run/netns/x", "/proc/2/ns/net"][digit];
        let plugin = ["/usr/lib/cni/bridge", "/sbin/iptables", "/usr/lib/cni/loopback"][digit];
        let mut it = call(who.pid, who.parent, plugin, command, netns, ['a', 'b', 'c'][digit]);
        let places = ["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-x", ""];
        it.variables.traceparent = Some(places[digit].to_owned());
        CniCalled { host, ..it }
    });
    let addresses = || {
        (who(), 40_u32..43, 0_u8..3)
            .prop_map(|(who, inode, last)| address(who, inode, &format!("10.0.0.{last}/24"), "eth0"))
    };
    prop_oneof![
        (who(), 0..BITS.len()).prop_map(|(who, bits)| executed(who, BITS[bits], "/bin/it")),
        who().prop_map(|who| executed(who, class::RUNTIME, &format!("runc create {}", id('a')))),
        who().prop_map(|who| executed(who, class::ORDER, "/sbin/reboot")),
        calls.prop_map(Fact::CniCalled),
        (who(), 0..BITS.len(), 0_u32..1024).prop_map(|(who, bits, status)| Fact::Exited(Exited {
            task: who.task(),
            status,
            class: BITS[bits]
        })),
        (who(), who()).prop_map(|(target, sender)| {
            Fact::Signaled(Signaled { target: target.task(), signal: 9, code: 0, sender: sender.task() })
        }),
        (who(), netns()).prop_map(|(who, netns)| Fact::NetnsCreated {
            netns,
            by: who.task(),
            end_unseen: false
        }),
        (who(), netns()).prop_map(|(who, netns)| Fact::NetnsDropped { netns, by: who.task() }),
        (40_u32..43).prop_map(|inode| Fact::NetnsFreed { netns: NetnsKey::new(inode, 0) }),
        addresses().prop_map(Fact::AddressAdded),
        addresses().prop_map(Fact::AddressRemoved),
        (cgroups(), who()).prop_map(|(cgroup, who)| Fact::CgroupCreated { cgroup, by: who.task() }),
        (cgroups(), who()).prop_map(|(cgroup, who)| Fact::CgroupRemoved { cgroup, by: who.task() }),
        cgroups().prop_map(|cgroup| Fact::CgroupReleased { cgroup }),
        (cgroups(), who()).prop_map(|(cgroup, who)| {
            Fact::CgroupEntered { cgroup, member: who.task().key, by: Task::default() }
        }),
        cgroups().prop_map(|cgroup| Fact::CgroupEmptied { cgroup }),
        (who(), 0_u64..7, any::<u16>()).prop_map(|(who, number, port)| {
            let socket = Listener { port, family: Family::Ipv6 };
            Fact::Listened(Listened { task: who.task(), container: CgroupKey::new(0, number), socket })
        }),
    ]
}

/// Facts from listings, answers and the agent.
pub(super) fn found() -> impl Strategy<Value = (Origin, Fact)> {
    let role = prop_oneof![Just(Role::Sandbox), Just(Role::Container)];
    let listed = prop_oneof![
        (0..LISTS.len()).prop_map(|list| Fact::ListBegun(LISTS[list])),
        (0..LISTS.len(), any::<bool>())
            .prop_map(|(list, complete)| Fact::ListEnded { list: LISTS[list], complete }),
        (who(), 0_u32..3).prop_map(|(who, ns_pid)| {
            let task = who.task();
            let cgroup_path = path(who.cgroup);
            Fact::ProcessFound(ProcessFound {
                forged: false,
                task,
                argv: vec![],
                cgroup_path,
                ns_pid,
                cni: None,
                filename: String::new(),
            })
        }),
        netns().prop_map(|netns| Fact::NetnsFound {
            netns,
            mounts: vec!["/run/netns/x".to_owned()],
            vacant: true
        }),
        (who(), 40_u32..43).prop_map(|(who, netns)| Fact::ProcessNetns { process: who.task().key, netns }),
        (who(), 40_u32..43).prop_map(|(who, inode)| Fact::AddressFound(address(
            who,
            inode,
            "10.0.0.1/24",
            "eth0"
        ))),
        (netns(), any::<bool>()).prop_map(|(netns, has_it)| {
            let address = "10.0.0.1".parse().expect("an address");
            Fact::AddressesListed { netns, present: if has_it { vec![address] } else { Vec::new() } }
        }),
        (0_u64..7, any::<bool>()).prop_map(|(number, populated)| {
            Fact::CgroupFound { cgroup: cgroup(number, &path(number)), populated }
        }),
        (0_u64..3, role, any::<bool>()).prop_map(|(number, role, named)| Fact::ContainerFound(
            ContainerFound {
                id: id(digit(number)),
                role,
                sandbox: Some(id('a')),
                name: None,
                pod: named.then(pod_name),
                source: NameSource::Bundle,
                started: None,
            }
        )),
        (0_u64..3).prop_map(|number| Fact::ContainerUnknown(id(digit(number)))),
        any::<bool>().prop_map(Fact::KubeletExpected),
        prop_oneof![Just(vec!["main"]), Just(vec!["main", "side"])].prop_map(|names| {
            Fact::ContainersExpected { uid: uid(), names: names.into_iter().map(str::to_owned).collect() }
        }),
        Just(Fact::PodFound {
            uid: uid(),
            namespace: "default".to_owned(),
            name: "web-0".to_owned(),
            source: NameSource::LogFolder,
        }),
        (0_u64..3).prop_map(|number| Fact::CacheFound(CacheFound {
            network: "net".to_owned(),
            container: id(digit(number)),
            ifname: "eth0".to_owned(),
            addresses: Vec::new(),
            netns: Some("/run/netns/x".to_owned()),
            args: vec![("K8S_POD_UID".to_owned(), UID.to_owned())],
        })),
        // Its addresses may be asked about.
        any::<bool>().prop_map(|is_asked| Fact::NetworksRead(NetworksRead {
            networks: vec![Network {
                name: "net".to_owned(),
                plugins: vec!["bridge".to_owned()],
                delegates: Vec::new(),
                ipam: Some(if is_asked { "calico-ipam" } else { "host-local" }.to_owned()),
                pools: Vec::new(),
            }],
            complete: true,
            undecodable: Vec::new(),
            written: None,
            folders: NodeFolders::default(),
            loading: None,
        })),
        (0_usize..4).prop_map(|answer| Fact::StoreLink(StoreLink {
            store: asked_store(),
            answer: [
                StoreAnswer::Answers,
                StoreAnswer::Silent,
                StoreAnswer::Refused { right: "look".to_owned() },
                StoreAnswer::Off
            ][answer]
                .clone(),
        })),
        (0_u64..3, 0_u8..3, any::<bool>()).prop_map(|(number, last, is_held)| {
            Fact::AddressAnswered(AddressAnswered {
                path: asked_store().path,
                address: [10, 0, 0, last].into(),
                holder: Holder { container: id(digit(number)), ifname: "eth0".to_owned() },
                is_held,
            })
        }),
    ];
    let agent = prop_oneof![
        (
            prop_oneof![Just(Loss::BulkRing), Just(Loss::LifecycleRing), Just(Loss::NetlinkSocket)],
            proptest::option::of(Just(Timestamp(1))),
        )
            .prop_map(|(what, since)| Fact::Lost { what, count: 1, since }),
        any::<bool>().prop_map(|kept| {
            let since = Timestamp(1);
            if kept { Fact::AgentAway { since } } else { Fact::StateLost { since } }
        }),
        Just(Fact::Clock { boot_wall_ns: 1 }),
        Just(Fact::BootRead(Box::default())),
        any::<bool>().prop_map(|hangs| Fact::FileHangs {
            path: "/proc/7/cmdline".to_owned(),
            since: Timestamp(1),
            hangs
        }),
        Just(Fact::Resumed { slept: Duration::from_secs(1) }),
        Just(Fact::AgentArrived),
        any::<bool>().prop_map(|whole| Fact::AgentBegan { unheard_since: whole.then_some(Timestamp(1)) }),
        any::<bool>().prop_map(|netlink| Fact::Attached(Attached {
            signal: Signal::NetnsDropped,
            mechanism: netlink.then_some(Mechanism::Netlink),
            note: String::new(),
            missed: Vec::new(),
        })),
    ];
    let cri = prop_oneof![
        (0_usize..3, 0_usize..3).prop_map(|(answer, events)| Fact::RuntimeLink(RuntimeLink {
            socket: "/x.sock".to_owned(),
            answer: [Answer::Answers, Answer::Hangs, Answer::GivenUp][answer],
            events: [EventStream::Open, EventStream::Closed, EventStream::None][events],
            since: (answer == 1).then_some(Timestamp(1)),
        })),
        Just(Fact::ProcessState(ProcessState {
            process: story::key(story::CONTAINERD),
            state: RunState::Stopped,
            threads: Vec::new(),
        })),
        any::<bool>().prop_map(|is_said| {
            let said = Said {
                by: Speaker::Kubelet,
                text: "no".to_owned(),
                at: "2026-11-25T09:29:07Z".to_owned(),
                source: "journal".to_owned(),
            };
            Fact::WordsFound(WordsFound {
                uid: uid(),
                since: Timestamp(1),
                said: is_said.then_some(said).into_iter().collect(),
                unsaid: (!is_said).then(|| "nowhere".to_owned()),
            })
        }),
        (0_u64..3).prop_map(|since| Fact::DaemonWordsFound(DaemonWordsFound {
            daemon: "containerd".to_owned(),
            since: Timestamp(since),
            said: Vec::new(),
            unsaid: Some("nowhere".to_owned()),
        })),
        (any::<bool>(), 0_u64..3, 0_usize..3, any::<bool>(), any::<bool>()).prop_map(
            |(whole, number, state, made, code)| {
                let state = [Believed::Running, Believed::Exited, Believed::Created][state];
                let role = if number == 0 { Role::Sandbox } else { Role::Container };
                let (id, made_at) = (id(digit(number)), Timestamp(u64::from(made)));
                let exit_code = code.then_some(7);
                let described = Described {
                    name: Some(if code { "main" } else { "other" }.to_owned()),
                    ..Described::default()
                };
                let came = vec![Stated {
                    id,
                    role,
                    sandbox: Some(story::id('a')),
                    state,
                    made_at,
                    exit_code,
                    described,
                }];
                let gone = vec![story::id('c')];
                Fact::RuntimeStatus(RuntimeStatus { socket: "/x.sock".to_owned(), whole, came, gone })
            }
        ),
        (0_u64..3, 0_usize..3).prop_map(|(number, what)| Fact::RuntimeEvent(RuntimeEvent {
            socket: "/x.sock".to_owned(),
            id: id(digit(number)),
            what: [RuntimeEventKind::Started, RuntimeEventKind::Stopped, RuntimeEventKind::Deleted][what],
        })),
    ];
    let notified = prop_oneof![
        netns().prop_map(|netns| Fact::NetnsDropped { netns, by: Task::default() }),
        (netns(), any::<bool>()).prop_map(|(netns, is_first)| {
            Fact::NetnsUnwatched { netns, unheard_since: is_first.then_some(Timestamp(1)) }
        }),
        (40_u32..43).prop_map(|inode| {
            Fact::AddressAdded(address(Who::new(0, 0, ""), inode, "10.0.0.1/24", "eth0"))
        }),
    ];
    prop_oneof![
        6 => listed.prop_map(|fact| (Origin::Listed, fact)),
        2 => notified.prop_map(|fact| (Origin::Netlink, fact)),
        1 => agent.prop_map(|fact| (Origin::Agent, fact)),
        2 => cri.prop_map(|fact| (Origin::Cri, fact)),
    ]
}
