//! Parses a network's configuration (CNI specification, section 1): a list of plugins, or a single plugin in
//! older files.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

use super::{Configured, FLANNEL, HOST_LOCAL, pool};
use crate::model::fact::{Network, Pool};

/// A list or a plugin. The members show which of the two it is.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Conf {
    name: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    plugins: Vec<Self>,
    ipam: Option<Ipam>,
    /// flannel's delegate, which is a part of the same network.
    delegate: Option<Box<Self>>,
    /// multus' delegates, which are networks of their own.
    delegates: Vec<Self>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Ipam {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(rename = "dataDir")]
    data_dir: Option<PathBuf>,
    /// Only the members of host-local are known, so they are parsed only for host-local.
    #[serde(flatten)]
    rest: Value,
}

#[derive(Debug, Deserialize)]
struct Ranges {
    #[serde(default)]
    ranges: Vec<Vec<pool::Range>>,
    /// The single range of older files.
    #[serde(flatten)]
    old: pool::Range,
}

/// Returns the network and the networks within it; `None` if this is not a configuration.
pub(super) fn parse(bytes: &[u8]) -> Option<Vec<Configured>> {
    let conf: Conf = serde_json::from_slice(bytes).ok()?;
    let mut found = Vec::new();
    networks(&conf, &mut found)?;
    Some(found)
}

fn networks(conf: &Conf, found: &mut Vec<Configured>) -> Option<()> {
    let name = conf.name.clone()?;
    let mut plugins = Vec::new();
    flat(conf, &mut plugins);
    let kinds = plugins.iter().flat_map(|plugin| kinds(plugin)).map(str::to_owned).collect();
    let ipam = plugins.iter().filter_map(|it| it.ipam.as_ref()).find(|ipam| ipam.kind.is_some());
    let local = ipam.filter(|ipam| ipam.kind.as_deref() == Some(HOST_LOCAL));
    let network = Network {
        name,
        plugins: kinds,
        delegates: plugins.iter().filter_map(|plugin| delegate(plugin)).map(str::to_owned).collect(),
        ipam: ipam.and_then(|ipam| ipam.kind.clone()),
        pools: local.map(pools).unwrap_or_default(),
    };
    let data_dir = local.and_then(|ipam| ipam.data_dir.clone()).filter(|dir| dir.is_absolute());
    found.push(Configured { network, data_dir });
    for delegate in plugins.iter().flat_map(|plugin| &plugin.delegates) {
        networks(delegate, found)?;
    }
    Some(())
}

/// Collects a plugin, the plugins of a list, and the plugins of the same network to which they delegate.
fn flat<'a>(conf: &'a Conf, plugins: &mut Vec<&'a Conf>) {
    if conf.kind.is_some() {
        plugins.push(conf);
    }
    conf.plugins.iter().chain(conf.delegate.as_deref()).for_each(|inner| flat(inner, plugins));
}

/// Returns the type of the plugin that this one calls for the same network.
fn delegate(plugin: &Conf) -> Option<&str> {
    let said = plugin.delegate.as_ref().and_then(|delegate| delegate.kind.as_deref());
    said.or_else(|| (plugin.kind.as_deref() == Some(FLANNEL)).then_some("bridge"))
}

/// Returns the type of a plugin, and the type of its delegate if the configuration does not name it.
fn kinds(plugin: &Conf) -> impl Iterator<Item = &str> {
    let is_named = plugin.delegate.as_ref().is_some_and(|delegate| delegate.kind.is_some());
    let implied = if is_named { None } else { delegate(plugin) };
    plugin.kind.as_deref().into_iter().chain(implied)
}

fn pools(ipam: &Ipam) -> Vec<Pool> {
    let Ok(Ranges { ranges, old }) = serde_json::from_value(ipam.rest.clone()) else { return Vec::new() };
    ranges.iter().flatten().chain([&old]).filter_map(pool::Range::pool).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::parse;

    fn told(text: &str) -> Option<Vec<String>> {
        let found = parse(text.as_bytes())?;
        let one = |it: &super::Configured| {
            let network = &it.network;
            let pools: Vec<_> =
                network.pools.iter().map(|pool| format!("{}={}", pool.subnet, pool.size)).collect();
            let ipam = network.ipam.as_deref().unwrap_or("-");
            // Plugins that another plugin calls are in parentheses.
            let plugin = |name: &String| match network.delegates.contains(name) {
                true => format!("({name})"),
                false => name.clone(),
            };
            let plugins: Vec<String> = network.plugins.iter().map(plugin).collect();
            format!("{} {} {ipam} {} {:?}", network.name, plugins.join("+"), pools.join(","), it.data_dir)
        };
        Some(found.iter().map(one).collect())
    }

    #[test]
    fn a_list_tells_its_plugins_and_pools() {
        let text = r#"{"cniVersion":"1.0.0","name":"podnet","plugins":[
            {"type":"bridge","bridge":"cni0","isGateway":true,"ipam":{"type":"host-local","dataDir":"/run/leases",
             "ranges":[[{"subnet":"10.88.0.0/16"}],[{"subnet":"fd00:88::/64"}]],"routes":[{"dst":"0.0.0.0/0"}]}},
            {"type":"portmap","capabilities":{"portMappings":true}}]}"#;
        assert_eq!(
            told(text).expect("a configuration"),
            [
                "podnet bridge+portmap host-local 10.88.0.0/16=65533,fd00:88::/64=18446744073709551614 Some(\"/run/leases\")"
            ]
        );
    }

    #[test]
    fn one_plugin_alone_is_a_network_too() {
        let text = r#"{"name":"mynet","type":"ptp","ipam":{"type":"host-local","subnet":"10.1.2.0/24","rangeStart":"10.1.2.10"}}"#;
        assert_eq!(told(text).expect("a configuration"), ["mynet ptp host-local 10.1.2.0/24=245 None"]);
        let text = r#"{"name":"k8s-pod-network","plugins":[{"type":"calico","ipam":{"type":"calico-ipam","ranges":7}}]}"#;
        assert_eq!(told(text).expect("a configuration"), ["k8s-pod-network calico calico-ipam  None"]);
        let text = r#"{"name":"n","type":"bridge","ipam":{"type":"host-local","subnet":"usePodCidr"}}"#;
        assert_eq!(told(text).expect("a configuration"), ["n bridge host-local  None"]);
    }

    #[test]
    fn delegates_run_too() {
        let text = r#"{"name":"multus-cni","type":"multus","delegates":[{"name":"cbr0","plugins":[
            {"type":"flannel","delegate":{"type":"ptp"}},{"type":"portmap"}]},
            {"name":"cbr1","plugins":[{"type":"flannel","delegate":{"hairpinMode":true}}]}]}"#;
        let found = told(text).expect("a configuration");
        assert_eq!(
            found,
            [
                "multus-cni multus -  None",
                "cbr0 flannel+(ptp)+portmap -  None",
                "cbr1 flannel+(bridge) -  None"
            ]
        );
    }

    #[test]
    fn what_has_no_name_is_none() {
        for bad in ["", "{", "[]", "{}", r#"{"name":7}"#, r#"{"type":"bridge"}"#] {
            assert_eq!(told(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes: Vec<u8>) {
            parse(&bytes);
        }
    }
}
