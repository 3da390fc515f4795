//! The traces and records of recorded runs agree with the events and with `explain pod`.

use std::{collections::BTreeMap, fmt::Write as _, fs::File, io::BufReader, sync::mpsc};

use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue, any_value::Value},
    logs::v1::{LogRecord, ScopeLogs},
    trace::v1::{ScopeSpans, Span, status::StatusCode},
};
use prost::Message as _;

use super::super::{feed::Feed, figures::ExportCounters, pace::Pace, queue::Queue, signal::Signal};
use crate::{
    engine::{Call, boot::report::RecoveryReport},
    golden,
    model::{
        change::{Change, ChangeKind, Finding},
        phase::{Kind, Start},
        time::Timestamp,
    },
    recording::Reader,
    session::Session,
    sink::{
        Label, Sink,
        render::{jsonl::Jsonl, phase as wording},
        select::filter::Filter,
    },
};

/// The spans and records that were sent, and what they should say.
pub(super) struct Sent {
    pub(super) spans: Vec<Span>,
    pub(super) records: Vec<LogRecord>,
    pub(super) starts: Vec<Start>,
    findings: Vec<(Finding, Timestamp)>,
    label: Label,
    pub(super) session: Session,
}

/// Passes starts and findings on.
struct Told(mpsc::Sender<Change>);

impl Sink for Told {
    fn on_change(&mut self, change: &Change, _: &Label) {
        self.0.send(change.clone()).expect("a receiver");
    }
}

/// Opens a recording: its session before the first call, and all calls.
pub(in crate::sink::otlp) fn open(name: &str) -> (Session, Vec<Call>) {
    let path = format!("{}/../tests/data/recordings/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut reader = Reader::open(BufReader::new(File::open(path).expect(name))).expect("a recording");
    let session = Session::new(&reader.header().clone(), Filter::default(), Box::new(Jsonl));
    let mut calls = Vec::new();
    while let Some(call) = reader.next_call().expect("a whole recording") {
        calls.push(call);
    }
    (session, calls)
}

/// Replays a recording, and returns what would be sent.
pub(super) fn replay(name: &str) -> Sent {
    replay_with(name, |_| {})
}

/// Replays a recording whose calls are changed before.
pub(super) fn replay_with(name: &str, change: impl FnMut(&mut Call)) -> Sent {
    let (mut session, mut calls) = open(name);
    calls.iter_mut().for_each(change);
    let pace = Pace::default();
    let queue = |signal| Queue::new(&pace, ExportCounters::new(signal));
    let (traces, logs) = (queue(Signal::Traces), queue(Signal::Logs));
    let (mut feed, notes) = Feed::new(Some(traces.clone()), Some(logs.clone()), Timestamp::ZERO);
    let (tell, told) = mpsc::channel();
    session.add_sink(Box::new(notes));
    session.add_sink(Box::new(Told(tell)));
    let mut now = Timestamp::ZERO;
    for call in calls {
        now = now.max(call.at().unwrap_or_default());
        session.call(call).expect("nothing is recorded");
        feed.update(now, session.engine(), session.label());
    }
    feed.finish(now, session.engine(), session.label());
    let (mut starts, mut findings) = (Vec::new(), Vec::new());
    for change in told.try_iter() {
        match change.what {
            ChangeKind::PodStarted(start) => starts.push(*start),
            ChangeKind::FindingOpened(it)
            | ChangeKind::FindingConfirmed(it)
            | ChangeKind::FindingClosed(it) => findings.push((*it, change.at)),
            _ => {}
        }
    }
    let scopes = |queue: &Queue| queue.take(usize::MAX).scopes;
    let spans = ScopeSpans::decode(&*scopes(&traces)).expect("spans").spans;
    let records = ScopeLogs::decode(&*scopes(&logs)).expect("records").log_records;
    let label = session.label().clone();
    Sent { spans, records, starts, findings, label, session }
}

impl Sent {
    fn roots(&self, name: &str) -> Vec<&Span> {
        self.spans.iter().filter(|span| span.name == name && span.parent_span_id.is_empty()).collect()
    }

    fn children(&self, of: &Span) -> Vec<&Span> {
        let is_child = |span: &&Span| span.trace_id == of.trace_id && span.parent_span_id == of.span_id;
        self.spans.iter().filter(is_child).collect()
    }

    pub(super) fn wall(&self, at: Timestamp) -> u64 {
        u64::try_from(self.label.wall_ns(at)).expect("after the epoch")
    }
}

fn value(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        None => String::new(),
        Some(Value::StringValue(it)) => it.clone(),
        Some(Value::BoolValue(it)) => it.to_string(),
        Some(Value::IntValue(it)) => it.to_string(),
        Some(Value::DoubleValue(it)) => it.to_string(),
        Some(Value::ArrayValue(list)) => {
            let all: Vec<String> = list.values.iter().map(|it| self::value(Some(it))).collect();
            format!("[{}]", all.join("; "))
        }
        Some(Value::KvlistValue(list)) => format!("{{{}}}", pairs(&list.values)),
        Some(other) => format!("{other:?}"),
    }
}

fn pairs(all: &[KeyValue]) -> String {
    let all: Vec<String> = all.iter().map(|it| format!("{}={}", it.key, value(it.value.as_ref()))).collect();
    all.join(" ")
}

pub(super) fn attribute(all: &[KeyValue], key: &str) -> String {
    value(all.iter().find(|it| it.key == key).and_then(|it| it.value.as_ref()))
}

fn took(span: &Span) -> u64 {
    span.end_time_unix_nano - span.start_time_unix_nano
}

#[test]
fn each_start_is_a_trace_whose_phases_are_those_of_explain_pod() {
    let sent = replay("demo.jsonl");
    let roots = sent.roots("pod start");
    assert!(sent.starts.len() >= 5, "{}", sent.starts.len());
    assert_eq!(roots.len(), sent.starts.len());
    for (start, root) in sent.starts.iter().zip(roots) {
        let times = (root.start_time_unix_nano, root.end_time_unix_nano);
        assert_eq!(times, (sent.wall(start.begin), sent.wall(start.end)));
        let whose = ["k8s.namespace.name", "k8s.pod.name"].map(|key| attribute(&root.attributes, key));
        assert_eq!(whose.join("/"), wording::pod(&start.pod));
        assert_eq!(attribute(&root.attributes, "sandprobe.sandbox.id"), start.sandbox.to_string());
        let has_network = start.phases.iter().any(|phase| matches!(phase.kind, Kind::Cni { .. }));
        let runtime = if has_network { "containerd" } else { "" };
        assert_eq!(attribute(&root.attributes, "container.runtime.name"), runtime);
        let children = sent.children(root);
        let (phases, beyond) = children.split_at(start.phases.len());
        for (phase, span) in start.phases.iter().zip(phases) {
            assert_eq!(span.name, wording::name(&phase.kind));
            assert_eq!(attribute(&span.attributes, "sandprobe.phase"), phase.kind.into_str());
            let times = (span.start_time_unix_nano, span.end_time_unix_nano);
            assert_eq!(times, (sent.wall(phase.begin), sent.wall(phase.end)));
            let container = phase.container.as_ref().map(|it| it.id.to_string()).unwrap_or_default();
            assert_eq!(attribute(&span.attributes, "container.id"), container);
        }
        assert_eq!(phases.iter().map(|span| took(span)).sum::<u64>(), took(root), "the phases are the whole");
        assert!(phases.windows(2).all(|two| two[0].end_time_unix_nano == two[1].start_time_unix_nano));
        assert_eq!(beyond.len(), start.listening.len());
        let calls: Vec<&str> = phases.iter().flat_map(|it| &it.events).map(|it| it.name.as_str()).collect();
        let called = |name: &str| calls.iter().filter(|it| **it == name).count();
        assert_eq!(called("cni.started") >= 2, has_network, "{calls:?}");
        assert_eq!(called("cni.started"), called("cni.finished"), "{calls:?}");
        for span in phases {
            let within = |at: u64| span.start_time_unix_nano <= at && at <= span.end_time_unix_nano;
            assert!(span.events.iter().all(|event| within(event.time_unix_nano)), "{span:?}");
        }
    }
}

#[test]
fn each_sandbox_that_ended_is_a_trace_with_the_calls_of_del() {
    let sent = replay("demo.jsonl");
    let mut by_sandbox: BTreeMap<String, &Span> = BTreeMap::new();
    for root in sent.roots("sandbox teardown") {
        let sandbox = attribute(&root.attributes, "sandprobe.sandbox.id");
        assert!(by_sandbox.insert(sandbox, root).is_none(), "told twice");
    }
    assert!(by_sandbox.len() >= sent.starts.len(), "{}", by_sandbox.len());
    for start in &sent.starts {
        let root = by_sandbox[&start.sandbox.to_string()];
        let told = sent.session.engine().told_of(&start.sandbox).expect("it is remembered");
        let stopped = told.events.iter().find(|it| matches!(it.what, ChangeKind::SandboxStopped { .. }));
        assert!(root.start_time_unix_nano <= sent.wall(stopped.expect("it stopped").at));
        let mut calls = 0;
        for event in told.events {
            let ChangeKind::CniFinished { call, end, duration } = &event.what else { continue };
            if call.command != "DEL" {
                continue;
            }
            let name = format!("cni DEL {}", call.plugin);
            let at = sent.wall(event.at);
            let is_it = |span: &&Span| {
                span.trace_id == root.trace_id && span.name == name && span.end_time_unix_nano == at
            };
            let span = sent.spans.iter().find(is_it).expect("a span of the call");
            assert_eq!(u128::from(took(span)), duration.as_nanos());
            let code = end.as_ref().map(|end| end.code).unwrap_or_default();
            assert_eq!(attribute(&span.attributes, "sandprobe.exit_code"), code.to_string());
            let failed = span.status.as_ref().is_some_and(|it| it.code == i32::from(StatusCode::Error));
            assert_eq!(failed, code != 0);
            let parent = sent.spans.iter().find(|it| it.span_id == span.parent_span_id).expect("a parent");
            match &call.called_by {
                Some(caller) => assert_eq!(parent.name, format!("cni DEL {caller}")),
                None => assert_eq!(parent, root),
            }
            calls += 1;
        }
        let has_network = start.phases.iter().any(|phase| matches!(phase.kind, Kind::Cni { .. }));
        assert_eq!(calls > 0, has_network, "{root:?}");
        for child in sent.spans.iter().filter(|span| span.trace_id == root.trace_id) {
            assert!(root.start_time_unix_nano <= child.start_time_unix_nano, "{child:?}");
            assert!(child.end_time_unix_nano <= root.end_time_unix_nano, "{child:?}");
        }
    }
}

#[test]
fn each_step_of_a_finding_is_a_record_of_the_sandbox_s_trace() {
    let sent = replay("demo.jsonl");
    assert!(sent.findings.len() >= 3 && sent.findings.len() == sent.records.len());
    for ((finding, at), record) in sent.findings.iter().zip(&sent.records) {
        let text = |key| attribute(&record.attributes, key);
        assert_eq!(text("sandprobe.finding.key"), finding.key.as_str());
        assert_eq!(text("sandprobe.finding.stage"), finding.stage.into_str());
        assert_eq!(record.time_unix_nano, sent.wall(*at));
        assert!(record.observed_time_unix_nano >= record.time_unix_nano);
        let body = value(record.body.as_ref());
        assert!(body.ends_with(&finding.kind.explain().summary()), "{body}");
        if !finding.sandboxes.is_empty() {
            assert!(sent.spans.iter().any(|span| span.trace_id == record.trace_id), "{body}: no such trace");
        }
    }
    let kinds: Vec<String> =
        sent.records.iter().map(|it| attribute(&it.attributes, "sandprobe.finding.kind")).collect();
    assert!(kinds.iter().any(|kind| kind == "leaked_address"), "{kinds:?}");
    let shown = sent.spans.iter().flat_map(|span| &span.events).filter(|event| event.name == "finding");
    assert!(shown.count() >= 2, "findings are events of the spans in which they began");
}

#[test]
fn a_boot_is_a_trace_whose_periods_are_the_columns() {
    let sent = replay("boots/restart.jsonl");
    let root = *sent.roots("node boot").last().expect("a boot");
    let (engine, label) = (sent.session.engine(), &sent.label);
    let study = RecoveryReport::of(engine.recovery(), engine.now());
    assert!(study.is_closed());
    let whole = u64::try_from(study.numbers.whole().expect("it is over").ns).expect("not negative");
    assert_eq!(took(root), whole);
    let last = study.last_service.as_ref().expect("a pod").mark.at;
    assert_eq!(root.end_time_unix_nano, u64::try_from(label.wall_ns(last)).expect("after the epoch"));
    let periods: Vec<&Span> = sent
        .children(root)
        .into_iter()
        .filter(|span| attribute(&span.attributes, "sandprobe.phase") == "period")
        .collect();
    assert_eq!(periods.iter().map(|span| took(span)).sum::<u64>(), whole);
    let known = study.numbers.columns.iter().flatten().count();
    assert_eq!(periods.len(), known);
    let back = root.events.iter().filter(|event| event.name == "pod back").count();
    assert!(back > 0 && root.events.iter().any(|event| event.name == "kernel start"));
}

/// Another agent that sends the traces again also gives them the same ids.
#[test]
fn the_recorded_traces_are_as_they_were() {
    let sent = replay("demo.jsonl");
    let mut text = String::new();
    let spans = sent.spans.iter();
    for root in spans.filter(|span| span.parent_span_id.is_empty()) {
        writeln!(text, "trace {}", hex(&root.trace_id)).expect("a string");
        write(&sent, root, root, 1, &mut text);
    }
    for record in &sent.records {
        writeln!(
            text,
            "log {} {} trace {}\n  {}\n  {}",
            record.severity_text,
            record.event_name,
            hex(&record.trace_id),
            value(record.body.as_ref()),
            pairs(&record.attributes)
        )
        .expect("a string");
    }
    golden::expect("tests/data/recordings/demo.otlp", &text);
}

fn write(sent: &Sent, root: &Span, span: &Span, depth: usize, text: &mut String) {
    let since = |at: u64| format!("+{:.3} ms", (at - root.start_time_unix_nano) as f64 / 1e6);
    let indent = "  ".repeat(depth);
    let status = span.status.as_ref().map(|it| format!(" failed: {}", it.message)).unwrap_or_default();
    let (begin, took) = (since(span.start_time_unix_nano), took(span) as f64 / 1e6);
    let (name, id, of) = (&span.name, hex(&span.span_id), pairs(&span.attributes));
    writeln!(text, "{indent}{begin} {name} {took:.3} ms {id}{status} {of}").expect("a string");
    for event in &span.events {
        let (at, of) = (since(event.time_unix_nano), pairs(&event.attributes));
        writeln!(text, "{indent}  * {at} {} {of}", event.name).expect("a string");
    }
    for child in sent.children(span) {
        write(sent, root, child, depth + 1, text);
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
