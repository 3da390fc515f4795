//! `docs/findings.md` has exactly the kinds and members that are written, and every kind has a page.

use std::{collections::BTreeSet, fs, net::IpAddr, path::Path, time::Duration};

use serde_json::Value;
use strum::VariantNames;

use super::Finding;
use crate::{
    model::{
        change::{self, Process},
        fact::{
            CniCommand, List, NetworkFaultForm, NodeFolders, PodName, ProgramFound, RunState,
            RuntimeEventKind, Said, Signal, Speaker, StoreKind, ThreadState,
        },
        finding::{
            AbandonedSandbox, AbandonedStore, Blind, BlindSpot, Cause, CniFailing, CniQueue, CniSlow,
            CniWait, CniWaitForm, CniWrongDel, Contradiction, DaemonFailing, Duplicate, DuplicateAddress,
            DuplicateContainer, DuplicateSandbox, FindingKind, Key, Kind, LeakedAddress, LostNetwork, Many,
            Message, MissedRuntimeEvent, NodeNetworkUnready, OrphanNetns, OrphanSandbox, OutOfOrder,
            OwnerlessReservation, PhantomSandbox, PoolExhaustion, RestartedInBulk, RuntimeUnresponsive,
            SandboxesReplaced, Severity, Stage, StaleRuntimeStatus, StartCause, StartStep, StopStep,
            StoreRef, StuckCgroup, StuckNetnsTeardown, StuckStart, StuckStop, TeardownOutOfOrder,
            UnverifiedRelease, WrongDelForm,
        },
        id::{ContainerId, NetnsKey, PodUid, Subnet, TaskKey},
        time::Timestamp,
    },
    sink::Label,
};

const INDEX: &str = include_str!("../../../../../../docs/findings.md");

fn address() -> IpAddr {
    [10, 88, 0, 5].into()
}

fn process() -> Process {
    Process { key: TaskKey::new(5, 7), parent: TaskKey::new(1, 2), comm: "pause".to_owned() }
}

fn netns() -> NetnsKey {
    NetnsKey::new(4_026_532_177, 41)
}

/// A finding of each kind, with everything that can be known.
pub(in crate::sink::render::jsonl) fn all() -> Vec<Kind> {
    let name = || "podnet".to_owned();
    let plugin = || "bridge".to_owned();
    let second = Duration::from_secs(1);
    vec![
        Kind::LeakedAddress(LeakedAddress {
            address: address(),
            network: Some(name()),
            inferred: true,
            ifname: "eth0".to_owned(),
            plugin: Some(plugin()),
            cause: Cause::DelBlind,
            stores: vec![StoreRef { kind: StoreKind::HostLocal, path: "/x".to_owned() }],
            many: Some(Many { count: 70, first: vec![address()] }),
        }),
        Kind::AbandonedStore(AbandonedStore { path: "/s".to_owned(), network: "n".to_owned(), count: 2 }),
        Kind::OwnerlessReservation(OwnerlessReservation {
            kind: StoreKind::HostLocal,
            path: "/s".to_owned(),
            network: Some("n".to_owned()),
            count: 1,
            first: vec![[10, 88, 0, 7].into()],
        }),
        Kind::UnverifiedRelease(UnverifiedRelease { plugin: plugin(), count: 2, without_del: 1 }),
        Kind::DuplicateSandbox(DuplicateSandbox { form: Duplicate::Concurrent, count: 1 }),
        Kind::TeardownOutOfOrder(TeardownOutOfOrder {
            how: OutOfOrder::PauseKilled,
            killer: Some(process()),
            signal: Some(9),
        }),
        Kind::OrphanNetns(OrphanNetns { netns: netns(), mounts: vec!["/run/netns/cni-1".to_owned()] }),
        Kind::StuckNetnsTeardown(StuckNetnsTeardown { netns: netns(), held: second, waiting: 3 }),
        Kind::StuckCgroup(StuckCgroup { path: "/kubepods/pod1".to_owned(), populated: Some(false) }),
        Kind::StuckStop(StuckStop {
            step: StopStep::Del,
            process: Some(process()),
            attempts: 2,
            plugin: Some("bridge".to_owned()),
            exit_code: Some(1),
            cache_file: Some("/var/lib/cni/results/podnet-c1-eth0".to_owned()),
            mount: Some("/run/netns/cni-1".to_owned()),
            said: vec![Said {
                by: Speaker::Kubelet,
                text: "secret \"tls\" not found".to_owned(),
                at: "2026-11-25T09:29:07Z".to_owned(),
                source: "/var/log/kubelet.log".to_owned(),
            }],
            unsaid: Some("it is not in /var/log/journal".to_owned()),
        }),
        Kind::StuckStart(StuckStart {
            step: StartStep::Network,
            sandboxes: 2,
            cause: Some(StartCause::PluginNotCalled),
            plugin: Some("portmap".to_owned()),
            network: Some(name()),
            folders: vec!["/opt/cni/bin".to_owned()],
            config_file: Some("/etc/cni/net.d/10-podnet.conflist".to_owned()),
            addresses: vec![address()],
            said: vec![Said {
                by: Speaker::Kubelet,
                text: "secret \"tls\" not found".to_owned(),
                at: "2026-11-25T09:29:07Z".to_owned(),
                source: "/var/log/kubelet.log".to_owned(),
            }],
            unsaid: Some("it is not in /var/log/journal".to_owned()),
        }),
        Kind::OrphanSandbox(OrphanSandbox { process: process() }),
        Kind::AbandonedSandbox(AbandonedSandbox { container: Some(name()), exit_code: Some(1) }),
        Kind::SandboxesReplaced(SandboxesReplaced {
            daemon: name(),
            count: 2,
            first: vec!["default/web-0".to_owned()],
        }),
        Kind::RestartedInBulk(RestartedInBulk {
            daemon: Some(name()),
            was: Some("kubelet v1.30.8".to_owned()),
            is: Some("kubelet v1.31.4".to_owned()),
            killer: Some(process()),
            containers: 4,
            count: 3,
            lasted: second,
            first: vec!["default/web-0".to_owned()],
        }),
        Kind::PhantomSandbox(PhantomSandbox {
            runtime: "/run/containerd/containerd.sock".to_owned(),
            left_on_record: None,
        }),
        Kind::StaleRuntimeStatus(StaleRuntimeStatus {
            how: Contradiction::ExitCode,
            id: ContainerId::parse("c1").expect("an id"),
            is_sandbox: false,
            container: Some(name()),
            exit_code: Some(137),
            runtime_exit_code: Some(255),
            evidence: Some("named main".to_owned()),
            runtime_says: Some("named web".to_owned()),
        }),
        Kind::MissedRuntimeEvent(MissedRuntimeEvent {
            event: RuntimeEventKind::Stopped,
            id: ContainerId::parse("c1").expect("an id"),
            is_sandbox: false,
            container: Some(name()),
            runtime: "/run/containerd/containerd.sock".to_owned(),
        }),
        Kind::DaemonFailing(DaemonFailing {
            daemon: "kubelet".to_owned(),
            plugins: Vec::new(),
            plugin_pod: None,
            count: 3,
            lasted: Duration::from_secs(9),
            down: false,
            killer: None,
            exit_code: 139,
            signal: Some(11),
            oom: true,
            said: vec![Said {
                by: Speaker::Kubelet,
                text: "failed to run Kubelet".to_owned(),
                at: "2026-11-25T09:29:07Z".to_owned(),
                source: "/var/log/kubelet.log".to_owned(),
            }],
            unsaid: Some("it is not in /var/log/journal".to_owned()),
        }),
        Kind::NodeNetworkUnready(NodeNetworkUnready {
            how: NetworkFaultForm::BadConfiguration,
            runtime: "containerd".to_owned(),
            folder: "/etc/cni/net.d".to_owned(),
            config_file: Some("/etc/cni/net.d/10-podnet.conflist".to_owned()),
            error: Some("it is empty".to_owned()),
            plugin: Some("portmap".to_owned()),
            folders: vec!["/opt/cni/bin".to_owned()],
            pods: 1,
            first: vec!["default/web-0".to_owned()],
        }),
        Kind::RuntimeUnresponsive(RuntimeUnresponsive {
            runtime: "/run/containerd/containerd.sock".to_owned(),
            pods: 1,
            first: vec!["default/web-0".to_owned()],
            process: Some(process()),
            state: Some(RunState::Stopped),
            threads: vec![ThreadState {
                state: RunState::Stopped,
                function: Some("do_signal_stop".to_owned()),
                count: 12,
            }],
        }),
        Kind::DuplicateContainer(DuplicateContainer {
            name: name(),
            containers: ContainerId::parse("c1").into_iter().collect(),
        }),
        Kind::LostNetwork(LostNetwork {
            ifname: name(),
            addresses: vec![address()],
            network: Some(name()),
            plugin: Some("portmap".to_owned()),
            by: Some(process()),
            by_pod: Some(true),
        }),
        Kind::DuplicateAddress(DuplicateAddress { network: Some(name()), address: address() }),
        Kind::CniWrongDel(CniWrongDel {
            how: WrongDelForm::ForeignNetns,
            plugin: plugin(),
            ifname: name(),
            count: 1,
            netns: Some("/proc/5/ns/net".to_owned()),
            addresses: vec![address()],
        }),
        Kind::CniFailing(CniFailing {
            plugin: plugin(),
            command: CniCommand::Del,
            attempts: 3,
            pods: 1,
            wasted: second,
            code: Some(1),
            message: Some(Message {
                text: Some("no address is free".to_owned()),
                source: "journal".to_owned(),
            }),
            messages: Vec::new(),
        }),
        Kind::CniSlow(CniSlow {
            plugin: plugin(),
            command: "ADD".to_owned(),
            took: second,
            open: true,
            waits: Some(CniWait {
                process: process(),
                after: second,
                ended: true,
                form: CniWaitForm::FileLock,
                function: Some("locks_lock_inode_wait".to_owned()),
            }),
        }),
        Kind::CniQueue(CniQueue { waiting: 20, oldest: second, plugin: plugin() }),
        Kind::PoolExhaustion(PoolExhaustion {
            network: name(),
            subnet: Subnet { address: address(), prefix: 24 },
            size: 253,
            used: 250,
            ownerless: 1,
            leaked: 2,
            free: 1,
            runs_out_in: Some(second),
        }),
        Kind::BlindSpot(BlindSpot {
            spot: Blind::Signal { signal: Signal::Exec },
            weaker: vec![FindingKind::OrphanNetns],
        }),
        Kind::BlindSpot(BlindSpot { spot: Blind::Lost { count: 2 }, weaker: vec![FindingKind::OrphanNetns] }),
        Kind::BlindSpot(BlindSpot { spot: Blind::Kubelet, weaker: vec![FindingKind::StuckCgroup] }),
        Kind::BlindSpot(BlindSpot {
            spot: Blind::CniCache { path: "/c".to_owned(), count: 2 },
            weaker: vec![FindingKind::LeakedAddress],
        }),
        Kind::BlindSpot(BlindSpot {
            spot: Blind::Listing { list: List::Netns },
            weaker: vec![FindingKind::OrphanNetns],
        }),
    ]
}

pub(in crate::sink::render::jsonl) fn written(kind: Kind) -> Value {
    let finding = change::Finding {
        key: Key::parse("orphan_netns/1").expect("a key"),
        kind,
        severity: Severity::Warning,
        stage: Stage::Closed,
        since: Timestamp(1),
        opened_at: Timestamp(2),
        confirmed_at: Some(Timestamp(3)),
        closed_at: Some(Timestamp(4)),
        pod: Some(PodName {
            namespace: Some("default".to_owned()),
            name: Some("web-0".to_owned()),
            uid: PodUid::parse("11111111-2222-3333-4444-555555555555"),
        }),
        sandboxes: ContainerId::parse("a1").into_iter().collect(),
        gapped: true,
        evidence: Vec::new(),
        programs: vec![ProgramFound { path: "/usr/bin/containerd".to_owned(), version: None }],
        runtimes: Vec::new(),
        folders: NodeFolders::default(),
        worst: None,
    };
    let label = Label { node: "node-1".to_owned(), boot_id: "b".to_owned(), boot_wall_ns: 0 };
    serde_json::to_value(Finding::of(&finding, &label)).expect("JSON")
}

/// The rows of a section's tables, as text.
fn rows(heading: &str) -> impl Iterator<Item = &'static str> {
    let (_, section) = INDEX.split_once(heading).expect("the section is there");
    let section = section.split("\n## ").next().unwrap_or(section);
    section.lines().filter(|line| line.starts_with("| `") || line.starts_with("| [`"))
}

/// The texts in backquotes.
fn quoted(text: &str) -> BTreeSet<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn first(row: &'static str) -> &'static str {
    row.split('`').nth(1).unwrap_or("")
}

/// The state file keeps findings in the same form.
#[test]
fn every_kind_is_read_as_it_was_written() {
    for kind in all() {
        let written = serde_json::to_string(&kind).expect("JSON");
        assert_eq!(serde_json::from_str::<Kind>(&written).expect(&written), kind);
    }
}

#[test]
fn every_kind_has_its_row_and_its_page() {
    let kinds: BTreeSet<&str> = all().iter().map(Kind::into_str).collect();
    assert_eq!(kinds, Kind::VARIANTS.iter().copied().collect(), "one of each kind");
    assert_eq!(kinds, rows("# Findings\n").map(first).collect());
    assert_eq!(kinds, rows("\n## Details\n").map(first).collect());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/findings");
    let pages: BTreeSet<String> = fs::read_dir(&folder)
        .expect("the pages")
        .map(|page| page.expect("a page").file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(pages, kinds.iter().map(|kind| format!("{kind}.md")).collect());
    for page in &pages {
        let text = fs::read_to_string(folder.join(page)).expect("a page");
        let (kind, _) = page.split_once('.').expect("a page of a kind");
        assert_eq!(text.lines().next(), Some(format!("# {kind}").as_str()));
        for heading in ["Meaning", "Rule", "Causes", "Repair", "False-alarm traps"] {
            assert!(text.contains(&format!("\n## {heading}\n")), "{page} has no {heading}");
        }
        let ends = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in ends.filter(|link| !link.starts_with("https://")) {
            let (file, section) = link.split_once('#').unwrap_or((link, ""));
            let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
            let named = |line: &str| line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
            let mut headings = text.lines().filter(|line| line.starts_with('#')).map(named);
            let is_there =
                if section.is_empty() { !text.is_empty() } else { headings.any(|it| it == section) };
            assert!(is_there, "{page} links to {link}");
        }
    }
}

#[test]
fn the_documentation_has_every_member_and_no_other() {
    let mut members = BTreeSet::new();
    for kind in all() {
        for (key, value) in written(kind).as_object().expect("an object") {
            members.insert(key.clone());
            let inner = value.as_array().and_then(|all| all.first()).unwrap_or(value);
            if key != "detail" {
                let inner = inner.as_object().into_iter().flatten();
                members.extend(inner.map(|(name, _)| format!("{key}.{name}")));
            }
        }
    }
    assert_eq!(members, rows("\n## Members\n").map(|row| first(row).to_owned()).collect());
}

#[test]
fn the_documentation_has_every_detail() {
    for kind in all() {
        let name = kind.into_str();
        let row = rows("\n## Details\n").find(|row| first(row) == name).expect("the kind's row");
        let value = written(kind);
        for (key, value) in value["detail"].as_object().expect("an object") {
            assert!(quoted(row).contains(key.as_str()), "{name} has {key}");
            let inner = value.as_array().and_then(|all| all.first()).unwrap_or(value);
            for (inner, _) in inner.as_object().into_iter().flatten().filter(|(inner, _)| *inner != "parent")
            {
                assert!(quoted(row).contains(inner.as_str()), "{name} has {key}.{inner}");
            }
        }
    }
}

#[test]
fn the_pages_have_every_word_of_closed_sets() {
    let page = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/findings/{name}.md"));
        fs::read_to_string(path).expect("the page")
    };
    let has_all = |page: &str, words: &[&str]| words.iter().all(|it| page.contains(&format!("\n| `{it}` |")));
    assert!(has_all(&page("leaked_address"), Cause::VARIANTS));
    assert!(has_all(&page("duplicate_sandbox"), Duplicate::VARIANTS));
    assert!(has_all(&page("teardown_out_of_order"), OutOfOrder::VARIANTS));
}
