//! The scan: reads the node, lets the engine judge, and reads the records again before a verdict, so that
//! operations in progress have ended by then.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::IpAddr,
    path::Path,
};

use probe_common::runtime::HOST_LOCAL;

use crate::{
    cli::on_node::node::{args::warn_of_absent, identity, place::Place, scan},
    engine::{Daemons, Engine, Limits, Settings},
    model::{
        change::Finding,
        fact::{Fact, List, Network, Reservation, Store, StoreKind, StoreRead},
        finding::{Blind, BlindSpot, Explain as _, FindingKind, Kind, Stage},
        time::Timestamp,
    },
    sink::Label,
    source::{
        backfill::{self, Node, Records, store::Declared},
        host::{HostRoot, ReadError, skipped::Skipped},
        node::{cgroup::Hierarchy, clock},
    },
};

/// The input of a scan.
pub(super) struct LeakScan<'a> {
    pub(super) root: &'a Path,
    pub(super) stores: &'a [Declared],
    pub(super) limits: Limits,
    /// The findings that the agent of this node has confirmed. It has waited for their grace.
    pub(super) confirmed: BTreeSet<String>,
}

/// The result of a scan.
pub(super) struct ScanResult {
    pub(super) findings: Vec<Finding>,
    pub(super) label: Label,
    pub(super) now: Timestamp,
    pub(super) stores: Vec<StoreRead>,
    /// The reservations that name no sandbox of a pod: nothing is said of them.
    pub(super) unjudged: Vec<(Store, Reservation)>,
    pub(super) networks: Vec<Network>,
    pub(super) caveats: Vec<String>,
    /// How many network namespaces the kernel has. `None`: the files are not those of the running kernel.
    pub(super) netns: Option<usize>,
    runtimes: usize,
    /// The incomplete lists, among the lists that a verdict needs.
    partial: BTreeSet<List>,
    skipped: Skipped,
}

/// What the runtimes' list contains, for a message.
const RECORDS: &str = "a runtime's records of sandboxes";
/// The file with the id of the boot.
const BOOT_ID: &str = "sys/kernel/random/boot_id";

impl LeakScan<'_> {
    pub(super) fn run(self) -> anyhow::Result<ScanResult> {
        let frozen = self.root != Path::new("/") && !is_of_this_boot(self.root);
        let root = HostRoot::open(self.root)?;
        warn_of_absent(self.stores, &root);
        let mut caveats = Vec::new();
        let (root, hierarchy) = if frozen && root.folder("/proc/1").is_err() {
            caveats.push("no processes are seen below --host-root: the records alone decide".to_owned());
            // An empty hierarchy.
            (root, Hierarchy { id: 0, controllers: Vec::new(), mount: "/sys/fs/cgroup".to_owned() })
        } else {
            let place = Place::find(root)?;
            (place.root, place.hierarchy)
        };
        let settings = Settings { limits: self.limits, ..Settings::default() };
        let header = identity::header(None, settings.clone());
        let mut engine = Engine::new(settings);
        let mut seen = Seen::default();
        let node = Node {
            root: &root,
            hierarchy: &hierarchy,
            clock: &clock::now,
            boot_wall_ns: header.boot_wall_ns,
            stores: self.stores,
        };
        // It remembers when each address was first seen, where a store has no times.
        let mut records = Records::default();
        let mut skipped = scan::observe(
            &mut engine,
            node,
            |node, send_batch| {
                let mut skipped = backfill::present(node, send_batch)?;
                skipped.append(records.read(node, send_batch)?);
                Ok(skipped)
            },
            |fact| seen.note(fact),
        );
        skipped.append(scan::answer(&mut engine, &root));
        let cleaners = if frozen { Daemons::Assumed } else { Daemons::Observed };
        let mut now = clock::now();
        let mut findings = engine.survey(now, cleaners);
        if !findings.is_empty() || !self.confirmed.is_empty() {
            seen.forget();
            skipped = scan::observe(
                &mut engine,
                node,
                |node, send_batch| records.read(node, send_batch),
                |fact| seen.note(fact),
            );
            now = clock::now();
            findings = engine.survey(now, cleaners);
        }
        if !frozen {
            findings = with_confirmed(findings, engine.survey_at_once(now, cleaners), &self.confirmed);
        }
        Ok(ScanResult {
            findings,
            label: Label { node: header.node, boot_id: header.boot_id, boot_wall_ns: header.boot_wall_ns },
            now,
            stores: seen.stores.into_values().collect(),
            unjudged: engine.unjudged().map(|(store, it)| (store.clone(), it.clone())).collect(),
            networks: seen.networks,
            caveats,
            netns: (!frozen).then(|| engine.netns_in_kernel()),
            runtimes: seen.runtimes,
            partial: seen.partial,
            skipped,
        })
    }
}

/// Returns the findings of a scan, with those that still hold and that the agent has confirmed: their grace
/// is over, whatever this scan can know about it.
fn with_confirmed(
    mut findings: Vec<Finding>,
    at_once: Vec<Finding>,
    confirmed: &BTreeSet<String>,
) -> Vec<Finding> {
    for it in at_once {
        if it.stage != Stage::Confirmed || !confirmed.contains(it.key.as_str()) {
            continue;
        }
        if !findings.iter().any(|known| known.key == it.key && known.stage == Stage::Confirmed) {
            findings.retain(|known| known.key != it.key);
            findings.push(it);
        }
    }
    findings
}

/// Watches the facts on their way to the engine.
#[derive(Default)]
struct Seen {
    stores: BTreeMap<String, StoreRead>,
    networks: Vec<Network>,
    runtimes: usize,
    partial: BTreeSet<List>,
}

impl Seen {
    /// Forgets what is read again.
    fn forget(&mut self) {
        *self = Self::default();
    }

    fn note(&mut self, fact: &Fact) {
        match fact {
            Fact::StoreRead(read) => _ = self.stores.insert(read.store.path.clone(), read.clone()),
            Fact::NetworksRead(read) => self.networks.clone_from(&read.networks),
            Fact::RuntimeRead(_) => self.runtimes += 1,
            Fact::ListEnded { list: list @ (List::Ipam | List::Runtimes), complete: false } => {
                self.partial.insert(*list);
            }
            _ => {}
        }
    }
}

impl ScanResult {
    /// Why no verdict is possible, if so.
    pub(super) fn blind(&self) -> Option<String> {
        // A store that cannot be read may hold all the leaks.
        if self.partial.contains(&List::Ipam) {
            let what = if self.is_of_network() { "a network's configuration" } else { "an IPAM store" };
            return Some(self.unread(List::Ipam, what));
        }
        if self.stores.is_empty() {
            if let Some(elsewhere) = backfill::store::elsewhere(&self.networks) {
                return Some(format!(
                    "cannot look: {elsewhere}; ask the plugin's own tool which addresses it holds for pods of this node"
                ));
            }
            let first = self.skipped.first.as_deref();
            let first = first.map(|(path, why)| format!("; first {}: {why}", path.display()));
            return Some(format!(
                "cannot look: no IPAM store was found, neither host-local's (/var/lib/cni/networks, or where \
                 /etc/cni/net.d says) nor ipamd's nor Azure CNI's nor Cilium's nor UCloud's; name the plugin's own with --ipam-store DIR{}",
                first.unwrap_or_default()
            ));
        }
        // If no store has a reservation, the runtimes' records are not needed.
        if self.stores.iter().all(|store| store.reservations.is_empty()) {
            return None;
        }
        if self.partial.contains(&List::Runtimes) {
            return Some(self.unread(List::Runtimes, RECORDS));
        }
        if self.runtimes == 0 {
            return Some(
                "cannot look: no records of sandboxes were found, neither containerd's (/var/lib/containerd) nor \
                 CRI-O's (/var/lib/containers/storage) nor dockershim's; without them nothing says which addresses \
                 are still wanted"
                    .to_owned(),
            );
        }
        self.findings.iter().find_map(blind_spot).map(|spot| self.unseen(spot))
    }

    /// Returns the message that the engine cannot see something on which verdicts on leaks rest.
    fn unseen(&self, spot: &BlindSpot) -> String {
        let Blind::Runtime { place: Some(place) } = &spot.spot else {
            return format!("could not look everywhere: {}", spot.summary());
        };
        match self.skipped.named.iter().find(|(path, _)| path.starts_with(place)) {
            Some((path, why)) => unread(RECORDS, path, why, todo(why)),
            None => {
                let absent = ReadError::Absent;
                unread(
                    RECORDS,
                    Path::new(place),
                    &absent,
                    ", and its runtime runs; mount the disk that has it",
                )
            }
        }
    }

    /// Whether a link, a directory or a FIFO has the name of this address in the store.
    pub(super) fn is_not_a_file(&self, store: &str, address: IpAddr) -> bool {
        let path = Path::new(store).join(address.to_string());
        self.skipped.named.get(&path) == Some(&ReadError::NotPlain)
    }

    /// Whether what could not be read is a network's configuration, which says where stores are, and not a
    /// store itself.
    fn is_of_network(&self) -> bool {
        let mut stores = self.stores.iter().map(|it| &*it.store.path).chain([HOST_LOCAL]);
        let first = self.skipped.partial.get(&List::Ipam);
        first.is_some_and(|(path, _)| !stores.any(|store| path.starts_with(store)))
    }

    /// Returns the message that this list is incomplete: what, where, what to do.
    fn unread(&self, list: List, what: &str) -> String {
        let Some((path, why)) = self.skipped.partial.get(&list) else {
            return format!("could not look everywhere: {what} cannot be read");
        };
        let is_declared = self.stores.iter().any(|it| {
            it.store.kind == StoreKind::Declared && Path::new(&it.store.path) == path && !it.complete
        });
        let todo = match why {
            ReadError::NotPlain if is_declared => {
                "; --ipam-store takes the directory in which the plugin keeps a file for each address"
            }
            ReadError::NotPlain if list == List::Ipam && self.is_of_network() => {
                "; make it a file, or remove it"
            }
            why => todo(why),
        };
        unread(what, path, why, todo)
    }
}

/// Returns the message that something cannot be read: what, where, why, what to do.
fn unread(what: &str, path: &Path, why: &ReadError, todo: &str) -> String {
    format!("could not look everywhere: {what} cannot be read: {}: {why}{todo}", path.display())
}

fn todo(why: &ReadError) -> &'static str {
    if matches!(why, ReadError::Unreadable(_)) { "; run as root" } else { "" }
}

/// Returns what the finding says that sandprobe cannot see, if leaks may be missed because of it.
fn blind_spot(finding: &Finding) -> Option<&BlindSpot> {
    let Kind::BlindSpot(spot) = &finding.kind else { return None };
    let is_of_leaks = finding.stage == Stage::Confirmed && spot.weaker.contains(&FindingKind::LeakedAddress);
    is_of_leaks.then_some(spot)
}

/// Whether the files below `root` are those of the running kernel.
fn is_of_this_boot(root: &Path) -> bool {
    boot_id(Path::new("/proc")).is_some_and(|own| boot_id(&root.join("proc")) == Some(own))
}

fn boot_id(proc: &Path) -> Option<Vec<u8>> {
    fs::read(proc.join(BOOT_ID)).ok()
}

#[cfg(test)]
mod tests {
    use super::{BTreeSet, Finding, Stage, Timestamp, with_confirmed};
    use crate::model::{
        fact::NodeFolders,
        finding::{Key, Kind, Severity, StuckCgroup},
    };

    fn finding(key: &str, stage: Stage) -> Finding {
        Finding {
            key: Key::parse(key).expect("a key"),
            kind: Kind::from(StuckCgroup { path: String::new(), populated: None }),
            severity: Severity::Warning,
            stage,
            since: Timestamp::ZERO,
            opened_at: Timestamp::ZERO,
            confirmed_at: None,
            closed_at: None,
            pod: None,
            sandboxes: Vec::new(),
            runtimes: Vec::new(),
            folders: NodeFolders::default(),
            worst: None,
            gapped: false,
            evidence: Vec::new(),
            programs: Vec::new(),
        }
    }

    /// The agent has confirmed `a`, which is too young for this scan, `b`, which is a candidate, and `d`,
    /// which no longer exists.
    #[test]
    fn what_the_agent_has_confirmed_is_leaked_if_it_is_still_so() {
        let confirmed: BTreeSet<String> = ["a/1", "b/1", "d/1"].map(str::to_owned).into();
        let looked = vec![finding("b/1", Stage::Candidate), finding("c/1", Stage::Candidate)];
        let at_once = ["a/1", "b/1", "c/1"].map(|key| finding(key, Stage::Confirmed)).into();
        let mut found: Vec<(String, Stage)> = with_confirmed(looked, at_once, &confirmed)
            .into_iter()
            .map(|it| (it.key.as_str().to_owned(), it.stage))
            .collect();
        found.sort_unstable();
        let expected = [("a/1", Stage::Confirmed), ("b/1", Stage::Confirmed), ("c/1", Stage::Candidate)];
        assert_eq!(found, expected.map(|(key, stage)| (key.to_owned(), stage)));
    }
}
