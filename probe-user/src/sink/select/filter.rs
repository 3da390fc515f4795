//! Filters changes by pod and by kind of event.

use crate::model::change::{Change, ChangeKind};

/// Names to keep; an empty list keeps everything. A change must match every list, by any of its names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub namespaces: Vec<String>,
    /// Each is `NAME` or `NAMESPACE/NAME`.
    pub pods: Vec<String>,
    pub containers: Vec<String>,
    pub events: Vec<String>,
}

/// The properties of a change that a filter looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marks<'a> {
    pub event: &'a str,
    /// It may be about any pod.
    pub is_everyone_s: bool,
    pub namespace: Option<&'a str>,
    pub pod: Option<&'a str>,
    pub container: Option<&'a str>,
}

impl<'a> Marks<'a> {
    #[must_use]
    pub(crate) fn of(change: &'a Change) -> Self {
        let pod = change.context.pod.as_ref();
        Self {
            event: change.what.into_str(),
            is_everyone_s: is_everyone_s(&change.what),
            namespace: pod.and_then(|pod| pod.namespace.as_deref()),
            pod: pod.and_then(|pod| pod.name.as_deref()),
            container: change.context.container.as_ref().and_then(|it| it.name.as_deref()),
        }
    }
}

impl Filter {
    #[must_use]
    pub(crate) fn keeps(&self, change: &Change) -> bool {
        self.matches(&Marks::of(change))
    }

    #[must_use]
    pub(crate) fn matches(&self, marks: &Marks<'_>) -> bool {
        if !has(&self.events, Some(marks.event)) {
            return false;
        }
        // A loss, or a fault of the node, may be about any pod, so every filter keeps it.
        marks.is_everyone_s
            || (has(&self.namespaces, marks.namespace)
                && (self.pods.is_empty()
                    || self.pods.iter().any(|asked| is_pod(marks.namespace, marks.pod, asked)))
                && has(&self.containers, marks.container))
    }
}

fn is_everyone_s(what: &ChangeKind) -> bool {
    match what {
        ChangeKind::Gap { .. } => true,
        ChangeKind::FindingOpened(it) | ChangeKind::FindingConfirmed(it) | ChangeKind::FindingClosed(it) => {
            it.pod.is_none()
        }
        _ => false,
    }
}

/// Whether the pod matches `NAME` or `NAMESPACE/NAME`.
#[must_use]
pub(crate) fn is_pod(namespace: Option<&str>, name: Option<&str>, asked: &str) -> bool {
    let (in_namespace, named) = match asked.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, asked),
    };
    name == Some(named) && (in_namespace.is_none() || in_namespace == namespace)
}

fn has(names: &[String], name: Option<&str>) -> bool {
    names.is_empty() || name.is_some_and(|name| names.iter().any(|kept| kept == name))
}

#[cfg(test)]
mod tests {
    use super::Filter;
    use crate::model::{
        change::{Change, ChangeKind, ContainerRef, Context, PodRef},
        fact::{Loss, Origin},
        id::ContainerId,
        time::Timestamp,
    };

    fn change(namespace: &str, pod: &str, container: &str) -> Change {
        let context = Context {
            pod: Some(PodRef {
                namespace: Some(namespace.to_owned()),
                name: Some(pod.to_owned()),
                ..PodRef::default()
            }),
            container: ContainerId::parse("c1").map(|id| ContainerRef::new(id, Some(container.to_owned()))),
            ..Context::default()
        };
        let at = Timestamp(1);
        Change { seq: 1, at, origin: Origin::Kernel, late: false, context, what: ChangeKind::CgroupEmptied }
    }

    fn filter(namespaces: &[&str], pods: &[&str], containers: &[&str], events: &[&str]) -> Filter {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Filter {
            namespaces: owned(namespaces),
            pods: owned(pods),
            containers: owned(containers),
            events: owned(events),
        }
    }

    #[test]
    fn names_in_a_list_are_alternatives_and_lists_are_conditions() {
        let web = change("default", "web-0", "nginx");
        assert!(Filter::default().keeps(&web));
        assert!(filter(&["kube-system", "default"], &[], &[], &[]).keeps(&web));
        assert!(filter(&["default"], &["web-0"], &["nginx"], &["cgroup.emptied"]).keeps(&web));
        assert!(!filter(&["default"], &["web-1"], &[], &[]).keeps(&web));
        assert!(filter(&[], &["other/web-0", "default/web-0"], &[], &[]).keeps(&web));
        assert!(!filter(&[], &["other/web-0", "default/web-1"], &[], &[]).keeps(&web));
        assert!(!filter(&["default"], &["web"], &[], &[]).keeps(&web));
        assert!(!filter(&[], &[], &[], &["cgroup.removed"]).keeps(&web));
    }

    #[test]
    fn an_event_without_a_pod_matches_no_pod_and_a_gap_matches_all() {
        let mut nameless = Change { context: Context::default(), ..change("", "", "") };
        assert!(Filter::default().keeps(&nameless));
        assert!(!filter(&["default"], &[], &[], &[]).keeps(&nameless));
        nameless.what = ChangeKind::Gap { what: Loss::BulkRing, count: 3, lasted: None };
        assert!(filter(&["default"], &["web-0"], &["nginx"], &[]).keeps(&nameless));
        assert!(!filter(&["default"], &[], &[], &["pod.gone"]).keeps(&nameless));
    }
}
