//! The recovery after a restart of the node as a trace. The root span is the whole recovery, and its periods
//! are spans below it.

use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::Span;

use super::{
    attribute::Attributes,
    id::{Of, TraceId},
    key,
    trace::{Period, Trace},
};
use crate::{
    engine::boot::report::{NodeBoot, RecoveryReport, Zero},
    model::{
        fact::PodName,
        recovery::{Pod, Recovery},
    },
    sink::{
        Label,
        render::{
            chart::boot::{is_within, row},
            recovery as wording,
        },
    },
};

/// Makes the spans of a recovery that is over; none if its end is not known.
pub(super) fn spans(recovery: &Recovery, study: &RecoveryReport, label: &Label) -> Vec<Span> {
    let Some(last) = &study.last_service else { return Vec::new() };
    let (before, ordered) = match &study.zero {
        Zero::Order { ordered, before_ns } => (*before_ns, Some(ordered)),
        Zero::Kernel(_) => (0, None),
    };
    let zero = u64::try_from(label.boot_wall_ns.saturating_sub(before)).unwrap_or_default();
    let picture = row(&NodeBoot { node: &label.node, recovery, report: study });
    // If it goes on after it seemed to be over, that is another trace.
    let id = TraceId::new(Of::Boot, &label.boot_id, &[&last.mark.at.0.to_string()]);
    let root = Period { name: "node boot".to_owned(), begin: zero, end: after(zero, picture.took) };
    let attributes = Attributes::default()
        .text(key::RECOVERED_BY, study.recovered.into_str())
        .some_text(key::RESTART_BY, ordered.map(|it| it.by.as_str()))
        .texts(key::MARKS, picture.marks.iter().copied())
        .texts(key::NOTES, picture.notes.iter().map(String::as_str));
    let mut trace = Trace::new(id, label, &root, attributes);
    if let Some(missed) = wording::missed(study) {
        trace.fail(Trace::ROOT, missed);
    }
    for bar in &picture.bars {
        let Some(took) = bar.took else { continue };
        let end = after(zero, bar.at.saturating_add(took));
        let period = Period { name: bar.name.clone(), begin: after(zero, bar.at), end };
        let attributes = Attributes::default()
            .text(key::PHASE, if bar.is_part { "period" } else { &bar.lane })
            .texts(key::NOTES, bar.notes.iter().map(String::as_str));
        trace.child(Trace::ROOT, &period, attributes);
    }
    for it in wording::milestones(recovery, study) {
        let attributes = Attributes::default().text(key::TIME_SOURCE, wording::source(it.mark.source));
        let attributes = match it.pod {
            Some(pod) => of_pod(attributes, pod),
            None => attributes,
        };
        trace.event(Trace::ROOT, it.name.title(), it.mark.at, attributes);
    }
    for back in recovery.pods.iter().filter(|back| is_within(study, back.mark.at)) {
        let attributes = Attributes::default().text(key::TIME_SOURCE, wording::source(back.mark.source));
        trace.event(Trace::ROOT, "pod back", back.mark.at, of_pod(attributes, &back.pod));
    }
    trace.into_spans()
}

fn after(zero: u64, span: Duration) -> u64 {
    zero.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

fn of_pod(attributes: Attributes, pod: &Pod) -> Attributes {
    let Pod { namespace, name, uid, kind, .. } = pod;
    let named = PodName { namespace: namespace.clone(), name: name.clone(), uid: uid.clone() };
    attributes.pod(&named).text(key::POD_KIND, wording::kind_name(*kind))
}
