//! The restarts of daemons in a scrape.

use std::collections::BTreeMap;

use super::{AgentStats, End, Incidents, Metrics, S, Timestamp, Views, scrape};
use crate::model::recovery::{
    DaemonEnd, HeldPod, Kind, Pod, Recovery, Restart, RestartClose, Restarts, TimedSource,
};

/// The runtime was stopped once and restarted, and the gauges have its last restart; the kubelet has not
/// started again.
#[test]
fn restarts_of_daemons_are_counted_and_the_last_one_is_timed() {
    let ended = |at: u64| DaemonEnd { at: Timestamp(at * S), end: End::default(), told: None };
    let restart = |comm: &str, at: u64| {
        let (comm, was) = (comm.to_owned(), comm.to_owned());
        let ran_since = Timestamp(S);
        let noticed_at = Timestamp(at * S);
        Restart { comm, was, ran_since, noticed_at, ended: Some(ended(at)), ..Restart::default() }
    };
    let held = |replaced, until| HeldPod {
        pod: Pod {
            namespace: None,
            name: Some(format!("{until}")),
            uid: None,
            kind: Kind::Service,
            listens: false,
            interfaces: Vec::new(),
        },
        replaced,
        since: Timestamp(20 * S),
        until: Some(Timestamp(until * S)),
    };
    let last = Restart {
        started: Some(TimedSource::hooked(Timestamp(21 * S))),
        answers: Some(TimedSource::hooked(Timestamp(23 * S))),
        held: vec![held(false, 25), held(true, 27)],
        close: Some(RestartClose::AsBefore),
        ..restart("containerd", 20)
    };
    let past = vec![Restart { close: Some(RestartClose::Stopped), ..restart("containerd", 10) }, last];
    let left_out = [("containerd".to_owned(), 40)].into();
    let restarts = Restarts { open: vec![restart("kubelet", 30)], past, left_out };
    let recovery = Recovery { restarts, ..Recovery::default() };
    let metrics = Metrics::new(&[]);
    metrics.set_gauges(&Views {
        now: Timestamp(40 * S),
        pods: &[],
        pools: &[],
        balance: &[],
        findings: &[],
        incidents: &Incidents::of([]),
        many: &[],
        recovery: &recovery,
        daemons: &BTreeMap::new(),
        netns: 0,
        unwatched: 0,
        stale: 0,
        own: &AgentStats::default(),
    });
    let samples = scrape(&metrics);
    let of = |name: &str| -> Vec<(String, f64)> {
        let own =
            samples.iter().filter_map(|(key, value)| Some((key.strip_prefix(name)?.to_owned(), *value)));
        own.collect()
    };
    let row = |labels: &str, value: f64| (labels.to_owned(), value);
    assert_eq!(of("sandprobe_node_daemon_restarts_total"), [row("{daemon=\"containerd\"}", 41.0)]);
    assert_eq!(
        of("sandprobe_node_daemon_restart_period_seconds"),
        [
            row("{daemon=\"containerd\",period=\"ready\"}", 2.0),
            row("{daemon=\"containerd\",period=\"start\"}", 1.0),
            row("{daemon=\"containerd\",period=\"whole\"}", 7.0),
        ]
    );
    assert_eq!(
        of("sandprobe_node_daemon_restart_pods"),
        [
            row("{daemon=\"containerd\",why=\"replaced\"}", 1.0),
            row("{daemon=\"containerd\",why=\"waited\"}", 1.0),
            row("{daemon=\"kubelet\",why=\"replaced\"}", 0.0),
            row("{daemon=\"kubelet\",why=\"waited\"}", 0.0),
        ]
    );
}
