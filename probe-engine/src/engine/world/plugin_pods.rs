//! The pods without which a CNI plugin does not work: they write its configuration, or answer its calls.

use super::table::sandbox::run::is_generated;
use crate::model::fact::PodName;

/// The name of a DaemonSet, as its project's manifests have it, and the plugins that need its pod.
const DAEMON_SETS: [(&str, &[&str]); 24] = [
    ("anetd", &["cilium-cni"]),
    ("antrea-agent", &["antrea"]),
    ("aws-node", &["aws-cni"]),
    ("azure-cns", &["azure-ipam", "azure-vnet"]),
    ("calico-node", &["calico", "calico-ipam"]),
    ("canal", &["calico", "flannel"]),
    ("cilium", &["cilium-cni"]),
    ("istio-cni-node", &["istio-cni"]),
    ("kindnet", &["ptp"]),
    ("kube-flannel-ds", &["flannel"]),
    ("kube-flannel-ds-amd64", &["flannel"]),
    ("kube-multus-ds", &["multus", "multus-shim"]),
    ("kube-ovn-cni", &["kube-ovn"]),
    ("linkerd-cni", &["linkerd-cni"]),
    ("multus", &["multus", "multus-shim"]),
    ("ovnkube-node", &["ovn-k8s-cni-overlay"]),
    ("rke2-canal", &["calico", "flannel"]),
    ("rke2-multus", &["multus", "multus-shim"]),
    ("spiderpool-agent", &["spiderpool"]),
    ("terway", &["terway"]),
    ("terway-eni", &["terway"]),
    ("terway-eniip", &["terway"]),
    ("weave-net", &["weave-ipam", "weave-net"]),
    ("whereabouts", &["whereabouts"]),
];

/// Plugins that are called beside another one, which makes the network.
const ADDITIONS: [&str; 5] = ["azure-ipam", "istio-cni", "linkerd-cni", "spiderpool", "whereabouts"];

/// Whether the pod of this plugin writes the configuration of the pods' network.
pub(crate) fn writes_network(plugin: &str) -> bool {
    !ADDITIONS.contains(&plugin)
}

/// Returns the plugins that need a pod of this name; none for most pods.
pub(crate) fn plugins_of(pod: &PodName) -> &'static [&'static str] {
    let Some((owner, _)) = pod.name.as_deref().and_then(daemon_set) else { return &[] };
    DAEMON_SETS.iter().find(|(name, _)| *name == owner).map_or(&[], |(_, plugins)| plugins)
}

/// Splits the name of a DaemonSet's pod into that of the DaemonSet and the rest.
pub(crate) fn daemon_set(pod: &str) -> Option<(&str, &str)> {
    pod.rsplit_once('-').filter(|(_, suffix)| is_generated(suffix))
}

#[cfg(test)]
mod tests {
    use super::{DAEMON_SETS, PodName, plugins_of};

    #[test]
    fn the_page_names_each_daemon_set() {
        let page = include_str!("../../../../docs/findings/daemon_failing.md");
        for (name, _) in DAEMON_SETS {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn a_pod_of_the_plugins_daemon_set_is_known_by_its_name() {
        for (name, plugins) in [
            ("calico-node-x2x7q", &["calico", "calico-ipam"][..]),
            ("cilium-8k2bz", &["cilium-cni"]),
            ("cilium-operator-6f9c7b8d4-abcde", &[]),
            ("calico-node", &[]),
            ("multus-admin", &[]),
            ("calico-kube-controllers-7d9f8-abcde", &[]),
            ("web-0", &[]),
            ("", &[]),
        ] {
            let pod = PodName { name: Some(name.to_owned()), ..PodName::default() };
            assert_eq!(plugins_of(&pod), plugins, "{name}");
        }
    }
}
