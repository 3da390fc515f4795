//! Which path gives what.
//!
//! **Invariant:** nothing is changed by any request.

use std::sync::Arc;

use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use hyper::body::Body;
use tokio::sync::mpsc;

use super::{
    api,
    health::{self, readiness},
    house::House,
    page::{FILES, File},
    query::{Findings, Query},
    reply::{Refusal, Reply, TEXT, json, stream, whole},
    stream::{Form, Since, Source, Wish, run},
};
use crate::sink::metrics::TEXT_FORMAT;

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// A file of the page.
    Page(File),
    Healthz,
    Readyz,
    Metrics,
    Findings,
    Finding,
    Pods,
    Pools,
    Boot,
    Doctor,
    Events,
    State,
    History,
    OpenApi,
}

/// Each path but those of the page; what stands in braces is any text.
pub(super) const ROUTES: [(&str, Route); 13] = [
    ("/healthz", Route::Healthz),
    ("/readyz", Route::Readyz),
    ("/metrics", Route::Metrics),
    ("/v1/findings", Route::Findings),
    (FINDING, Route::Finding),
    ("/v1/pods", Route::Pods),
    ("/v1/pools", Route::Pools),
    ("/v1/boot", Route::Boot),
    ("/v1/doctor", Route::Doctor),
    ("/v1/events", Route::Events),
    ("/v1/state", Route::State),
    ("/v1/history", Route::History),
    ("/v1/openapi.json", Route::OpenApi),
];

const FINDING: &str = "/v1/findings/{key}";
const FINDINGS: &str = "/v1/findings/";

const OPENAPI: &str = include_str!("openapi.json");

impl Route {
    pub(super) fn of(path: &str) -> Option<Self> {
        let known = ROUTES.iter().find(|(known, _)| *known == path).map(|(_, route)| *route);
        let file = || FILES.iter().find(|(known, _)| *known == path).map(|(_, file)| Self::Page(*file));
        // A key may have slashes in it.
        known
            .or_else(file)
            .or_else(|| path.strip_prefix(FINDINGS).filter(|key| !key.is_empty()).map(|_| Self::Finding))
    }

    /// Whether who has neither token nor certificate may have it: what a kubelet asks, and the page without its contents.
    pub(super) fn is_open(self) -> bool {
        match self {
            Self::Page(_) | Self::Healthz | Self::Readyz => true,
            Self::Metrics
            | Self::Findings
            | Self::Finding
            | Self::Pods
            | Self::Pools
            | Self::Boot
            | Self::Doctor
            | Self::Events
            | Self::State
            | Self::History
            | Self::OpenApi => false,
        }
    }

    /// Whether the answer is a part of the program.
    pub(super) fn is_fixed(self) -> bool {
        matches!(self, Self::Page(_) | Self::OpenApi)
    }
}

/// What holds for every request, whatever it is for.
pub(super) fn check(method: &Method, headers: &HeaderMap, path: &str) -> Result<Route, Refusal> {
    let has_body = headers.contains_key(header::TRANSFER_ENCODING)
        || headers.get_all(header::CONTENT_LENGTH).iter().any(|length| length.as_bytes() != b"0");
    if has_body {
        return Err(Refusal::Body);
    }
    if *method != Method::GET && *method != Method::HEAD {
        return Err(Refusal::Method);
    }
    Route::of(path).ok_or(Refusal::Nothing)
}

/// Answers a request that is allowed.
pub(super) async fn answer<B: Body>(
    house: &Arc<House>,
    route: Route,
    request: &Request<B>,
) -> Result<Response<Reply>, Refusal> {
    let query = |known: &[&str]| Query::parse(request.uri().query(), known);
    if route != Route::Findings && route != Route::Events {
        query(&[])?;
    }
    Ok(match route {
        Route::Page(it) => whole(StatusCode::OK, it.kind, it.bytes),
        Route::Healthz => {
            house.alive.get().await?;
            whole(StatusCode::OK, TEXT, "ok\n")
        }
        Route::Readyz => health::response(&readiness(house).await?),
        Route::Metrics => {
            house.measured.get().await?;
            house.metrics.ready(readiness(house).await?.reasons.is_empty());
            // Fails only for a family without a name.
            let text = house.metrics.text().unwrap_or_default();
            whole(StatusCode::OK, TEXT_FORMAT, text)
        }
        Route::Findings => {
            let wanted = Findings::of(&query(&Findings::NAMES)?)?;
            json(&api::findings(&*house.findings.get().await?, &wanted))
        }
        Route::Finding => {
            let key = request.uri().path().strip_prefix(FINDINGS).unwrap_or_default();
            api::finding(&*house.findings.get().await?, &unescaped(key))?
        }
        Route::Pods => json(&api::pods(&*house.pods.get().await?)),
        Route::Pools => json(&api::pools(&*house.pools.get().await?)),
        Route::Boot => api::boot(house, &*house.recovery.get().await?),
        Route::Doctor => {
            let process = house.process.get().await?;
            json(&health::doctor(house, &readiness(house).await?, process.as_ref().as_ref()))
        }
        Route::Events => events(house, request.headers(), &query(&EVENTS)?)?,
        Route::State => api::state(house, &*house.state.get().await?),
        Route::History => api::history(house, &*house.recovery.get().await?),
        Route::OpenApi => whole(StatusCode::OK, super::reply::JSON, OPENAPI),
    })
}

const EVENTS: [&str; 6] = ["since", "follow", "namespace", "pod", "container", "event"];

fn events(house: &Arc<House>, headers: &HeaderMap, query: &Query) -> Result<Response<Reply>, Refusal> {
    let asked = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let form = if asked(header::ACCEPT).is_some_and(|kinds| kinds.contains("text/event-stream")) {
        Form::SentEvents
    } else {
        Form::Lines
    };
    // Who comes back by itself says where it was; what it was first given as `since` is older.
    let last = asked(header::HeaderName::from_static("last-event-id")).map(str::to_owned);
    let since = match last.or(query.one("since")?) {
        None => Since::Now,
        Some(text) => Since::parse(&text).ok_or_else(|| {
            Refusal::Parameter(format!("since cannot be {text:?}: it is an event's seq, or INSTANCE:SEQ"))
        })?,
    };
    let wish = Wish { since, filter: query.filter()?, form, follow: query.flag("follow", true)? };
    let room = Arc::clone(&house.streams).try_acquire_owned().map_err(|_full| Refusal::Full)?;
    let source = Source {
        ring: Arc::clone(&house.ring),
        instance: house.instance.clone(),
        node: house.header.node.clone(),
        boot_id: house.header.boot_id.clone(),
    };
    let (chunks, taken) = mpsc::channel(1);
    tokio::spawn(run(source, wish, chunks, house.end.clone(), room));
    Ok(match form {
        Form::Lines => stream("application/x-ndjson", taken),
        Form::SentEvents => stream("text/event-stream", taken),
    })
}

/// `%XX` as the byte that it stands for (RFC 3986, section 2.1); what is none stays.
fn unescaped(text: &str) -> String {
    // As a name in a form: there a plus is a space.
    let text = text.replace('+', "%2B").replace('&', "%26").replace('=', "%3D");
    form_urlencoded::parse(text.as_bytes()).next().map(|(name, _)| name.into_owned()).unwrap_or_default()
}
