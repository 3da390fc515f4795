//! The routes: the paths, and who may request them.
//!
//! axum is not used. Its router and query extractor add six crates, 9 s of a cold build and 200 KiB, and
//! would replace only this file. Its layers do not see the size of a response, which the response budget
//! needs. Here a new route does not compile until its protection is chosen.

use http::{HeaderMap, Method, header};

use super::{
    docs,
    page::{FILES, File},
    reply::ApiError,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// A file of the page.
    Page(File),
    /// The documentation.
    Docs,
    Healthz,
    Readyz,
    Metrics,
    Findings,
    Finding,
    Incidents,
    Pods,
    Pools,
    Boot,
    Doctor,
    Verdict,
    Events,
    State,
    History,
    OpenApi,
}

/// Who may request a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protection {
    /// Everybody: for the kubelet's probes, and for responses without data of the node.
    Open,
    /// Everybody on the machine itself, and over the network a client with token or certificate.
    Machine,
    /// A client with token or certificate.
    Client,
}

/// All paths except those of the page. A part in braces can be any text.
pub(super) const ROUTES: [(&str, Route); 16] = [
    ("/docs/{page}", Route::Docs),
    ("/healthz", Route::Healthz),
    ("/readyz", Route::Readyz),
    ("/metrics", Route::Metrics),
    ("/v1/findings", Route::Findings),
    (FINDING, Route::Finding),
    ("/v1/incidents", Route::Incidents),
    ("/v1/pods", Route::Pods),
    ("/v1/pools", Route::Pools),
    ("/v1/boot", Route::Boot),
    ("/v1/doctor", Route::Doctor),
    ("/v1/verdict", Route::Verdict),
    ("/v1/events", Route::Events),
    ("/v1/state", Route::State),
    ("/v1/history", Route::History),
    ("/v1/openapi.json", Route::OpenApi),
];

const FINDING: &str = "/v1/findings/{key}";
pub(super) const FINDINGS: &str = "/v1/findings/";

impl Route {
    pub(super) fn of(path: &str) -> Option<Self> {
        if let Some((_, route)) = ROUTES.iter().find(|(known, _)| *known == path) {
            return Some(*route);
        }
        if let Some((_, file)) = FILES.iter().find(|(known, _)| *known == path) {
            return Some(Self::Page(*file));
        }
        if docs::within(path).is_some() {
            return Some(Self::Docs);
        }
        // A key may contain slashes.
        let key = path.strip_prefix(FINDINGS)?;
        (!key.is_empty()).then_some(Self::Finding)
    }

    pub(super) fn protection(self) -> Protection {
        match self {
            Self::Page(_) | Self::Docs | Self::Healthz | Self::Readyz => Protection::Open,
            Self::Verdict => Protection::Machine,
            Self::Metrics
            | Self::Findings
            | Self::Finding
            | Self::Incidents
            | Self::Pods
            | Self::Pools
            | Self::Boot
            | Self::Doctor
            | Self::Events
            | Self::State
            | Self::History
            | Self::OpenApi => Protection::Client,
        }
    }

    /// Whether the response is built into the program and the same for every client.
    pub(super) fn is_fixed(self) -> bool {
        matches!(self, Self::Page(_) | Self::OpenApi)
    }
}

/// Checks the method, and that there is no body, and finds the route.
pub(super) fn check(method: &Method, headers: &HeaderMap, path: &str) -> Result<Route, ApiError> {
    // The method is checked first, because requests with another method often have a body.
    if *method != Method::GET && *method != Method::HEAD {
        return Err(ApiError::Method);
    }
    let has_body = headers.contains_key(header::TRANSFER_ENCODING)
        || headers.get_all(header::CONTENT_LENGTH).iter().any(|length| length.as_bytes() != b"0");
    if has_body {
        return Err(ApiError::Body);
    }
    Route::of(path).ok_or(ApiError::NotFound)
}
