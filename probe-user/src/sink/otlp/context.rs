//! The place in a caller's trace that a CNI call was given, and links to it.

use opentelemetry_proto::tonic::trace::v1::{SpanFlags, span::Link};

use super::{attribute::Attributes, key};
use crate::model::{
    change::{ChangeKind, CniCall, EvidenceEvent},
    fact::PodName,
    trace::TraceContext,
};

/// Returns the place that the runtime gave its first call of this command, rather for the pod's network than
/// for `lo`.
pub(super) fn given<'a>(events: &'a [EvidenceEvent], command: &str) -> Option<&'a TraceContext> {
    let calls = events.iter().filter_map(|it| match &it.what {
        ChangeKind::CniStarted { call } | ChangeKind::CniFinished { call, .. } => Some(call),
        _ => None,
    });
    calls
        .filter(|call| call.command == command && call.called_by.is_none() && !call.delegated)
        .filter_map(|call| Some((call.ifname.as_deref() == Some("lo"), sampled(call)?)))
        .min_by_key(|(is_loopback, _)| *is_loopback)
        .map(|(_, context)| context)
}

/// Returns a link from a trace of the agent's own to the caller's span.
pub(super) fn link(context: &TraceContext, pod: &PodName) -> Link {
    let parent = context.parent;
    let (trace_id, span_id) = (parent.trace_id.to_be_bytes(), parent.span_id.to_be_bytes());
    let trace_state = context.state.clone();
    let flags = flags(context, true);
    Link { trace_state, flags, ..link_to(trace_id.to_vec(), span_id.to_vec(), pod) }
}

/// Returns a link to a span, by the pod's UID.
pub(super) fn link_to(trace_id: Vec<u8>, span_id: Vec<u8>, pod: &PodName) -> Link {
    let uid = pod.uid.as_ref().map(ToString::to_string);
    let attributes = Attributes::default().some_text(key::POD_UID, uid).into_list();
    Link { trace_id, span_id, attributes, ..Link::default() }
}

/// Returns the call's place, if the caller samples its trace.
pub(super) fn sampled(call: &CniCall) -> Option<&TraceContext> {
    call.trace.as_ref().filter(|context| context.parent.is_sampled())
}

/// Returns the flags of a span below the place, or of a link to it. `is_remote`: another program made the
/// span above.
pub(super) fn flags(context: &TraceContext, is_remote: bool) -> u32 {
    let remote = if is_remote { SpanFlags::ContextIsRemoteMask as u32 } else { 0 };
    u32::from(context.parent.flags) | SpanFlags::ContextHasIsRemoteMask as u32 | remote
}
