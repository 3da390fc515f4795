//! What is leaked, as tables and as a script.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::scan::ScanResult;
use crate::{
    cli::{finding::list::summary, table::aligned},
    model::{
        change::Finding,
        fact::{Network, Pool, Reservation, StoreKind, StoreRead},
        finding::{Kind, Stage},
        id::ContainerId,
        time::Timestamp,
    },
    sink::{
        escape::{escaped, short_key},
        phase::pod,
        span::span,
    },
    words::release::{self, functions, restart_ipamd},
};

/// A leaked address, with what its finding says of it.
struct Leak<'a> {
    finding: &'a Finding,
    address: IpAddr,
    network: Option<&'a str>,
    cause: &'static str,
    /// None: the store does not say whose it is.
    sandbox: Option<&'a ContainerId>,
    stores: Vec<(StoreKind, &'a str)>,
    /// In place of its file is a link, a directory or a FIFO, which no command frees.
    is_no_file: bool,
}

/// Of so many addresses each gets its command in the text; of more only the script has them all.
const COMMANDS: usize = 20;

/// Without any store nothing is said of addresses: the reason was printed already.
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
    text + &commands(leaked)
}

/// How many network namespaces there are, and may be.
pub(super) fn namespaces(count: usize, limit: Option<u64>) -> String {
    match limit {
        Some(limit) => format!("\nnetwork namespaces: {count} of the {limit} that each user may make\n"),
        None => format!("\nnetwork namespaces: {count}\n"),
    }
}

/// A row for each range of each store's network, and one for what is in none. What is not known is a question mark, as all
/// that only a whole reading of the store tells.
fn networks(result: &ScanResult, leaked: &[Leak<'_>]) -> String {
    let mut rows = Vec::new();
    for store in &result.stores {
        let lost = lost(store, leaked);
        let given = || store.reservations.iter().map(|it| it.address);
        let network = store.store.network.as_deref();
        let pools = pools(result, network);
        let mut row = |pool: String, size: Option<u64>, is_in: &dyn Fn(&IpAddr) -> bool| {
            let (given, leaked) = (given().filter(is_in).count(), lost.iter().filter(|it| is_in(it)).count());
            if given == 0 && size.is_none() && !pools.is_empty() {
                return;
            }
            let count = |n: usize| store.complete.then(|| u64::try_from(n).unwrap_or(u64::MAX));
            let free = size.zip(count(given)).map(|(size, given)| size.saturating_sub(given));
            let number = |n: Option<u64>| n.map_or_else(|| "?".to_owned(), |n| n.to_string());
            rows.push([
                network.unwrap_or("?").to_owned(),
                pool,
                number(size),
                number(count(given.saturating_sub(leaked))),
                number(count(leaked)),
                number(free),
                format!("{} {}", store.store.kind.into_str(), store.store.path),
            ]);
        };
        for pool in pools {
            row(pool.subnet.to_string(), Some(pool.size), &|address| is_in(*address, pool));
        }
        row("?".to_owned(), None, &|address| !pools.iter().any(|pool| is_in(*address, pool)));
    }
    aligned(["NETWORK", "RANGE", "SIZE", "USED", "LEAKED", "FREE", "STORE"], &rows)
}

/// The addresses of a store that leaked: of a sandbox with a confirmed leak all that the store counts for it. There may be
/// more of them than the findings tell.
fn lost(store: &StoreRead, leaked: &[Leak<'_>]) -> BTreeSet<IpAddr> {
    let of_store =
        |it: &&Leak<'_>| it.is_confirmed() && it.stores.iter().any(|(_, path)| *path == store.store.path);
    let told = || leaked.iter().filter(of_store);
    let ended: BTreeSet<&ContainerId> = told().filter_map(|it| it.sandbox).collect();
    let is_of_ended =
        |it: &&Reservation| it.holder.as_ref().is_some_and(|holder| ended.contains(&holder.container));
    let all = store.reservations.iter().filter(is_of_ended).map(|it| it.address);
    told().map(|it| it.address).chain(all).collect()
}

fn pools<'a>(result: &'a ScanResult, network: Option<&str>) -> &'a [Pool] {
    let named = |it: &&Network| Some(it.name.as_str()) == network;
    result.networks.iter().find(named).map_or(&[], |it| &it.pools)
}

fn is_in(address: IpAddr, pool: &Pool) -> bool {
    address.is_ipv4() == pool.first.is_ipv4() && (pool.first..=pool.last).contains(&address)
}

/// The addresses of these findings.
fn leaks<'a>(result: &ScanResult, findings: &[&'a Finding]) -> Vec<Leak<'a>> {
    let mut leaks: Vec<Leak<'_>> = findings.iter().flat_map(|it| Leak::of(it)).collect();
    for it in leaks.iter_mut().filter(|it| it.sandbox.is_none()) {
        it.is_no_file = it.stores.iter().any(|(_, path)| result.is_no_file(path, it.address));
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
                is_no_file: false,
            }],
            Kind::OwnerlessReservation(it) => {
                let leak = |address: &IpAddr| Self {
                    finding,
                    address: *address,
                    network: it.network.as_deref(),
                    cause: finding.kind.into_str(),
                    sandbox: None,
                    stores: vec![(it.kind, it.path.as_str())],
                    is_no_file: false,
                };
                it.first.iter().map(leak).collect()
            }
            _ => Vec::new(),
        }
    }

    fn is_confirmed(&self) -> bool {
        self.finding.stage == Stage::Confirmed
    }
}

fn addresses(result: &ScanResult, leaked: &[Leak<'_>]) -> String {
    let row = |it: &Leak<'_>| {
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
    };
    let rows: Vec<_> = leaked.iter().map(row).collect();
    aligned(["STAGE", "NETWORK", "ADDRESS", "CAUSE", "POD", "SANDBOX", "SINCE", "RECORDED IN"], &rows)
}

fn since(at: Timestamp, result: &ScanResult) -> String {
    match at {
        Timestamp::ZERO => "before boot".to_owned(),
        at => span(result.now.since(at)),
    }
}

fn other(result: &ScanResult, others: &[&Finding]) -> String {
    let row = |it: &&Finding| {
        [
            it.stage.into_str().to_owned(),
            it.kind.into_str().to_owned(),
            it.pod.as_ref().map_or_else(|| "-".to_owned(), pod),
            since(it.since, result),
            summary(it),
            short_key(&it.key),
        ]
    };
    let rows: Vec<_> = others.iter().map(row).collect();
    aligned(["STAGE", "KIND", "POD", "SINCE", "SUMMARY", "KEY"], &rows)
}

/// The commands for each store, as they stand in the script.
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
    for line in lines(&stores) {
        text += "  ";
        text += &line;
        text.push('\n');
    }
    text
}

pub(super) fn script(result: &ScanResult, leaked: &[&Finding]) -> String {
    release::script(&lines(&by_store(&leaks(result, leaked))))
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

fn lines(stores: &ByStore<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    let host_local = stores.iter().filter(|((kind, _), _)| *kind == StoreKind::HostLocal);
    let mut host_local = host_local.flat_map(|(_, leaks)| leaks);
    let of_sandbox = host_local.clone().find(|it| it.sandbox.is_some());
    let is_ownerless = host_local.any(|it| it.sandbox.is_none() && !it.is_no_file);
    if of_sandbox.is_some() || is_ownerless {
        lines.extend(functions(of_sandbox.map(|it| &*it.finding.runtimes), is_ownerless));
    }
    for ((kind, path), leaks) in stores {
        lines.push(format!("# {} {}: {} leaked", kind.into_str(), escaped(path), leaks.len()));
        match kind {
            StoreKind::HostLocal => lines.extend(leaks.iter().map(|it| match it.sandbox {
                Some(sandbox) => release::release(path, it.address, sandbox),
                None if it.is_no_file => format!(
                    "# {} stays: a link, a directory or a FIFO has its name. Find out what made it, and remove it by hand",
                    it.address
                ),
                None => release::free_ownerless_of(path, it.address),
            })),
            StoreKind::AwsIpamd => lines.extend(restart_ipamd()),
            StoreKind::Declared => {
                lines.push("# The store is the plugin's own, and so is the way to free from it:".to_owned());
                lines.extend(leaks.iter().map(|it| match it.sandbox {
                    Some(sandbox) => format!("# {} of {sandbox}", it.address),
                    None => format!("# {} of nobody", it.address),
                }));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::{Finding, Leak, Stage, Timestamp, lost};
    use crate::model::{
        fact::{Holder, Reservation, Store, StoreKind, StoreRead},
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
        };
        let store = Store { kind: StoreKind::HostLocal, path: path.to_owned(), network: None };
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
            gapped: false,
            evidence: Vec::new(),
            programs: Vec::new(),
        };
        let lost = |stage: Stage| lost(&read, &Leak::of(&finding(stage))).into_iter().collect::<Vec<_>>();
        assert_eq!(lost(Stage::Confirmed), [address(2), address(3)]);
        assert_eq!(lost(Stage::Candidate), Vec::<IpAddr>::new());
    }
}
