//! Which pods came back with less network than they had.

use crate::model::recovery::{Pod, Recovery};

/// A pod that is back, and the interfaces that it had before the restart and has not now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LessNetwork {
    pub pod: Pod,
    pub missing: Vec<String>,
}

/// Nothing is said of a pod of which no interface is known: it may have become one of the node's network, or its network
/// was not seen.
pub(super) fn less(recovery: &Recovery) -> Vec<LessNetwork> {
    let before = recovery.expected().unwrap_or_default();
    let back = recovery.pods.iter().filter(|back| !back.pod.interfaces.is_empty());
    let less = back.filter_map(|back| {
        let had = before.iter().find(|pod| pod.is(&back.pod))?.interfaces.iter();
        let missing: Vec<String> = had.filter(|name| !back.pod.interfaces.contains(name)).cloned().collect();
        (!missing.is_empty()).then(|| LessNetwork { pod: back.pod.clone(), missing })
    });
    less.collect()
}

#[cfg(test)]
mod tests {
    use super::less;
    use crate::model::{
        recovery::{BootRead, Kind, Pod, PreviousBoot, RecoveredPod, Recovery, Source, TimedSource},
        time::Timestamp,
    };

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
        let back = |name, interfaces: &[&str]| {
            let mark = TimedSource { at: Timestamp(1), source: Source::Hook };
            RecoveredPod { pod: pod(name, interfaces), mark, listened: None }
        };
        let before = vec![
            pod("fewer", &["eth0", "net1", "net2"]),
            pod("more", &["eth0"]),
            pod("unseen", &["eth0"]),
            pod("absent", &["eth0"]),
            pod("other", &["eth0"]),
        ];
        let before = PreviousBoot { pods: Some(before), ..PreviousBoot::default() };
        let mut recovery = Recovery {
            pods: vec![
                back("fewer", &["eth0"]),
                back("more", &["eth0", "net1"]),
                back("unseen", &[]),
                back("other", &["eth1"]),
                back("new", &["eth0"]),
            ],
            boot: Some(BootRead { before, ..BootRead::default() }),
            ..Recovery::default()
        };
        let found = less(&recovery);
        let told: Vec<_> =
            found.iter().map(|it| (it.pod.name.as_deref().unwrap_or("-"), it.missing.join(" "))).collect();
        assert_eq!(told, [("fewer", "net1 net2".to_owned()), ("other", "eth0".to_owned())]);
        recovery.boot = None;
        assert_eq!(less(&recovery), [], "nothing is known of before");
    }
}
