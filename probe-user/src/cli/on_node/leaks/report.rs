//! What is leaked, as tables and as a script.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert,
    net::IpAddr,
};

use serde::Serialize;

use super::scan::ScanResult;
use crate::{
    cli::{finding::list::summary, table::aligned},
    model::{
        change::Finding,
        fact::{Pool, StoreKind, StoreRead},
        finding::{Cause, Kind, Stage},
        id::ContainerId,
        time::Timestamp,
    },
    sink::{
        escape::{escaped, short_key},
        render::{jsonl, phase::pod, wall_clock::Rfc3339},
        span::span,
    },
    words::release::{self, Functions, functions, restart_ipamd},
};

/// A leaked address, with what its finding says about it.
struct Leak<'a> {
    finding: &'a Finding,
    address: IpAddr,
    network: Option<&'a str>,
    cause: &'static str,
    /// `None`: the store does not say whose it is.
    sandbox: Option<&'a ContainerId>,
    stores: Vec<(StoreKind, &'a str)>,
    /// In place of its file is a link, a directory or a FIFO, which no command frees.
    is_not_a_file: bool,
}

/// Up to this number, each address gets its command in the text; beyond it, only the script has all commands.
const COMMANDS: usize = 20;

/// Without any store nothing is said about addresses: the reason was printed already.
pub(super) fn text(result: &ScanResult, leaked: &[&Finding], is_sure: bool) -> String {
    let leaked = &leaks(result, leaked);
    let mut text = String::new();
    if !result.stores.is_empty() {
        text = networks(result, leaked);
        text.push('\n');
        text += &match (leaked.is_empty(), is_sure) {
            (false, _) => addresses(result, leaked),
            (true, true) => "no leaked addresses\n".to_owned(),
            (true, false) => "no leaked addresses, as far as sandprobe can see\n".to_owned(),
        };
    }
    let others: Vec<_> = result.findings.iter().filter(|it| !super::is_leaked(it)).collect();
    if !others.is_empty() {
        text.push('\n');
        text += &other(result, &others);
    }
    if !result.unjudged.is_empty() {
        text.push('\n');
        text += &unjudged(result);
    }
    text + &commands(leaked)
}

/// How many network namespaces there are, and may be.
pub(super) fn namespaces(count: usize, limit: Option<u64>) -> String {
    match limit {
        Some(limit) => format!("\nnetwork namespaces: {count} of the {limit} that each user may make\n"),
        None => format!("\nnetwork namespaces: {count}\n"),
    }
}

/// Returns a table with a row for each range of each store's network, and one for what is in no range. A
/// question mark stands for what is not known, such as all that only a complete reading of the store shows.
fn networks(result: &ScanResult, leaked: &[Leak<'_>]) -> String {
    let mut rows = Vec::new();
    for store in &result.stores {
        let lost = lost(store, leaked);
        let pools = pools(result, store.store.network.as_deref());
        for pool in pools {
            let counts = Counts::of(result, store, &lost, |address| is_in(address, pool));
            rows.push(network(store, Some(pool), counts));
        }
        let rest = Counts::of(result, store, &lost, |address| !is_in_any(address, pools));
        if rest.given > 0 || pools.is_empty() {
            rows.push(network(store, None, rest));
        }
    }
    aligned(["NETWORK", "RANGE", "SIZE", "USED", "NOT JUDGED", "LEAKED", "FREE", "STORE"], &rows)
}

/// How many addresses of a store are in one row.
struct Counts {
    given: u64,
    unjudged: u64,
    leaked: u64,
}

impl Counts {
    fn of(
        result: &ScanResult,
        store: &StoreRead,
        lost: &BTreeSet<IpAddr>,
        is_here: impl Fn(IpAddr) -> bool,
    ) -> Self {
        let unjudged = result.unjudged.iter().filter(|(of, _)| of.path == store.store.path);
        Self {
            given: count(store.reservations.iter().map(|it| it.address), &is_here),
            unjudged: count(unjudged.map(|(_, it)| it.address), &is_here),
            leaked: count(lost.iter().copied(), &is_here),
        }
    }
}

fn count(addresses: impl Iterator<Item = IpAddr>, is_here: impl Fn(IpAddr) -> bool) -> u64 {
    u64::try_from(addresses.filter(|it| is_here(*it)).count()).unwrap_or(u64::MAX)
}

fn network(store: &StoreRead, pool: Option<&Pool>, counts: Counts) -> [String; 8] {
    let Counts { given, unjudged, leaked } = counts;
    let size = pool.map(|pool| pool.size);
    let [used, unjudged, leaked, free] = if store.complete {
        let used = given.saturating_sub(leaked).saturating_sub(unjudged);
        [Some(used), Some(unjudged), Some(leaked), size.map(|size| size.saturating_sub(given))]
    } else {
        [None; 4]
    };
    [
        store.store.network.as_deref().unwrap_or("?").to_owned(),
        pool.map_or_else(|| "?".to_owned(), |pool| pool.subnet.to_string()),
        number(size),
        number(used),
        number(unjudged),
        number(leaked),
        number(free),
        format!("{} {}", store.store.kind.into_str(), store.store.path),
    ]
}

fn number(n: Option<u64>) -> String {
    n.map_or_else(|| "?".to_owned(), |n| n.to_string())
}

/// Returns the addresses of a store that leaked: all that the store counts for a sandbox with a confirmed
/// leak. There may be more of them than the findings show.
fn lost(store: &StoreRead, leaked: &[Leak<'_>]) -> BTreeSet<IpAddr> {
    let confirmed = leaked
        .iter()
        .filter(|it| it.is_confirmed() && it.stores.iter().any(|(_, path)| *path == store.store.path));
    let ended: BTreeSet<&ContainerId> = confirmed.clone().filter_map(|it| it.sandbox).collect();
    let of_ended = store
        .reservations
        .iter()
        .filter(|it| it.holder.as_ref().is_some_and(|holder| ended.contains(&holder.container)));
    confirmed.map(|it| it.address).chain(of_ended.map(|it| it.address)).collect()
}

fn pools<'a>(result: &'a ScanResult, network: Option<&str>) -> &'a [Pool] {
    let network = result.networks.iter().find(|it| Some(it.name.as_str()) == network);
    network.map_or(&[], |it| &it.pools)
}

fn is_in_any(address: IpAddr, pools: &[Pool]) -> bool {
    pools.iter().any(|pool| is_in(address, pool))
}

fn is_in(address: IpAddr, pool: &Pool) -> bool {
    address.is_ipv4() == pool.first.is_ipv4() && (pool.first..=pool.last).contains(&address)
}

/// Returns the addresses of these findings.
fn leaks<'a>(result: &ScanResult, findings: &[&'a Finding]) -> Vec<Leak<'a>> {
    let mut leaks: Vec<Leak<'_>> = findings.iter().flat_map(|it| Leak::of(it)).collect();
    for it in leaks.iter_mut().filter(|it| it.sandbox.is_none()) {
        it.is_not_a_file = it.stores.iter().any(|(_, path)| result.is_not_a_file(path, it.address));
    }
    leaks
}

impl<'a> Leak<'a> {
    fn of(finding: &'a Finding) -> Vec<Self> {
        match &finding.kind {
            Kind::LeakedAddress(it) => vec![Self {
                finding,
                address: it.address,
                network: it.network.as_deref(),
                cause: it.cause.into_str(),
                sandbox: finding.sandboxes.first(),
                stores: it.stores.iter().map(|store| (store.kind, store.path.as_str())).collect(),
                is_not_a_file: false,
            }],
            Kind::OwnerlessReservation(it) => {
                let leaks = it.first.iter().map(|address| Self {
                    finding,
                    address: *address,
                    network: it.network.as_deref(),
                    cause: finding.kind.into_str(),
                    sandbox: None,
                    stores: vec![(it.kind, it.path.as_str())],
                    is_not_a_file: false,
                });
                leaks.collect()
            }
            _ => Vec::new(),
        }
    }

    fn is_confirmed(&self) -> bool {
        self.finding.stage == Stage::Confirmed
    }
}

fn addresses(result: &ScanResult, leaked: &[Leak<'_>]) -> String {
    let rows = leaked.iter().map(|it| {
        let stores: Vec<_> = it.stores.iter().map(|(_, path)| *path).collect();
        [
            it.finding.stage.into_str().to_owned(),
            it.network.unwrap_or("?").to_owned(),
            it.address.to_string(),
            it.cause.to_owned(),
            it.finding.pod.as_ref().map_or_else(|| "-".to_owned(), pod),
            it.sandbox.map_or("-", |id| id.short()).to_owned(),
            since(it.finding.since, result),
            stores.join(","),
        ]
    });
    let rows: Vec<_> = rows.collect();
    aligned(["STAGE", "NETWORK", "ADDRESS", "CAUSE", "POD", "SANDBOX", "SINCE", "RECORDED IN"], &rows)
}

fn unjudged(result: &ScanResult) -> String {
    let rows = result.unjudged.iter().map(|(store, it)| {
        let by = match &it.holder {
            Some(holder) => format!("{}, not a sandbox's id: not judged", holder.container),
            None if store.kind == StoreKind::UcloudIpamd => {
                let of = it.pod.as_deref().map_or_else(|| "?".to_owned(), pod);
                format!("{of}, perhaps kept on purpose: not judged")
            }
            None => "a person, in words: not judged".to_owned(),
        };
        let network = store.network.as_deref().unwrap_or("?").to_owned();
        [network, it.address.to_string(), by, since(it.since, result), store.path.clone()]
    });
    let rows: Vec<_> = rows.collect();
    aligned(["NETWORK", "ADDRESS", "RESERVED BY", "SINCE", "RECORDED IN"], &rows)
}

/// Writes each reservation that is not judged as a line of JSON.
pub(super) fn unjudged_lines(result: &ScanResult, out: &mut Vec<u8>) {
    for (store, it) in &result.unjudged {
        let line = UnjudgedLine {
            not_judged: Unjudged {
                node: &result.label.node,
                address: it.address,
                network: store.network.as_deref(),
                reserved_by: it.holder.as_ref().map(|holder| &holder.container),
                since: Rfc3339(result.label.wall_ns(it.since)),
                store: store.kind,
                path: &store.path,
            },
        };
        jsonl::line(&line, out);
    }
}

#[derive(Serialize)]
struct UnjudgedLine<'a> {
    not_judged: Unjudged<'a>,
}

#[serde_with::skip_serializing_none]
#[derive(Serialize)]
struct Unjudged<'a> {
    node: &'a str,
    address: IpAddr,
    network: Option<&'a str>,
    /// Absent: a person wrote words, or the plugin may keep the address.
    reserved_by: Option<&'a ContainerId>,
    since: Rfc3339,
    store: StoreKind,
    path: &'a str,
}

fn since(at: Timestamp, result: &ScanResult) -> String {
    match at {
        Timestamp::ZERO => "before boot".to_owned(),
        at => span(result.now.since(at)),
    }
}

fn other(result: &ScanResult, others: &[&Finding]) -> String {
    let rows = others.iter().map(|it| {
        [
            it.stage.into_str().to_owned(),
            it.kind.into_str().to_owned(),
            it.pod.as_ref().map_or_else(|| "-".to_owned(), pod),
            since(it.since, result),
            summary(it),
            short_key(&it.key),
        ]
    });
    let rows: Vec<_> = rows.collect();
    aligned(["STAGE", "KIND", "POD", "SINCE", "SUMMARY", "KEY"], &rows)
}

/// Returns the commands for each store, as they are in the script.
fn commands(leaked: &[Leak<'_>]) -> String {
    let stores = by_store(leaked);
    if stores.is_empty() {
        return String::new();
    }
    let n: usize = stores.values().map(Vec::len).sum();
    let mut text =
        String::from("\nHow to free them (each is checked again first, under the plugin's own lock):\n");
    if n > COMMANDS {
        text += "  sandprobe leaks --repair-script > free.sh\n";
        return text;
    }
    for line in lines(&stores, convert::identity) {
        text += "  ";
        text += &line;
        text.push('\n');
    }
    text
}

pub(super) fn script(result: &ScanResult, leaked: &[&Finding]) -> String {
    release::script(&lines(&by_store(&leaks(result, leaked)), release::counted))
}

/// Confirmed leaks, by the kind and the path of their store.
type ByStore<'a> = BTreeMap<(StoreKind, &'a str), Vec<&'a Leak<'a>>>;

fn by_store<'a>(leaked: &'a [Leak<'a>]) -> ByStore<'a> {
    let mut stores = ByStore::new();
    for it in leaked.iter().filter(|it| it.is_confirmed()) {
        for store in &it.stores {
            stores.entry(*store).or_default().push(it);
        }
    }
    stores
}

/// Returns the commands of these stores; `as_called` makes the line of each call of a repair.
fn lines(stores: &ByStore<'_>, as_called: fn(String) -> String) -> Vec<String> {
    let mut lines = Vec::new();
    let host_local = stores.iter().filter(|((kind, _), _)| *kind == StoreKind::HostLocal);
    let host_local: Vec<_> = host_local.flat_map(|(_, leaks)| leaks).collect();
    let is_of_sandbox = host_local.iter().any(|it| it.sandbox.is_some());
    let is_ownerless = host_local.iter().any(|it| it.sandbox.is_none() && !it.is_not_a_file);
    let wanted = match (is_of_sandbox, is_ownerless) {
        (true, true) => Some(Functions::Both),
        (true, false) => Some(Functions::Release),
        (false, true) => Some(Functions::FreeOwnerless),
        (false, false) => None,
    };
    if let (Some(wanted), Some(first)) = (wanted, host_local.first()) {
        lines.extend(functions(wanted, &first.finding.runtimes));
    }
    for ((kind, path), leaks) in stores {
        lines.push(format!("# {} {}: {} leaked", kind.into_str(), escaped(path), leaks.len()));
        match kind {
            StoreKind::HostLocal => lines.extend(leaks.iter().map(|it| match it.sandbox {
                Some(sandbox) => as_called(release::release(path, it.address, sandbox)),
                None if it.is_not_a_file => as_called(format!(
                    "# {} stays: a link, a directory or a FIFO has its name. Find out what made it, and remove it by hand",
                    it.address
                )),
                None => as_called(release::free_ownerless_of(path, it.address)),
            })),
            StoreKind::AwsIpamd => lines.extend(elsewhere(restart_ipamd(), as_called)),
            StoreKind::AzureCns
            | StoreKind::AzureVnetIpam
            | StoreKind::AzureVnet
            | StoreKind::UcloudIpamd => lines.extend(by_del(*kind, leaks, as_called)),
            StoreKind::Cilium => lines.extend(of_cilium(leaks, as_called)),
            StoreKind::Calico => lines.extend(elsewhere(release::release_in_calico(), as_called)),
            StoreKind::Declared => {
                lines.push("# The store is the plugin's own, and so is the way to free from it:".to_owned());
                lines.extend(leaks.iter().map(|it| match it.sandbox {
                    Some(sandbox) => as_called(format!("# {} of {sandbox}", it.address)),
                    None => as_called(format!("# {} of nobody", it.address)),
                }));
            }
        }
    }
    lines
}

/// Makes commands for kubectl comments: it may be on another machine, and does not fail if no pod is there.
fn elsewhere(commands: Vec<String>, as_called: fn(String) -> String) -> Vec<String> {
    let mut lines = Vec::new();
    for line in commands {
        lines.push(if line.starts_with('#') { line } else { as_called(format!("# {line}")) });
    }
    lines
}

/// Returns the commands for leaks in the files of Cilium's agent.
fn of_cilium(leaks: &[&Leak<'_>], as_called: fn(String) -> String) -> Vec<String> {
    let mut lines = Vec::new();
    let mut is_queued = false;
    let mut seen = BTreeSet::new();
    for leak in leaks {
        let (Kind::LeakedAddress(it), Some(sandbox)) = (&leak.finding.kind, leak.sandbox) else { continue };
        if leak.cause == Cause::ReleaseQueued.into_str() {
            is_queued = true;
        } else if seen.insert((sandbox, &it.ifname)) {
            // Both addresses of a dual stack have one endpoint.
            lines.extend(elsewhere(release::disconnect(sandbox, &it.ifname), as_called));
        }
    }
    if is_queued {
        lines.extend(elsewhere(release::restart_cilium(), as_called));
    }
    lines
}

/// Returns the commands for leaks in a store from which DEL frees.
fn by_del(kind: StoreKind, leaks: &[&Leak<'_>], as_called: fn(String) -> String) -> Vec<String> {
    let (queued, held): (Vec<&Leak<'_>>, Vec<&Leak<'_>>) =
        leaks.iter().partition(|it| it.cause == Cause::ReleaseQueued.into_str());
    let mut lines = Vec::new();
    if !queued.is_empty() {
        lines.extend(elsewhere(release::restart_cns(), as_called));
    }
    if let Some(first) = held.first() {
        lines.extend(release::del_again(kind, &first.finding.runtimes));
    }
    for leak in held {
        let Kind::LeakedAddress(it) = &leak.finding.kind else { continue };
        let pod = leak.finding.pod.as_ref().and_then(|it| it.namespace.as_deref().zip(it.name.as_deref()));
        let Some(sandbox) = leak.sandbox else { continue };
        lines.push(as_called(if pod.is_some() {
            release::del_again_for(leak.address, sandbox, &it.ifname, pod)
        } else {
            format!("# {} of {sandbox}: the record does not name its pod, which DEL needs", leak.address)
        }));
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::{Finding, Leak, Stage, Timestamp, lost};
    use crate::model::{
        fact::{Bound, Holder, NodeFolders, Reservation, ReservationState, Store, StoreKind, StoreRead},
        finding::{Cause, Key, Kind, LeakedAddress, Severity, StoreRef},
        id::ContainerId,
    };

    #[test]
    fn all_addresses_of_a_sandbox_that_is_gone_are_lost() {
        let path = "/var/lib/cni/networks/podnet";
        let [gone, other] = ["a", "b"].map(|it| ContainerId::parse(&it.repeat(64)).expect("an id"));
        let address = |n: u8| -> IpAddr { [10, 88, 0, n].into() };
        let held = |n: u8, container: &ContainerId| Reservation {
            address: address(n),
            holder: Some(Holder { container: container.clone(), ifname: "eth0".to_owned() }),
            since: Timestamp::ZERO,
            in_words: false,
            pod: None,
            state: ReservationState::Held,
        };
        let store =
            Store { kind: StoreKind::HostLocal, path: path.to_owned(), network: None, bound: Bound::Sandbox };
        let stores = vec![StoreRef { kind: store.kind, path: store.path.clone() }];
        let read = StoreRead {
            store,
            reservations: vec![held(2, &gone), held(3, &gone), held(4, &other)],
            complete: true,
        };
        let finding = |stage: Stage| Finding {
            key: Key::parse("leaked_address/podnet").expect("a key"),
            kind: Kind::from(LeakedAddress {
                address: address(2),
                network: None,
                inferred: false,
                ifname: "eth0".to_owned(),
                plugin: None,
                cause: Cause::StaleRecord,
                stores: stores.clone(),
                many: None,
            }),
            severity: Severity::Warning,
            stage,
            since: Timestamp::ZERO,
            opened_at: Timestamp::ZERO,
            confirmed_at: None,
            closed_at: None,
            pod: None,
            sandboxes: vec![gone.clone()],
            runtimes: Vec::new(),
            folders: NodeFolders::default(),
            worst: None,
            gapped: false,
            evidence: Vec::new(),
            programs: Vec::new(),
        };
        let lost = |stage: Stage| lost(&read, &Leak::of(&finding(stage))).into_iter().collect::<Vec<_>>();
        assert_eq!(lost(Stage::Confirmed), [address(2), address(3)]);
        assert_eq!(lost(Stage::Candidate), Vec::<IpAddr>::new());
    }
}
