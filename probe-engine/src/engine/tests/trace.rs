//! Where a CNI call is in its caller's trace: what the caller handed over, and what plugins pass on.

use std::iter;

use super::{
    containerd::PATH,
    story::{CONTAINERD, Story, call, ms, run::pass},
};
use crate::{
    engine::{Engine, Settings},
    model::{
        change::{ChangeKind, Output},
        fact::{CniCalled, Fact, Origin},
    },
};

const OF_CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const OF_PLUGIN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00000000000000aa-01";
const OF_ANOTHER_TRACE: &str = "00-000000000000000000000000000000ff-00000000000000bb-01";
const UNSAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

fn add(pid: u32, parent: u32, plugin: &str, traceparent: Option<&str>) -> CniCalled {
    let mut it = call(pid, parent, &format!("/usr/lib/cni/{plugin}"), "ADD", PATH, 'a');
    it.variables.traceparent = traceparent.map(str::to_owned);
    it
}

/// A call that a daemon in a container makes.
fn inside(pid: u32, plugin: &str, traceparent: Option<&str>) -> CniCalled {
    CniCalled { host: false, caller: None, ..add(pid, 693, plugin, traceparent) }
}

/// A plugin, the caller's span, and the pid of the plugin above that was given the same one.
type Place = (String, Option<(String, Option<u32>)>);

/// Returns the calls' places.
fn places(calls: Vec<CniCalled>) -> Vec<Place> {
    let mut story = Story::new();
    for (at, it) in (10..).zip(calls) {
        let origin = if it.host { Origin::Kernel } else { Origin::Delegated };
        story.at(at).say(origin, Fact::CniCalled(it));
    }
    let mut engine = Engine::new(Settings::default());
    story.facts.iter().for_each(|seen| engine.observe(seen.clone()));
    pass(&mut engine, ms(1000));
    engine.advance(ms(1000) + engine.settings().hold);
    iter::from_fn(|| engine.poll())
        .filter_map(|output| {
            let Output::Change(change) = output else { return None };
            let ChangeKind::CniStarted { call } = change.what else { return None };
            let place = call.trace.clone();
            let place = place.map(|it| (it.parent.to_string(), it.plugin.map(|plugin| plugin.pid)));
            Some((call.plugin.clone(), place))
        })
        .collect()
}

fn place(plugin: &str, parent: &str, above: Option<u32>) -> Place {
    (plugin.to_owned(), Some((parent.to_owned(), above)))
}

#[test]
fn a_plugin_is_below_the_plugin_that_was_given_the_same_place() {
    let calls = vec![
        add(900, CONTAINERD, "bridge", Some(OF_CALLER)),
        add(901, 900, "host-local", Some(OF_CALLER)),
        add(902, 901, "static", Some(OF_CALLER)),
        // Plugins that clear the environment, and ones that garble it.
        add(903, 900, "dhcp", None),
        add(904, 900, "portmap", Some("00-x")),
        // The plugin made a span of its own, and then calls others in it.
        add(905, 900, "tuning", Some(OF_PLUGIN)),
        add(906, 905, "vlan", Some(OF_PLUGIN)),
    ];
    assert_eq!(
        places(calls),
        [
            place("bridge", OF_CALLER, None),
            place("host-local", OF_CALLER, Some(900)),
            place("static", OF_CALLER, Some(901)),
            place("dhcp", OF_CALLER, Some(900)),
            place("portmap", OF_CALLER, Some(900)),
            place("tuning", OF_PLUGIN, None),
            place("vlan", OF_PLUGIN, Some(905)),
        ]
    );
}

#[test]
fn a_call_without_a_valid_place_has_none() {
    let calls = vec![
        add(900, CONTAINERD, "bridge", None),
        add(901, CONTAINERD, "ptp", Some("00-0-0-01")),
        add(902, CONTAINERD, "vlan", Some(UNSAMPLED)),
    ];
    assert_eq!(
        places(calls),
        [("bridge".to_owned(), None), ("ptp".to_owned(), None), place("vlan", UNSAMPLED, None)]
    );
}

#[test]
fn a_container_can_only_add_to_the_trace_of_the_node_s_own_call() {
    let calls = |given: Option<&str>| {
        vec![
            add(900, CONTAINERD, "multus-shim", given),
            inside(901, "bridge", Some(OF_PLUGIN)),
            inside(902, "ptp", Some(OF_ANOTHER_TRACE)),
            inside(903, "vlan", None),
        ]
    };
    assert_eq!(
        places(calls(Some(OF_CALLER))),
        [
            place("multus-shim", OF_CALLER, None),
            place("bridge", OF_PLUGIN, None),
            place("ptp", OF_CALLER, Some(900)),
            place("vlan", OF_CALLER, Some(900)),
        ]
    );
    let unsampled = OF_PLUGIN.replace("-01", "-00");
    assert_eq!(places(calls(Some(UNSAMPLED)))[1], place("bridge", &unsampled, None));
    assert!(places(calls(None)).iter().all(|(_, place)| place.is_none()));
}
