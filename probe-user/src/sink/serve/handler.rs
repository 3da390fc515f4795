//! Answers requests.
//!
//! **Invariant:** no request changes anything.

use std::sync::Arc;

use http::{HeaderMap, Request, Response, StatusCode, header};
use hyper::body::Body;
use tokio::sync::mpsc;

use super::{
    api,
    app_state::AppState,
    docs,
    health::{self, readiness},
    openapi,
    query::{EVENTS, Findings, Query},
    reply::{ApiError, JSON, Reply, TEXT, json, json_with, stream, whole},
    route::{FINDINGS, Route},
    seats::Seat,
    stream::{Form, Since, Source, Subscription, run},
};
use crate::sink::metrics::TEXT_FORMAT;

/// Answers a request from an admitted client.
pub(super) async fn answer<B: Body>(
    app: &Arc<AppState>,
    seat: &Arc<Seat>,
    route: Route,
    request: &Request<B>,
) -> Result<Response<Reply>, ApiError> {
    let query = request.uri().query();
    if !matches!(route, Route::Findings | Route::Incidents | Route::Events) {
        Query::parse(query, &[])?;
    }
    Ok(match route {
        Route::Page(it) => whole(StatusCode::OK, it.kind, it.bytes),
        Route::Docs => docs::response(request.uri().path())?,
        Route::Healthz => {
            app.views.alive.get().await?;
            whole(StatusCode::OK, TEXT, "ok\n")
        }
        Route::Readyz => health::response(&readiness(app).await?),
        Route::Metrics => {
            app.views.measured.get().await?;
            app.config.metrics.ready(readiness(app).await?.reasons.is_empty());
            // This fails only for a family without a name.
            let text = app.config.metrics.text().unwrap_or_default();
            whole(StatusCode::OK, TEXT_FORMAT, text)
        }
        Route::Findings => {
            let wanted = Findings::of(&Query::parse(query, &Findings::NAMES)?)?;
            json(&api::findings(&*app.views.findings.get().await?, &wanted))
        }
        Route::Incidents => {
            let wanted = Findings::of(&Query::parse(query, &Findings::NAMES)?)?;
            json(&api::incidents(&*app.views.findings.get().await?, &wanted))
        }
        Route::Finding => {
            let key = request.uri().path().strip_prefix(FINDINGS).unwrap_or_default();
            api::finding(&*app.views.findings.get().await?, &unescaped(key))?
        }
        Route::Pods => json(&api::pods(&*app.views.pods.get().await?)),
        Route::Pools => json(&api::pools(&*app.views.pools.get().await?)),
        Route::Boot => api::boot(app, &*app.views.recovery.get().await?),
        Route::Doctor => {
            let process = app.views.process.get().await?;
            json(&health::doctor(app, &readiness(app).await?, process.as_ref().as_ref()))
        }
        Route::Verdict => {
            let verdict = app.judge.verdict().await?;
            json_with(
                if verdict.is_ok() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE },
                &verdict,
            )
        }
        Route::Events => events(app, seat, request.headers(), &Query::parse(query, &EVENTS)?)?,
        Route::State => api::state(app, &*app.views.saved.get().await?),
        Route::History => api::history(app, &*app.views.recovery.get().await?),
        Route::OpenApi => whole(StatusCode::OK, JSON, openapi::DOCUMENT.as_str()),
    })
}

/// Starts a stream of events.
fn events(
    app: &Arc<AppState>,
    seat: &Arc<Seat>,
    headers: &HeaderMap,
    query: &Query,
) -> Result<Response<Reply>, ApiError> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let form = if accept.is_some_and(|kinds| kinds.contains("text/event-stream")) {
        Form::SentEvents
    } else {
        Form::Lines
    };
    // A client that reconnects sends its last position. Its first `since` is older.
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let since = match last.or(query.one("since")?) {
        None => Since::Now,
        Some(text) => Since::parse(&text).ok_or_else(|| {
            ApiError::Parameter(format!("since cannot be {text:?}: it is an event's seq, or INSTANCE:SEQ"))
        })?,
    };
    let subscription =
        Subscription { since, filter: query.filter()?, form, follow: query.flag("follow", true)? };
    let following = seat.follow().ok_or(ApiError::TooManyFollowers)?;
    let source = Source {
        ring: Arc::clone(&app.config.ring),
        instance: app.instance.clone(),
        node: app.config.header.node.clone(),
        boot_id: app.config.header.boot_id.clone(),
    };
    let (chunks, taken) = mpsc::channel(1);
    tokio::spawn(run(source, subscription, chunks, app.end.clone(), following));
    Ok(match form {
        Form::Lines => stream("application/x-ndjson", taken),
        Form::SentEvents => stream("text/event-stream", taken),
    })
}

/// Decodes `%XX` (RFC 3986, section 2.1). Invalid escapes stay as they are.
fn unescaped(text: &str) -> String {
    // Escapes characters with a meaning in forms, where a plus is a space.
    let text = text.replace('+', "%2B").replace('&', "%26").replace('=', "%3D");
    form_urlencoded::parse(text.as_bytes()).next().map(|(name, _)| name.into_owned()).unwrap_or_default()
}
