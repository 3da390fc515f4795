//! The recorded run, as it would be if the runtime had handed a trace to its plugins: one for each sandbox,
//! with a span for each call.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::trace::v1::Span;

use super::recorded::{Sent, attribute, hex, replay, replay_with};
use crate::{
    engine::Call,
    model::{
        change::ChangeKind,
        fact::{CniCalled, Fact, Observation},
        id::ContainerId,
        phase::Kind,
    },
};

const STATE: &str = "vendor=1";

/// The sandboxes whose trace is sampled. Of the other two, the trace of one is not, and one has a value that
/// is not valid.
const SAMPLED: [&str; 3] = ["e29b92", "841cc0", "6b979e"];
const UNSAMPLED: &str = "759ef1";

fn trace_id(sandbox: &str) -> &str {
    &sandbox[..32]
}

/// The caller's span.
fn span_id(command: &str, ifname: &str) -> String {
    let number = format!("{command} {ifname}");
    format!("{:016x}", number.bytes().fold(0_u64, |sum, byte| sum * 31 + u64::from(byte)))
}

fn hand_over(call: &mut Call) {
    let Call::Observe(Observation { fact: Fact::CniCalled(CniCalled { variables, .. }), .. }) = call else {
        return;
    };
    let sandbox = variables.container_id.as_deref().expect("an id");
    let span = span_id(&variables.command, variables.ifname.as_deref().expect("a name"));
    let flags = match &sandbox[..6] {
        known if SAMPLED.contains(&known) => "01",
        UNSAMPLED => "00",
        _ => "0",
    };
    variables.traceparent = Some(format!("00-{}-{span}-{flags}", trace_id(sandbox)));
    variables.tracestate = Some(STATE.to_owned());
}

fn traced() -> Sent {
    replay_with("demo.jsonl", hand_over)
}

/// The spans in a sandbox's trace, by name.
fn of_trace<'a>(sent: &'a Sent, sandbox: &str) -> Vec<&'a Span> {
    sent.spans.iter().filter(|span| hex(&span.trace_id) == trace_id(sandbox)).collect()
}

fn is_sampled(sandbox: &ContainerId) -> bool {
    SAMPLED.contains(&&sandbox.as_str()[..6])
}

#[test]
fn each_call_is_below_the_span_that_it_was_given() {
    let sent = traced();
    let engine = sent.session.engine();
    let mut expected = 0;
    for start in &sent.starts {
        let spans = of_trace(&sent, start.sandbox.as_str());
        if !is_sampled(&start.sandbox) {
            assert_eq!(spans, Vec::<&Span>::new(), "{}", start.sandbox);
            continue;
        }
        for event in engine.told_of(&start.sandbox).expect("it is remembered").events {
            let ChangeKind::CniFinished { call, duration, .. } = &event.what else { continue };
            let name = format!("cni {} {}", call.command, call.plugin);
            let end = sent.wall(event.at);
            let span = spans.iter().find(|it| it.name == name && it.end_time_unix_nano == end);
            let span = span.expect("a span of the call");
            let ifname = call.ifname.as_deref().expect("a name");
            assert_eq!(hex(&span.parent_span_id), span_id(&call.command, ifname));
            assert_eq!(u128::from(end - span.start_time_unix_nano), duration.as_nanos());
            assert_eq!(attribute(&span.attributes, "sandprobe.sandbox.id"), start.sandbox.to_string());
            let uid = start.pod.uid.as_ref().expect("a UID").to_string();
            assert_eq!(attribute(&span.attributes, "k8s.pod.uid"), uid);
            // Sampled; the parent is another program's.
            assert_eq!((span.trace_state.as_str(), span.flags), (STATE, 0x301));
            let name = if call.command == "ADD" { "pod start" } else { "sandbox teardown" };
            let own = sent.spans.iter().find(|it| {
                it.name == name
                    && attribute(&it.attributes, "sandprobe.sandbox.id") == start.sandbox.to_string()
            });
            let own = own.expect("a trace of the agent's own");
            let [link] = &span.links[..] else { panic!("{:?}", span.links) };
            assert_eq!((&link.trace_id, &link.span_id), (&own.trace_id, &own.span_id));
            expected += 1;
        }
    }
    let calls = sent.spans.iter().filter(|span| span.flags != 0 && span.name.starts_with("cni ")).count();
    assert_eq!(calls, expected, "each call is sent once");
    assert!(expected >= 12, "{expected}");
}

#[test]
fn the_sandbox_s_setup_is_below_the_caller_of_its_network() {
    let sent = traced();
    for start in sent.starts.iter().filter(|start| is_sampled(&start.sandbox)) {
        let spans = of_trace(&sent, start.sandbox.as_str());
        let setup: Vec<&&Span> = spans.iter().filter(|span| !span.name.starts_with("cni ")).collect();
        let phases = start.phases.iter();
        let phases: Vec<_> =
            phases.filter(|it| matches!(it.kind, Kind::Netns | Kind::Between | Kind::Pause)).collect();
        assert!(phases.len() >= 2 && phases.len() == setup.len(), "{setup:?}");
        for (phase, span) in phases.into_iter().zip(setup) {
            assert_eq!(span.name, phase.kind.into_str());
            let times = (span.start_time_unix_nano, span.end_time_unix_nano);
            assert_eq!(times, (sent.wall(phase.begin), sent.wall(phase.end)));
            assert_eq!(hex(&span.parent_span_id), span_id("ADD", "eth0"));
            assert_eq!(attribute(&span.attributes, "k8s.pod.name"), start.pod.name.clone().expect("a name"));
        }
    }
    let ids = sent.spans.iter().map(|span| (&span.trace_id, &span.span_id));
    let mut count: BTreeMap<_, u32> = BTreeMap::new();
    ids.for_each(|id| *count.entry(id).or_default() += 1);
    assert!(count.values().all(|times| *times == 1), "an id is used twice");
}

/// A trace of the agent's own differs in its root's link alone.
#[test]
fn the_agent_s_own_traces_stay_and_lead_to_the_caller() {
    let (plain, sent) = (replay("demo.jsonl"), traced());
    let mut linked = 0;
    let mut own: Vec<Span> = sent.spans.iter().filter(|span| span.flags == 0).cloned().collect();
    for span in &mut own {
        let sandbox = attribute(&span.attributes, "sandprobe.sandbox.id");
        let command = if span.name == "pod start" { "ADD" } else { "DEL" };
        for link in std::mem::take(&mut span.links) {
            assert_eq!(hex(&link.trace_id), trace_id(&sandbox));
            assert_eq!(hex(&link.span_id), span_id(command, "eth0"));
            assert_eq!((link.trace_state.as_str(), link.flags), (STATE, 0x301));
            assert_eq!(
                attribute(&link.attributes, "k8s.pod.uid"),
                attribute(&span.attributes, "k8s.pod.uid")
            );
            linked += 1;
        }
    }
    assert_eq!(own, plain.spans);
    assert_eq!(linked, 2 * SAMPLED.len(), "each start and each teardown in a sampled trace");
}
