//! The check of the stores in which IPAM plugins keep the addresses in use. Only they confirm a leak.

use crate::{
    cli::on_node::node::place::Place,
    model::fact::{Fact, List, Network, Store},
    sink::render::doctor::Check,
    source::{
        backfill::{self, Node, store},
        host::skipped::Skipped,
        node::clock,
    },
};

const NAME: &str = "addresses";
/// At most this many stores are named.
const MAX_STORES: usize = 4;

pub(super) fn check(place: &Place) -> Check {
    let Place { root, hierarchy, layout: _ } = place;
    let node = Node { root, hierarchy, clock: &clock::now, boot_wall_ns: 0, stores: &[] };
    let mut stores = Vec::new();
    let mut networks = Vec::new();
    let read = backfill::records(node, &mut |batch| {
        for seen in batch {
            if let Fact::StoreRead(read) = seen.fact {
                stores.push(read.store);
            } else if let Fact::NetworksRead(read) = seen.fact {
                networks = read.networks;
            }
        }
        Ok(())
    });
    found(&stores, &networks, &read.unwrap_or_default())
}

fn found(stores: &[Store], networks: &[Network], skipped: &Skipped) -> Check {
    if let Some((path, why)) = skipped.partial.get(&List::Ipam) {
        let found = format!("{} cannot be read: {why}: leaks may be missed", path.display());
        return Check::degraded(NAME, found, "make it readable for the agent, or repair or remove it");
    }
    if stores.is_empty() {
        let found = match store::elsewhere(networks) {
            Some(elsewhere) => format!("{elsewhere}: no store on this node confirms a leak"),
            None => "no IPAM store was found, unless --ipam-store names one to the agent".to_owned(),
        };
        return Check::full(NAME, found);
    }
    let mut named: Vec<String> =
        stores.iter().take(MAX_STORES).map(|it| format!("{} {}", it.kind.into_str(), it.path)).collect();
    if let Some(more) = stores.len().checked_sub(MAX_STORES).filter(|more| *more > 0) {
        named.push(format!("{more} more"));
    }
    Check::full(NAME, named.join(", "))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{Check, List, Network, Skipped, Store, found};
    use crate::{
        model::fact::{Bound, StoreKind},
        source::host::ReadError,
    };

    fn stores(count: usize) -> Vec<Store> {
        let store = |n| Store {
            kind: StoreKind::AwsIpamd,
            path: format!("/{n}"),
            network: None,
            bound: Bound::Sandbox,
        };
        (0..count).map(store).collect()
    }

    fn network(ipam: &str) -> Vec<Network> {
        vec![Network {
            name: "net".to_owned(),
            plugins: vec!["bridge".to_owned()],
            delegates: Vec::new(),
            ipam: Some(ipam.to_owned()),
            pools: Vec::new(),
        }]
    }

    #[test]
    fn the_stores_that_were_read_are_named_or_why_there_is_none() {
        let told = |stores: &[Store], ipam: &str| found(stores, &network(ipam), &Skipped::default());
        assert_eq!(told(&stores(1), "whereabouts"), Check::full("addresses", "aws-ipamd /0"));
        let many = "aws-ipamd /0, aws-ipamd /1, aws-ipamd /2, aws-ipamd /3, 2 more";
        assert_eq!(told(&stores(6), "host-local").found, many);
        let elsewhere = told(&[], "whereabouts").found;
        let whereabouts = "whereabouts keeps its addresses at the API server (ippools), which sandprobe does not read: \
                           no store on this node confirms a leak";
        assert_eq!(elsewhere, whereabouts);
        let calico = told(&[], "calico-ipam").found;
        assert!(calico.contains(", where an agent with --kubernetes-ipam calico asks "), "{calico}");
        assert!(told(&[], "host-local").found.starts_with("no IPAM store was found"));
        let mut skipped = Skipped::default();
        skipped.partial.insert(List::Ipam, (PathBuf::from("/x.json"), ReadError::Malformed));
        let told = found(&stores(1), &[], &skipped);
        assert_eq!(told.found, "/x.json cannot be read: not in a form that is known: leaks may be missed");
    }
}
