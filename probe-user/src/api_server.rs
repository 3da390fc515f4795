//! Requests to the API server, and what its answers mean.

pub(crate) mod access;
pub(crate) mod kubeconfig;
pub(crate) mod link;
pub(crate) mod rest;
pub(crate) mod stats;
pub(crate) mod text;
pub(crate) mod token;

use std::{error, iter, mem, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::time::{self, Instant};

use self::{
    access::{Access, AccessError, Client, Login},
    rest::Rest,
    stats::{KubernetesStats, Outcome, Resource},
    text::cut,
};
use crate::words::escape::escaped;

/// How long a request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the token and the certificates are read again. The kubelet replaces a token long before it
/// expires.
const PERIOD: Duration = Duration::from_secs(60);
const USER_AGENT: &str = concat!("sandprobe/", env!("CARGO_PKG_VERSION"));
/// The field manager: under this name the API server keeps which fields the agent wrote.
const MANAGER: &str = "sandprobe";
/// The longest explanation that is logged, bytes.
const MAX_MESSAGE: usize = 300;
/// The longest answer that is read, bytes. etcd keeps no object of more than 1.5 MiB.
const MAX_ANSWER: usize = 4 << 20;
/// The reason of the API server's own 404.
const NOT_FOUND: &str = "NotFound";

/// Why a request failed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    #[error("there is such an object already")]
    Exists,
    /// The object or its namespace is gone, or the namespace is being removed.
    #[error("there is no such object")]
    Gone,
    /// The API server will never accept this request, or its object.
    #[error("it does not accept the request: {0}")]
    Invalid(String),
    /// The API server does not know this agent.
    #[error("it does not accept this agent's token or certificate: {0}")]
    Unknown(String),
    /// The answer is JSON, and not the object that was asked for; or it is too long.
    #[error("its answer is not that of an API server: {0}")]
    Unfit(String),
    #[error("this agent may not do that: {0}; docs/kubernetes.md has the rights that it needs")]
    Refused(String),
    /// The API server cannot be reached, or has an internal problem.
    #[error("{0}")]
    Away(String),
}

impl Failure {
    fn outcome(&self) -> Outcome {
        match self {
            Self::Exists | Self::Gone => Outcome::Gone,
            Self::Invalid(_) | Self::Refused(_) => Outcome::Refused,
            Self::Unknown(_) | Self::Unfit(_) | Self::Away(_) => Outcome::Failed,
        }
    }
}

/// A change of an object on the API server, by the content type of the patch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patch {
    /// JSON merge patch (RFC 7396).
    Merge,
    /// Kubernetes' own, which knows by what the elements of a list are identified.
    Strategic,
}

impl Patch {
    const fn content_type(self) -> &'static str {
        match self {
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
        }
    }
}

/// The answer to a request that failed (`metav1.Status`).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    reason: String,
    message: String,
    details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    causes: Vec<Cause>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cause {
    reason: String,
}

pub(crate) struct ApiServer {
    access: Access,
    client: Option<Client>,
    /// When the token and the certificates were read; `None` if the next request must read them.
    read_at: Option<Instant>,
    /// Why the certificates could not be used when they were last read.
    trouble: Option<String>,
    rest: Rest,
    stats: Arc<KubernetesStats>,
}

impl ApiServer {
    /// `rest`: what all who ask this API server share.
    pub(crate) fn new(access: Access, rest: Rest, stats: Arc<KubernetesStats>) -> Self {
        Self { access, client: None, read_at: None, trouble: None, rest, stats }
    }

    pub(crate) fn url(&self) -> String {
        self.access.url().to_string()
    }

    /// Whether the API server did not ask to be left alone for now.
    pub(crate) fn may_be_asked(&self) -> bool {
        self.rest.is_over()
    }

    /// Creates an object in the collection of this path.
    pub(crate) async fn create<A: DeserializeOwned>(
        &mut self,
        path: &str,
        object: &Value,
    ) -> Result<A, Failure> {
        let request = self.change(Method::POST, path, "application/json", object);
        self.ask(Resource::Event, request).await
    }

    /// Patches the object at this path, which may be a subresource.
    pub(crate) async fn patch<A: DeserializeOwned>(
        &mut self,
        resource: Resource,
        path: &str,
        kind: Patch,
        patch: &Value,
    ) -> Result<A, Failure> {
        let request = self.change(Method::PATCH, path, kind.content_type(), patch);
        self.ask(resource, request).await
    }

    /// Reads what is at this path.
    pub(crate) async fn get<A: DeserializeOwned>(&mut self, path: &str) -> Result<A, Failure> {
        let request = Request::get(format!("{}{path}", self.access.base())).body(Full::default());
        self.ask(Resource::Address, request).await
    }

    fn change(
        &self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: &Value,
    ) -> http::Result<Request<Full<Bytes>>> {
        Request::builder()
            .method(method)
            .uri(format!("{}{path}?fieldManager={MANAGER}", self.access.base()))
            .header(header::CONTENT_TYPE, content_type)
            .body(Full::from(body.to_string()))
    }

    async fn ask<A: DeserializeOwned>(
        &mut self,
        resource: Resource,
        request: http::Result<Request<Full<Bytes>>>,
    ) -> Result<A, Failure> {
        let answer = match request {
            Ok(request) => self.answer(request).await,
            Err(why) => Err(Failure::Invalid(why.to_string())),
        };
        let answer = answer.and_then(|body| object(&body));
        if let Err(Failure::Away(_) | Failure::Unknown(_) | Failure::Refused(_)) = answer {
            self.read_at = None;
        }
        self.stats.count(resource, answer.as_ref().err().map_or(Outcome::Done, Failure::outcome));
        answer
    }

    async fn answer(&mut self, mut request: Request<Full<Bytes>>) -> Result<Bytes, Failure> {
        let client = self.client().map_err(|why| Failure::Away(chain(&why)))?;
        let headers = request.headers_mut();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
        if let Some(token) = self.access.token() {
            headers.insert(header::AUTHORIZATION, token);
        }
        let asked = time::timeout(REQUEST_TIMEOUT, self.send(&client, request)).await;
        let mut answer = asked.unwrap_or_else(|_late| {
            Err(Failure::Away(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs())))
        });
        if let Err(Failure::Unknown(said)) = &mut answer {
            *said = self.explain(mem::take(said));
            if let Login::TokenFile(file) = &self.access.login {
                *said = file.explain(mem::take(said));
            }
        }
        answer
    }

    /// Returns the client. From time to time it reads the token and the certificates again, for a new
    /// connection. The old ones are used while the new ones cannot be read.
    fn client(&mut self) -> Result<Client, AccessError> {
        if let Some(client) = &self.client
            && self.read_at.is_some_and(|at| at.elapsed() < PERIOD)
        {
            return Ok(client.clone());
        }
        if let Login::TokenFile(file) = &mut self.access.login {
            file.read();
        }
        self.trouble = None;
        let client = match (self.access.client(), self.client.take()) {
            (Ok(new), _) => new,
            (Err(why), Some(old)) => {
                self.trouble = Some(chain(&why));
                old
            }
            (Err(why), None) => return Err(why),
        };
        self.read_at = Some(Instant::now());
        Ok(self.client.insert(client).clone())
    }

    /// Adds what is wrong with the certificates to the reason for a failure.
    fn explain(&self, said: String) -> String {
        match &self.trouble {
            Some(trouble) => format!("{said}; {trouble}"),
            None => said,
        }
    }

    async fn send(&mut self, client: &Client, request: Request<Full<Bytes>>) -> Result<Bytes, Failure> {
        let answer = client.request(request).await.map_err(|why| Failure::Away(self.explain(chain(&why))))?;
        let (head, body) = answer.into_parts();
        self.rest.heed(head.status, &head.headers);
        let body = Limited::new(body, MAX_ANSWER).collect().await;
        let body = body.map_err(|why| unread(head.status, &*why))?.to_bytes();
        if head.status.is_success() { Ok(body) } else { Err(failure(head.status, &body)) }
    }
}

fn object<A: DeserializeOwned>(body: &[u8]) -> Result<A, Failure> {
    serde_json::from_slice(body).map_err(|why| {
        let text = why.to_string();
        let text = escaped(cut(&text, MAX_MESSAGE)).into_owned();
        if why.is_data() {
            Failure::Unfit(text)
        } else {
            Failure::Away(format!("its answer is not JSON: {text}"))
        }
    })
}

/// Returns why the body of an answer was not read.
fn unread(status: StatusCode, why: &(dyn error::Error + 'static)) -> Failure {
    if !sources(why).any(|cause| cause.is::<LengthLimitError>()) {
        return Failure::Away(chain(why));
    }
    let text = format!("it has more than {MAX_ANSWER} bytes");
    if status.is_success() { Failure::Unfit(text) } else { Failure::Away(format!("status {status}: {text}")) }
}

fn failure(code: StatusCode, body: &[u8]) -> Failure {
    // What a proxy answers is no object.
    let status = serde_json::from_slice(body).unwrap_or_else(|_error| Status {
        message: String::from_utf8_lossy(body).trim().to_owned(),
        ..Status::default()
    });
    let message = escaped(cut(&status.message, MAX_MESSAGE)).into_owned();
    match code.as_u16() {
        409 if status.reason == "AlreadyExists" => Failure::Exists,
        // A load balancer that has no API server answers every request with a 404 of its own.
        404 if status.reason == NOT_FOUND => Failure::Gone,
        403 if is_ending(&status) => Failure::Gone,
        401 => Failure::Unknown(message),
        403 => Failure::Refused(message),
        400 | 405 | 413 | 415 | 422 => Failure::Invalid(message),
        code => Failure::Away(format!("status {code}: {message}")),
    }
}

/// Whether the namespace is being removed, so that nothing can be made in it.
fn is_ending(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// The text of an error and its sources, the outermost first. An error that repeats the text of its source
/// adds nothing.
fn chain(error: &(dyn error::Error + 'static)) -> String {
    let mut text = String::new();
    for error in sources(error) {
        let said = error.to_string();
        if !text.contains(&said) {
            text = if text.is_empty() { said } else { format!("{text}: {said}") };
        }
    }
    escaped(cut(&text, MAX_MESSAGE)).into_owned()
}

fn sources<'a>(
    error: &'a (dyn error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn error::Error + 'static)> {
    iter::successors(Some(error), |error| error.source())
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use serde_json::{Value, json};

    use super::{Failure, failure};

    /// What only a writer can do about it is said by the writer.
    #[test]
    fn a_failure_is_worded_for_reads_and_writes() {
        let all = [Failure::Gone, Failure::Invalid("why".to_owned())].map(|it| it.to_string());
        assert_eq!(all, ["there is no such object", "it does not accept the request: why"]);
    }

    fn of(code: u16, reason: &str, details: Value) -> Failure {
        let status = json!({ "code": code, "reason": reason, "message": "why", "details": details });
        failure(StatusCode::from_u16(code).expect("a code"), status.to_string().as_bytes())
    }

    #[test]
    fn an_answer_says_whether_to_try_again() {
        let why = || "why".to_owned();
        let ending = json!({ "causes": [{ "reason": "NamespaceTerminating", "message": "", "field": "" }] });
        for (code, reason, details, wanted) in [
            (409, "AlreadyExists", Value::Null, Failure::Exists),
            (409, "Conflict", Value::Null, Failure::Away("status 409: why".to_owned())),
            (404, "NotFound", Value::Null, Failure::Gone),
            (403, "Forbidden", ending, Failure::Gone),
            (403, "Forbidden", Value::Null, Failure::Refused(why())),
            (404, "", Value::Null, Failure::Away("status 404: why".to_owned())),
            (401, "Unauthorized", Value::Null, Failure::Unknown(why())),
            (422, "Invalid", Value::Null, Failure::Invalid(why())),
            (429, "TooManyRequests", Value::Null, Failure::Away("status 429: why".to_owned())),
            (500, "InternalError", Value::Null, Failure::Away("status 500: why".to_owned())),
        ] {
            assert_eq!(of(code, reason, details), wanted, "{code} {reason}");
        }
    }
    #[test]
    fn the_words_of_a_proxy_are_quoted() {
        let said = failure(StatusCode::BAD_GATEWAY, b"<b>no\nbackend</b>\n");
        assert_eq!(said, Failure::Away("status 502: <b>no\\nbackend</b>".to_owned()));
    }
}
