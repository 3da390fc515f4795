//! Finds the pods that came back with fewer network interfaces than they had.

use crate::model::recovery::{LessNetwork, Pod};

/// Leaves out pods without a known interface: such a pod may now use the node's network, or its network was
/// not seen.
pub(in crate::engine) fn less<'a>(before: &[Pod], back: impl Iterator<Item = &'a Pod>) -> Vec<LessNetwork> {
    let less = back.filter(|back| !back.interfaces.is_empty()).filter_map(|back| {
        let had = before.iter().find(|pod| pod.is(back))?.interfaces.iter();
        let missing: Vec<String> = had.filter(|name| !back.interfaces.contains(name)).cloned().collect();
        (!missing.is_empty()).then(|| LessNetwork { pod: back.clone(), missing })
    });
    less.collect()
}

#[cfg(test)]
mod tests {
    use super::less;
    use crate::model::recovery::{Kind, Pod};

    fn pod(name: &str, interfaces: &[&str]) -> Pod {
        Pod {
            namespace: Some("default".to_owned()),
            name: Some(name.to_owned()),
            uid: None,
            kind: Kind::Service,
            listens: false,
            interfaces: interfaces.iter().map(|it| (*it).to_owned()).collect(),
        }
    }

    #[test]
    fn only_an_interface_that_a_pod_had_is_missed() {
        let before = [
            pod("fewer", &["eth0", "net1", "net2"]),
            pod("more", &["eth0"]),
            pod("unseen", &["eth0"]),
            pod("absent", &["eth0"]),
            pod("other", &["eth0"]),
        ];
        let back = [
            pod("fewer", &["eth0"]),
            pod("more", &["eth0", "net1"]),
            pod("unseen", &[]),
            pod("other", &["eth1"]),
            pod("new", &["eth0"]),
        ];
        let found = less(&before, back.iter());
        let told: Vec<_> =
            found.iter().map(|it| (it.pod.name.as_deref().unwrap_or("-"), it.missing.join(" "))).collect();
        assert_eq!(told, [("fewer", "net1 net2".to_owned()), ("other", "eth0".to_owned())]);
        assert_eq!(less(&[], back.iter()), [], "nothing is known of before");
    }
}
