//! A store that is asked about single addresses: Calico's, at the API server.

use probe_common::event::class;

use super::story::{CONTAINERD, DAEMON, Story, Who, call, id, line::line, ms, run::pass};
use crate::{
    engine::{Engine, Settings},
    model::{
        change::{Finding, Output, Question},
        fact::{
            AddressAnswered, Bound, CacheFound, Fact, List, Network, NetworksRead, NodeFolders, Observation,
            Origin, RuntimeRead, RuntimeSandbox, Store, StoreAnswer, StoreKind, StoreLink,
        },
        finding::{Cause, Explain as _, Kind, Stage},
        id::{NetnsKey, Subnet},
        time::Timestamp,
    },
};

const CALICO: &str = "/usr/lib/cni/calico";
const PATH: &str = "ipamhandles.crd.projectcalico.org";
const POD: u32 = 4_026_540_001;
const MINUTE: u64 = 60;

/// What the store answers, if it does.
type Reply = Option<bool>;
const HELD: Reply = Some(true);
const FREE: Reply = Some(false);

/// A node that runs in seconds.
struct Node {
    engine: Engine,
    now: u64,
    /// The sandboxes that the runtime has on record.
    on_record: Vec<char>,
    /// When each question came.
    asked: Vec<u64>,
    /// The events about leaked addresses and blind spots.
    told: Vec<String>,
}

fn link(answer: StoreAnswer) -> Fact {
    let store =
        Store { kind: StoreKind::Calico, path: PATH.to_owned(), network: None, bound: Bound::Sandbox };
    Fact::StoreLink(StoreLink { store, answer })
}

/// A configuration with a network for each of these IPAM plugins.
fn networks(ipams: &[&str]) -> Fact {
    let networks = ipams.iter().map(|ipam| Network {
        name: "k8s-pod-network".to_owned(),
        plugins: vec!["calico".to_owned()],
        delegates: Vec::new(),
        ipam: Some((*ipam).to_owned()),
        pools: Vec::new(),
    });
    Fact::NetworksRead(NetworksRead {
        networks: networks.collect(),
        complete: true,
        undecodable: Vec::new(),
        loading: None,
        written: None,
        folders: NodeFolders::default(),
    })
}

/// A result in libcni's cache.
fn cached(ifname: &str) -> Fact {
    Fact::CacheFound(CacheFound {
        network: "k8s-pod-network".to_owned(),
        container: id('a'),
        ifname: ifname.to_owned(),
        addresses: vec![Subnet { address: [10, 9, 0, 2].into(), prefix: 32 }],
        netns: None,
        args: vec![("K8S_POD_NAME".to_owned(), "web-0".to_owned())],
    })
}

impl Node {
    /// Sandbox `a` gets 10.9.0.2 from Calico in the first seconds.
    fn new(ipam: &str) -> Self {
        let mut story = Story::new();
        story.at(6000).list(List::Processes, true, |story| {
            story.found(DAEMON, CONTAINERD, "/system.slice/containerd.service", "/usr/bin/containerd");
        });
        story.listed(networks(&[ipam]));
        let caller = Who::new(1000, CONTAINERD, "calico");
        story.at(10_000).netns(DAEMON, POD, 1);
        story.kernel(Fact::CniCalled(call(1000, CONTAINERD, CALICO, "ADD", "/run/netns/a", 'a')));
        story.address(caller, POD, "10.9.0.2/32", "eth0").exit(caller, class::CNI, 0);
        story.listed(Fact::NetnsFound {
            netns: NetnsKey::new(POD, 1),
            mounts: vec!["/run/netns/a".to_owned()],
            vacant: false,
        });
        let mut node = Self {
            engine: Engine::new(Settings::default()),
            now: 11,
            on_record: vec!['a'],
            asked: Vec::new(),
            told: Vec::new(),
        };
        node.say(story);
        node
    }

    fn say(&mut self, story: Story) {
        for seen in story.facts {
            pass(&mut self.engine, Timestamp(seen.at.0 - 1));
            self.engine.observe(seen);
        }
    }

    fn listed(&mut self, fact: Fact) {
        self.engine.observe(Observation { at: ms(self.now * 1000), origin: Origin::Listed, fact });
    }

    /// The network namespace of sandbox `a` ends, after a DEL that names `netns`, if any.
    fn sandbox_ends(&mut self, netns: Option<&str>) {
        let mut story = Story::new();
        story.at(self.now * 1000);
        if let Some(netns) = netns {
            story.cni_done(5000, CALICO, "DEL", netns);
        }
        story.dropped(POD, 1).freed(POD);
        self.say(story);
        self.on_record.clear();
    }

    /// Time passes until this second. The runtime's records are read once a minute, and the store answers
    /// each question.
    fn until(&mut self, second: u64, reply: Reply) {
        while self.now < second {
            self.now += 1;
            if self.now.is_multiple_of(MINUTE) {
                let sandboxes = self.on_record.iter();
                let sandboxes = sandboxes.map(|it| RuntimeSandbox { id: id(*it), pod: None }).collect();
                let place = "/var/lib/containerd".to_owned();
                self.listed(Fact::ListBegun(List::Runtimes));
                let read = RuntimeRead { place, kind: None, sandboxes, complete: true, unread: 0 };
                self.listed(Fact::RuntimeRead(read));
                self.listed(Fact::ListEnded { list: List::Runtimes, complete: true });
                self.listed(Fact::ListBegun(List::CniCache));
                self.listed(Fact::CacheUnchanged);
                self.listed(Fact::ListEnded { list: List::CniCache, complete: true });
                self.listed(Fact::ListBegun(List::Ipam));
                self.listed(Fact::ListEnded { list: List::Ipam, complete: true });
            }
            pass(&mut self.engine, ms(self.now * 1000));
            self.engine.advance(ms(self.now * 1000));
            self.take(reply);
        }
    }

    fn take(&mut self, reply: Reply) {
        while let Some(output) = self.engine.poll() {
            if let Output::Question(Question::Held { path, network, holder, address }) = output {
                assert_eq!((path.as_str(), network.as_str()), (PATH, "k8s-pod-network"));
                assert_eq!((address.to_string().as_str(), &holder.container), ("10.9.0.2", &id('a')));
                self.asked.push(self.now);
                if let Some(is_held) = reply {
                    self.listed(Fact::AddressAnswered(AddressAnswered { path, address, holder, is_held }));
                }
            } else {
                let text = line(&output);
                if text.contains("leaked_address/") || text.contains("blind_spot/") {
                    let (at, rest) = text.split_once(' ').expect("a time");
                    let at: u64 = at.parse().expect("milliseconds");
                    let what = rest.split(" [").next().unwrap_or(rest).trim_end_matches(" Agent");
                    self.told.push(format!("{} {what}", at / 1000));
                }
            }
        }
    }

    fn leak(&self) -> &Finding {
        let mut all = self.engine.findings().filter(|it| it.key.as_str().starts_with("leaked_address/"));
        all.next().expect("a leak")
    }
}

/// Returns a node on which sandbox `a` ended without a DEL in second 100.
fn ended() -> Node {
    let mut node = Node::new("calico-ipam");
    node.listed(link(StoreAnswer::Answers));
    node.until(100, None);
    node.sandbox_ends(None);
    node
}

/// When an address that stays held is asked about.
const ASKED: [u64; 6] = [161, 761, 1361, 1961, 2021, 2621];

fn key() -> String {
    format!("leaked_address/k8s-pod-network/10.9.0.2/{}", id('a'))
}

/// calico-kube-controllers may free it for 30 minutes.
#[test]
fn an_address_that_calico_still_holds_after_its_own_clean_up_is_a_leak_until_it_is_freed() {
    let mut node = ended();
    node.until(45 * MINUTE, HELD);
    assert_eq!(node.told.len(), 2, "{:?}", node.told);
    let [opened, confirmed] = [&node.told[0], &node.told[1]];
    assert!(opened.ends_with(&format!("finding.opened {}", key())), "{opened}");
    let at: u64 = confirmed.split(' ').next().and_then(|at| at.parse().ok()).expect("a time");
    assert!((100 + 32 * MINUTE..100 + 33 * MINUTE).contains(&at), "{confirmed}");
    // A minute after the end, each ten minutes, and when it should be clean.
    assert_eq!(node.asked, ASKED);
    let leak = node.leak();
    let Kind::LeakedAddress(it) = &leak.kind else { panic!("another kind") };
    assert_eq!((leak.stage, it.cause), (Stage::Confirmed, Cause::DelMissing));
    assert_eq!(
        it.stores.iter().map(|it| (it.kind, &*it.path)).collect::<Vec<_>>(),
        [(StoreKind::Calico, PATH)]
    );
    let repair = it.repair(&leak.sandboxes, &[]);
    // Whoever pastes all of it has released nothing, and IPAM is not locked.
    let commands: Vec<&str> =
        repair.iter().map(String::as_str).filter(|line| !line.starts_with('#')).collect();
    let check = "calicoctl ipam check --show-problem-ips -o report.json";
    assert_eq!(commands, ["calicoctl datastore migrate lock", check, "calicoctl datastore migrate unlock"]);
    let named = format!("# report.json must name 10.9.0.2 with the handle of {}.", id('a'));
    assert_eq!(repair.last(), Some(&named));
    node.until(60 * MINUTE, FREE);
    assert!(node.told[2].ends_with(&format!("finding.closed {}", key())), "{:?}", node.told);
    let asked = node.asked.len();
    node.until(120 * MINUTE, HELD);
    assert_eq!((node.asked.len(), node.told.len()), (asked, 3), "a free address is not asked about again");
}

#[test]
fn a_leak_closes_when_it_is_freed_after_its_network_has_left_the_configuration() {
    let mut node = ended();
    node.until(45 * MINUTE, HELD);
    node.listed(networks(&[]));
    node.until(60 * MINUTE, HELD);
    assert_eq!(node.leak().stage, Stage::Confirmed);
    node.until(70 * MINUTE, FREE);
    assert_eq!(node.leak().stage, Stage::Closed);
}

/// libcni's cache has its record for ever.
#[test]
fn what_calico_cleans_up_in_time_is_no_leak() {
    for is_cached in [false, true] {
        let mut node = ended();
        if is_cached {
            node.listed(cached("eth0"));
        }
        // Seen 7.5 minutes after the end, and freed with the first scan after 15 more.
        node.until(100 + 29 * MINUTE, HELD);
        node.until(120 * MINUTE, FREE);
        assert!(!node.told.iter().any(|it| it.contains("confirmed")), "{:?}", node.told);
        assert!(node.told.last().is_some_and(|it| it.contains("finding.closed")), "{:?}", node.told);
    }
}

#[test]
fn a_free_address_is_asked_about_once() {
    let mut node = ended();
    node.until(120 * MINUTE, FREE);
    assert_eq!((node.asked.len(), node.told), (1, Vec::<String>::new()));
    let left = node.engine.dump().len();
    assert!(left < 40, "what is known of the sandbox is forgotten: {left}");
}

#[test]
fn a_healthy_node_asks_nothing() {
    for (ipam, netns) in [("calico-ipam", Some("/run/netns/a")), ("host-local", None)] {
        let mut node = Node::new(ipam);
        node.listed(link(StoreAnswer::Answers));
        node.until(100, HELD);
        node.sandbox_ends(netns);
        node.until(60 * MINUTE, HELD);
        assert_eq!((node.asked, node.told), (Vec::new(), Vec::<String>::new()), "{ipam}");
    }
}

#[test]
fn a_del_before_the_last_add_does_not_count() {
    let mut node = Node::new("calico-ipam");
    node.listed(link(StoreAnswer::Answers));
    node.until(50, None);
    let mut story = Story::new();
    story.at(50_000).cni_done(5000, CALICO, "DEL", "/run/netns/a");
    story.cni_done(5001, CALICO, "ADD", "/run/netns/a");
    node.say(story);
    node.until(100, None);
    node.sandbox_ends(None);
    node.until(3 * MINUTE, FREE);
    assert_eq!(node.asked.len(), 1);
}

#[test]
fn without_the_setting_libcni_s_cache_decides_and_the_finding_names_the_setting() {
    let mut node = Node::new("calico-ipam");
    node.listed(cached("eth0"));
    node.until(100, HELD);
    node.sandbox_ends(None);
    node.until(5 * MINUTE, HELD);
    assert_eq!(node.asked, Vec::<u64>::new());
    let leak = node.leak();
    let Kind::LeakedAddress(it) = &leak.kind else { panic!("another kind") };
    let repair = it.repair(&leak.sandboxes, &[]).join("\n");
    assert!(repair.contains("asks there with --kubernetes-ipam calico (the chart's"), "{repair}");
}

/// Its plugin frees by the container's id, so most of these are free.
#[test]
fn a_del_without_a_namespace_is_checked_and_is_no_cause() {
    let mut node = Node::new("calico-ipam");
    node.listed(link(StoreAnswer::Answers));
    node.until(100, None);
    node.sandbox_ends(Some(""));
    node.until(40 * MINUTE, HELD);
    assert_eq!(node.asked, [2021]);
    let Kind::LeakedAddress(it) = &node.leak().kind else { panic!("another kind") };
    assert_eq!(it.cause, Cause::DelHollow);
    assert!(it.cause().starts_with("Calico's IPAM still has the handle"), "{}", it.cause());
}

#[test]
fn a_sandbox_that_lives_or_is_on_record_is_not_asked_about() {
    let mut node = Node::new("calico-ipam");
    node.listed(link(StoreAnswer::Answers));
    node.until(30 * MINUTE, HELD);
    node.sandbox_ends(None);
    node.on_record = vec!['a'];
    node.until(60 * MINUTE, HELD);
    assert_eq!(node.asked, Vec::<u64>::new());
}

#[test]
fn no_answer_opens_nothing_and_closes_nothing() {
    let mut node = ended();
    node.listed(cached("eth0"));
    node.until(60 * MINUTE, None);
    assert_eq!(node.told, Vec::<String>::new(), "libcni's cache alone does not decide either");
    assert_eq!(node.asked.len(), 7, "it is asked again every ten minutes");
    node.until(90 * MINUTE, HELD);
    assert!(
        node.told.iter().any(|it| it.ends_with(&format!("finding.confirmed {}", key()))),
        "{:?}",
        node.told
    );
    let told = node.told.len();
    node.until(180 * MINUTE, None);
    assert_eq!(node.told.len(), told, "{:?}", node.told);
}

#[test]
fn a_missing_right_is_a_blind_spot_until_it_is_given() {
    let mut node = ended();
    let right = "get ipamhandles.crd.projectcalico.org".to_owned();
    node.listed(link(StoreAnswer::Refused { right: right.clone() }));
    node.until(5 * MINUTE, None);
    let spot = format!("blind_spot/right/{PATH}");
    assert!(node.told.iter().any(|it| it.ends_with(&format!("finding.confirmed {spot}"))), "{:?}", node.told);
    let found = node.engine.findings().find(|it| it.key.as_str() == spot).expect("a blind spot");
    let Kind::BlindSpot(it) = &found.kind else { panic!("another kind") };
    assert_eq!(it.summary(), format!("the agent lacks the right to {right}; weaker: leaked_address"));
    let ask = "kubectl auth can-i 'get' 'ipamhandles.crd.projectcalico.org' \
               --as=system:serviceaccount:NAMESPACE:sandprobe";
    assert_eq!(it.repair(&[], &[]).last().map(String::as_str), Some(ask));
    node.listed(link(StoreAnswer::Answers));
    node.until(6 * MINUTE, None);
    assert!(
        node.told.last().is_some_and(|it| it.ends_with(&format!("finding.closed {spot}"))),
        "{:?}",
        node.told
    );
    // One that is silent is a store that cannot be read.
    node.listed(link(StoreAnswer::Silent));
    node.until(7 * MINUTE, None);
    let spot = format!("blind_spot/store/{PATH}");
    assert!(node.told.iter().any(|it| it.ends_with(&format!("finding.confirmed {spot}"))), "{:?}", node.told);
    let found = node.engine.findings().find(|it| it.key.as_str() == spot).expect("a blind spot");
    let Kind::BlindSpot(it) = &found.kind else { panic!("another kind") };
    let repair = it.repair(&[], &[]).join(" ");
    assert!(repair.contains("log says why the API server does not answer"), "{repair}");
}

#[test]
fn a_restart_of_the_agent_keeps_what_was_answered_and_one_without_the_flag_ends_it() {
    let mut node = ended();
    node.until(20 * MINUTE, HELD);
    assert_eq!(node.told.len(), 1, "a candidate: {:?}", node.told);
    let mut next = Engine::new(Settings::default());
    node.engine.dump().into_iter().for_each(|entry| next.restore(entry));
    node.engine = next;
    node.listed(link(StoreAnswer::Answers));
    node.until(45 * MINUTE, HELD);
    assert_eq!(node.asked, ASKED);
    assert_eq!(node.leak().stage, Stage::Confirmed);
    // The next agent does not ask any more, so it knows nothing of the address.
    let asked: Vec<String> = node.engine.asked().map(|it| it.path.clone()).collect();
    assert_eq!(asked, [PATH]);
    node.listed(link(StoreAnswer::Off));
    node.until(46 * MINUTE, HELD);
    assert_eq!(node.leak().stage, Stage::Closed);
    assert_eq!(node.engine.asked().count(), 0);
}

/// What the API server said does not count without the flag, and is asked again with it.
#[test]
fn an_address_in_libcni_s_cache_stays_leaked_without_the_flag_and_is_asked_about_again_with_it() {
    let mut node = ended();
    node.listed(cached("eth0"));
    node.until(45 * MINUTE, HELD);
    let told = node.told.len();
    node.listed(link(StoreAnswer::Off));
    node.until(50 * MINUTE, HELD);
    assert_eq!((node.leak().stage, node.told.len(), node.asked.len()), (Stage::Confirmed, told, ASKED.len()));
    node.listed(link(StoreAnswer::Answers));
    node.until(52 * MINUTE, FREE);
    assert_eq!((node.leak().stage, node.asked.len()), (Stage::Closed, ASKED.len() + 1));
}

/// Nothing else is known of an attachment from before the agent.
#[test]
fn an_attachment_of_the_cache_alone_is_asked_about() {
    let mut node = Node::new("calico-ipam");
    node.listed(link(StoreAnswer::Answers));
    node.listed(cached("eth1"));
    node.sandbox_ends(Some("/run/netns/a"));
    node.until(3 * MINUTE, FREE);
    assert_eq!(node.asked.len(), 1);
    assert_eq!(node.told, Vec::<String>::new());
}
