//! Spans in the trace of those who call CNI plugins. libcni hands the caller's place in its trace to the
//! plugins, in their environment. Only a trace that the caller samples gets spans.
//!
//! The id of a call's span follows from the plugin's process. So the span of a call that the plugin made can
//! be sent before the plugin's own, and by another agent.

use opentelemetry_proto::tonic::trace::v1::Span;

use super::{
    attribute::Attributes,
    context::{flags, given, link_to, sampled},
    id::{Of, TraceId},
    key, start, teardown,
    trace::{Period, failed, span},
};
use crate::{
    engine::view::ToldView,
    model::{
        change::{Change, ChangeKind},
        fact::PodName,
        id::TaskKey,
        phase::{Kind, Start},
        trace::TraceContext,
    },
    sink::{Label, render::phase as wording},
};

/// Makes the span of a call that ended.
pub(super) fn call(change: &Change, label: &Label) -> Option<Span> {
    let ChangeKind::CniFinished { call, end, duration } = &change.what else { return None };
    let context = sampled(call)?;
    let pod = change.context.pod.clone().unwrap_or_default();
    let pod = PodName { namespace: pod.namespace, name: pod.name, uid: pod.uid };
    let sandbox = change.context.sandbox.as_ref();
    let attributes = Attributes::default()
        .pod(&pod)
        .some_text(key::SANDBOX, sandbox.map(ToString::to_string))
        .call(call)
        .end(end.as_ref());
    let period = Period::of_call(label, call, change.at.saturating_sub(*duration), change.at);
    let mut it = below(context, label, &period, attributes);
    it.span_id = call_id(label, call.process.key);
    it.status = end.as_ref().filter(|end| end.code != 0).map(|end| failed(format!("exit {}", end.code)));
    let own = sandbox.and_then(|sandbox| match call.command.as_str() {
        "ADD" => Some(start::id(&label.boot_id, sandbox)),
        "DEL" => Some(teardown::id(&label.boot_id, sandbox)),
        _ => None,
    });
    if let Some(own) = own {
        it.links.push(link_to(own.bytes(), own.span(0).to_vec(), &pod));
    }
    Some(it)
}

/// Makes the spans of what the runtime did for a pod's sandbox before and after the calls of ADD.
pub(super) fn setup(start: &Start, told: Option<ToldView<'_>>, label: &Label) -> Vec<Span> {
    let context = told.and_then(|told| given(told.events, "ADD"));
    let (Some(context), false) = (context, start.revised) else { return Vec::new() };
    let ids = TraceId::new(Of::Setup, &label.boot_id, &[start.sandbox.as_str()]);
    let phases = start.phases.iter();
    let phases = phases.filter(|phase| matches!(phase.kind, Kind::Netns | Kind::Between | Kind::Pause));
    let spans = phases.zip(0..).map(|(phase, number)| {
        let period = Period::of(label, wording::name(&phase.kind), phase.begin, phase.end);
        let attributes = start::of_phase(phase).pod(&start.pod).sandbox(&start.sandbox);
        Span { span_id: ids.span(number).to_vec(), ..below(context, label, &period, attributes) }
    });
    spans.collect()
}

/// Returns a span below the place, without an id.
fn below(context: &TraceContext, label: &Label, period: &Period, attributes: Attributes) -> Span {
    Span {
        trace_id: context.parent.trace_id.to_be_bytes().to_vec(),
        parent_span_id: match context.plugin {
            Some(plugin) => call_id(label, plugin),
            None => context.parent.span_id.to_be_bytes().to_vec(),
        },
        trace_state: context.state.clone(),
        flags: flags(context, context.plugin.is_none()),
        ..span(period, attributes)
    }
}

fn call_id(label: &Label, plugin: TaskKey) -> Vec<u8> {
    let (pid, start) = (plugin.pid.to_string(), plugin.start.to_string());
    TraceId::new(Of::Call, &label.boot_id, &[&pid, &start]).span(0).to_vec()
}
