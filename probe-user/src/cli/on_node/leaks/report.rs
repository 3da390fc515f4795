//! What is leaked, as tables and as a script.

use std::{collections::BTreeMap, net::IpAddr};

use super::scan::ScanResult;
use crate::{
    cli::table::aligned,
    model::{
        change::Finding,
        fact::{Network, Pool, StoreKind},
        finding::{Kind, LeakedAddress, Stage},
        time::Timestamp,
    },
    sink::{
        escape::{brief, escaped, short_key},
        phase::pod,
        span::span,
    },
    words::release::{self, function, restart_ipamd},
};

/// Of so many addresses each gets its command in the text; of more only the script has them all.
const COMMANDS: usize = 20;

pub(super) fn text(result: &ScanResult, leaked: &[&Finding]) -> String {
    let mut text = networks(result, leaked);
    if leaked.is_empty() {
        text += "\nno leaked addresses\n";
    } else {
        text.push('\n');
        text += &addresses(result, leaked);
    }
    let others: Vec<_> = result.findings.iter().filter(|it| !super::is_leaked(it)).collect();
    if !others.is_empty() {
        text.push('\n');
        text += &other(result, &others);
    }
    text + &commands(leaked)
}

/// A row for each range of each store's network, and one for what is in none.
fn networks(result: &ScanResult, leaked: &[&Finding]) -> String {
    let mut rows = Vec::new();
    for store in &result.stores {
        let of_store = |it: &&&Finding| {
            it.stage == Stage::Confirmed
                && leak(it).is_some_and(|leak| leak.stores.iter().any(|it| it.path == store.store.path))
        };
        let lost =
            leaked.iter().filter(of_store).filter_map(|it| Some(leak(it)?.address)).collect::<Vec<_>>();
        let given = || store.reservations.iter().map(|it| it.address);
        let network = store.store.network.as_deref();
        let pools = pools(result, network);
        let mut row = |pool: String, size: Option<u64>, is_in: &dyn Fn(&IpAddr) -> bool| {
            let (given, leaked) = (given().filter(is_in).count(), lost.iter().filter(|it| is_in(it)).count());
            if given == 0 && size.is_none() && !pools.is_empty() {
                return;
            }
            let free = size.map(|size| size.saturating_sub(u64::try_from(given).unwrap_or(u64::MAX)));
            let number = |n: Option<u64>| n.map_or_else(|| "?".to_owned(), |n| n.to_string());
            rows.push([
                network.map_or_else(|| "?".to_owned(), |name| escaped(name).into_owned()),
                pool,
                number(size),
                given.saturating_sub(leaked).to_string(),
                leaked.to_string(),
                number(free),
                format!("{} {}", store.store.kind.into_str(), escaped(&store.store.path)),
            ]);
        };
        for pool in pools {
            row(pool.subnet.to_string(), Some(pool.size), &|address| is_in(*address, pool));
        }
        row("?".to_owned(), None, &|address| !pools.iter().any(|pool| is_in(*address, pool)));
    }
    aligned(["NETWORK", "RANGE", "SIZE", "USED", "LEAKED", "FREE", "STORE"], &rows)
}

fn pools<'a>(result: &'a ScanResult, network: Option<&str>) -> &'a [Pool] {
    let named = |it: &&Network| Some(it.name.as_str()) == network;
    result.networks.iter().find(named).map_or(&[], |it| &it.pools)
}

fn is_in(address: IpAddr, pool: &Pool) -> bool {
    address.is_ipv4() == pool.first.is_ipv4() && (pool.first..=pool.last).contains(&address)
}

fn leak(finding: &Finding) -> Option<&LeakedAddress> {
    match &finding.kind {
        Kind::LeakedAddress(it) => Some(it),
        _ => None,
    }
}

fn addresses(result: &ScanResult, leaked: &[&Finding]) -> String {
    let row = |it: &&Finding| {
        let leak = leak(it)?;
        let stores: Vec<_> = leak.stores.iter().map(|store| escaped(&store.path)).collect();
        Some([
            it.stage.into_str().to_owned(),
            leak.network.as_deref().map_or_else(|| "?".to_owned(), |name| escaped(name).into_owned()),
            leak.address.to_string(),
            leak.cause.into_str().to_owned(),
            it.pod.as_ref().map_or_else(|| "-".to_owned(), pod),
            it.sandboxes.first().map_or("-", |id| id.short()).to_owned(),
            since(it.since, result),
            stores.join(","),
        ])
    };
    let rows: Vec<_> = leaked.iter().filter_map(row).collect();
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
            brief(&it.kind.explain().summary()),
            short_key(&it.key),
        ]
    };
    let rows: Vec<_> = others.iter().map(row).collect();
    aligned(["STAGE", "KIND", "POD", "SINCE", "SUMMARY", "KEY"], &rows)
}

/// The commands for each store, as they stand in the script.
fn commands(leaked: &[&Finding]) -> String {
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

pub(super) fn script(leaked: &[&Finding]) -> String {
    release::script(&lines(&by_store(leaked)))
}

/// Confirmed leaks, by the kind and the path of their store.
fn by_store<'a>(leaked: &[&'a Finding]) -> BTreeMap<(StoreKind, &'a str), Vec<&'a Finding>> {
    let mut stores: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for it in leaked.iter().filter(|it| it.stage == Stage::Confirmed) {
        for store in leak(it).into_iter().flat_map(|leak| &leak.stores) {
            stores.entry((store.kind, store.path.as_str())).or_default().push(*it);
        }
    }
    stores
}

fn lines(stores: &BTreeMap<(StoreKind, &str), Vec<&Finding>>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut is_defined = false;
    for ((kind, path), findings) in stores {
        lines.push(format!("# {} {}: {} leaked", kind.into_str(), escaped(path), findings.len()));
        let own = findings.iter().filter_map(|it| Some((leak(it)?.address, it.sandboxes.first()?)));
        match kind {
            StoreKind::HostLocal => {
                if !is_defined {
                    let runtimes = findings.first().map(|it| it.runtimes.as_slice()).unwrap_or_default();
                    lines.extend(function(runtimes));
                    is_defined = true;
                }
                lines.extend(own.map(|(address, sandbox)| release::release(path, address, sandbox)));
            }
            StoreKind::AwsIpamd => lines.extend(restart_ipamd()),
            StoreKind::Declared => {
                lines.push("# The store is the plugin's own, and so is the way to free from it:".to_owned());
                lines.extend(own.map(|(address, sandbox)| format!("# {address} of {sandbox}")));
            }
        }
    }
    lines
}
