//! Parses the kubelet's log lines about requests to the API server that it held back.
//!
//! client-go writes these lines (`rest/request.go`, `tryThrottleWithInfo`). The kubelet sends nearly all of
//! its requests by one client, whose limit of `kubeAPIQPS` and `kubeAPIBurst` sends them in the order in
//! which they came. Events have a client of their own (`eventRecordQPS`), and leases and the node's status
//! have no limit. Unless the kubelet logs much (`-v=3`), it logs only requests that waited for longer than a
//! second, and of these one in ten seconds, or with `-v=2` one in a second.

use std::time::Duration;

use jiff::SignedDuration;

use super::AskedSandbox;
use crate::model::{
    fact::{HeldRequests, Span},
    time::Timestamp,
};

/// The most requests that one answer has: the newest ones.
const MAX_REQUESTS: usize = 256;
/// The longest name of a namespace (RFC 1123's label).
const MAX_NAMESPACE_BYTES: usize = 63;

/// A line that reports a request which the kubelet had held back.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Held {
    waited: Duration,
    /// `None` for an object that is in no namespace.
    namespace: Option<String>,
}

/// A request that was held back.
#[derive(Debug)]
pub(super) struct Request<'a> {
    span: Span,
    namespace: Option<&'a str>,
}

impl Held {
    /// Returns the request. `at`: when it was sent.
    pub(super) fn request(&self, at: Timestamp) -> Request<'_> {
        let span = Span { began: at.saturating_sub(self.waited), ended: at };
        Request { span, namespace: self.namespace.as_deref() }
    }
}

pub(super) fn read(line: &str) -> Option<Held> {
    let waited = if let Some((_, rest)) = line.split_once("Waited for ") {
        rest.split_once(" due to client-side throttling")?.0
    } else if let Some((_, rest)) = line.split_once("Waited before sending request") {
        // This is klog's text or JSON. A request that is sent again has another reason.
        let rest = rest.contains("client-side throttling").then_some(rest)?;
        let value = rest.split_once("delay=\"").or_else(|| rest.split_once("\"delay\":\""))?.1;
        value.split_once('"')?.0
    } else {
        // Before Kubernetes 1.20.
        line.split_once("Throttling request took ")?.1.split_once(", request: ")?.0
    };
    let namespace = match line.split_once("/namespaces/") {
        None => None,
        Some((_, path)) => {
            let path = path.split([' ', '"', '?', '\\']).next().unwrap_or_default();
            let (namespace, object) = path.split_once('/').unwrap_or((path, ""));
            let is_name = !namespace.is_empty() && namespace.len() <= MAX_NAMESPACE_BYTES;
            let is_event = object.split('/').next() == Some("events");
            Some((is_name && !is_event).then(|| namespace.to_owned())?)
        }
    };
    let waited = waited.parse::<SignedDuration>().ok()?.try_into().ok()?;
    Some(Held { waited, namespace })
}

/// Returns the requests that this sandbox waited for: those for its pod's namespace, as far as the log names
/// it; and those that were held back when the kubelet began with the pod, because they were sent before
/// anything that the pod needed. A request that was sent after the sandbox's first sign was not for it.
pub(super) fn of(it: &AskedSandbox, held: &[Request<'_>]) -> Option<HeldRequests> {
    let mut its: Vec<Span> = Vec::new();
    for Request { span, namespace } in held {
        let is_of_pod = namespace.is_some() && *namespace == it.namespace.as_deref();
        if it.from < span.ended && span.ended <= it.until && (span.began <= it.from || is_of_pod) {
            its.push(*span);
        }
    }
    its.drain(..its.len().saturating_sub(MAX_REQUESTS));
    (!its.is_empty()).then(|| HeldRequests { sandbox: it.sandbox.clone(), held: its })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{AskedSandbox, Duration, Held, Request, Span, Timestamp, of, read};
    use crate::model::id::ContainerId;

    fn held(ms: u64, namespace: Option<&str>) -> Option<Held> {
        Some(Held { waited: Duration::from_millis(ms), namespace: namespace.map(str::to_owned) })
    }

    #[test]
    fn each_kubelet_says_it_in_its_own_way() {
        let token = "https://10.0.0.1:6443/api/v1/namespaces/shop/serviceaccounts/default/token";
        for (line, expected) in [
            (
                format!(
                    r#"I1126 04:41:07.906412    1187 request.go:752] "Waited before sending request" delay="1.194s" reason="client-side throttling, not priority and fairness" verb="POST" URL="{token}""#
                ),
                held(1194, Some("shop")),
            ),
            (
                format!(
                    r#"{{"ts":1795668067906.4,"caller":"rest/request.go:752","msg":"Waited before sending request","v":0,"delay":"1m2.5s","reason":"client-side throttling, not priority and fairness","verb":"POST","URL":"{token}"}}"#
                ),
                held(62_500, Some("shop")),
            ),
            (
                format!(
                    "I0922 09:37:13.980459 1271042 request.go:690] Waited for 997.3ms due to client-side throttling, not priority and fairness, request: POST:{token}"
                ),
                held(997, Some("shop")).map(|it| Held { waited: Duration::from_micros(997_300), ..it }),
            ),
            (
                "I0401 10:05:00.1 1 request.go:557] Throttling request took 3.05s, request: GET:https://127.0.0.1:6443/api/v1/namespaces/shop/secrets/default-token-zh4sf?resourceVersion=0".to_owned(),
                held(3050, Some("shop")),
            ),
            (
                r#"request.go:752] "Waited before sending request" delay="2s" reason="client-side throttling, not priority and fairness" verb="GET" URL="https://10.0.0.1/apis/storage.k8s.io/v1/volumeattachments/csi-1""#.to_owned(),
                held(2000, None),
            ),
        ] {
            assert_eq!(read(&line), expected, "{line}");
        }
    }

    #[test]
    fn what_is_not_held_back_by_the_rate_of_requests_says_nothing() {
        for line in [
            // The server had asked for a pause.
            r#""Waited before sending request" delay="1s" reason="retries: 1, retry-after: 1s - retry-reason: 429" verb="GET" URL="https://10.0.0.1/api/v1/namespaces/shop/pods/a""#,
            "Waited for 1s, retries: 1, retry-after: 1s - retry-reason: 429 - request: GET:https://10.0.0.1/api/v1/nodes",
            // Events have a rate of their own.
            "Waited for 2s due to client-side throttling, not priority and fairness, request: POST:https://10.0.0.1/api/v1/namespaces/shop/events",
            "Waited for 2s due to client-side throttling, not priority and fairness, request: PATCH:https://10.0.0.1/apis/events.k8s.io/v1/namespaces/shop/events/a.1",
            "Waited for ever due to client-side throttling, not priority and fairness, request: GET:https://10.0.0.1/api/v1/nodes",
            "Waited for -2s due to client-side throttling, not priority and fairness, request: GET:https://10.0.0.1/api/v1/nodes",
            "Waited for 2s due to client-side throttling, not priority and fairness, request: GET:https://10.0.0.1/api/v1/namespaces//pods",
            "Waited for the pod",
            "Throttling request took",
            "",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }

    #[test]
    fn a_sandbox_waited_for_its_namespaces_requests_and_for_those_that_were_held_back_when_it_came() {
        let span = |(began, ended)| Span { began: Timestamp(began), ended: Timestamp(ended) };
        let answer = |requests: &[(Option<&'static str>, (u64, u64))]| {
            let requests: Vec<Request<'_>> = requests
                .iter()
                .map(|(namespace, of)| Request { span: span(*of), namespace: *namespace })
                .collect();
            let sandbox = ContainerId::parse("c0ffee").expect("an id");
            let namespace = Some("shop".to_owned());
            let it = AskedSandbox { sandbox, namespace, from: Timestamp(10), until: Timestamp(20) };
            of(&it, &requests).map(|it| it.held)
        };
        assert_eq!(answer(&[]), None);
        // The first is for the pod's namespace. The next two are for others, and the pod had to wait for
        // them. The last is for neither.
        let requests =
            [(Some("shop"), (12, 15)), (Some("other"), (8, 11)), (None, (9, 20)), (Some("other"), (11, 19))];
        assert_eq!(answer(&requests), Some([(12, 15), (8, 11), (9, 20)].map(span).to_vec()));
        // Sent before the pod came, or after its sandbox was there.
        assert_eq!(answer(&[(Some("shop"), (3, 10)), (Some("shop"), (12, 21)), (None, (5, 21))]), None);
    }

    proptest! {
        #[test]
        fn no_line_is_too_strange(any: String, tail: String) {
            read(&any);
            for words in [
                "Waited for ", "\"Waited before sending request\" client-side throttling delay=\"",
                "Waited for 2s due to client-side throttling request: GET:https://a/api/v1/namespaces/",
                "Throttling request took ",
            ] {
                read(&format!("{words}{tail}"));
            }
        }
    }
}
