//! Requests to the API server, and what its answers mean.

pub(crate) mod link;
pub(crate) mod rest;
pub(crate) mod stats;
pub(crate) mod text;
pub(crate) mod token;

use std::{error, iter, sync::Arc, time::Duration};

use http::{Request, Response, header::ACCEPT};
use http_body_util::{LengthLimitError, Limited};
use kube::{
    Client, Config, Error,
    api::{Patch, PatchParams, PostParams},
    client::ClientBuilder,
    core::{Status, request},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::time;
use tower::util::MapResponseLayer;

use self::{
    rest::Rest,
    stats::{KubernetesStats, Outcome, Resource},
    text::cut,
    token::TokenFile,
};
use crate::words::escape::escaped;

/// How long a request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long each part of a request may take, for connections that nobody waits for any longer.
const STEP_TIMEOUT: Duration = Duration::from_secs(15);
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
    #[error("there is no such object; is the node's name (NODE_NAME) that of its object in the cluster?")]
    Gone,
    /// The API server will never accept this object.
    #[error("it does not take the object: {0}")]
    Invalid(String),
    /// The API server does not know this agent.
    #[error("it does not accept this agent's token or certificate: {0}")]
    Unknown(String),
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
            Self::Unknown(_) | Self::Away(_) => Outcome::Failed,
        }
    }
}

pub(crate) struct ApiServer {
    config: Config,
    token_file: Option<TokenFile>,
    /// `None` if a new one must be made.
    client: Option<Client>,
    rest: Rest,
    stats: Arc<KubernetesStats>,
}

impl ApiServer {
    pub(crate) fn new(
        mut config: Config,
        token_file: Option<TokenFile>,
        stats: Arc<KubernetesStats>,
    ) -> Self {
        config.connect_timeout = Some(STEP_TIMEOUT);
        config.read_timeout = Some(STEP_TIMEOUT);
        config.write_timeout = Some(STEP_TIMEOUT);
        config.reset_reader_on_write = true;
        // This module retries itself, because retries must be slow.
        config.default_retry = false;
        Self { config, token_file, client: None, rest: Rest::default(), stats }
    }

    pub(crate) fn url(&self) -> String {
        self.config.cluster_url.to_string()
    }

    /// Whether the API server did not ask to be left alone for now.
    pub(crate) fn may_be_asked(&self) -> bool {
        self.rest.is_over()
    }

    /// Creates an object in the collection of this path.
    pub(crate) async fn create<A: DeserializeOwned>(
        &mut self,
        path: &str,
        object: &impl Serialize,
    ) -> Result<A, Failure> {
        let body = serde_json::to_vec(object).map_err(|why| Failure::Invalid(why.to_string()))?;
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        self.ask(Resource::Event, request::Request::new(path).create(&params, body)).await
    }

    /// Patches the object of this name, or a subresource of it.
    pub(crate) async fn patch<A: DeserializeOwned>(
        &mut self,
        path: &str,
        name: &str,
        part: Option<&str>,
        patch: &Patch<Value>,
    ) -> Result<A, Failure> {
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let request = request::Request::new(path);
        match part {
            Some(part) => {
                let request = request.patch_subresource(part, name, &params, patch);
                self.ask(Resource::Condition, request).await
            }
            None => self.ask(Resource::Event, request.patch(name, &params, patch)).await,
        }
    }

    /// Reads what is at this path.
    pub(crate) async fn get<A: DeserializeOwned>(&mut self, path: &str) -> Result<A, Failure> {
        let request = Request::get(path).header(ACCEPT, "application/json").body(Vec::new());
        self.ask(Resource::Address, request.map_err(request::Error::BuildRequest)).await
    }

    async fn ask<A: DeserializeOwned>(
        &mut self,
        resource: Resource,
        request: Result<Request<Vec<u8>>, request::Error>,
    ) -> Result<A, Failure> {
        let answer = self
            .answer(request)
            .await
            .and_then(|text| serde_json::from_str(&text).map_err(|why| failure(&Error::SerdeError(why))));
        if let Err(Failure::Away(_) | Failure::Unknown(_) | Failure::Refused(_)) = answer {
            // The next request reads the certificates and the token again, on a new connection.
            self.client = None;
        }
        self.stats.count(resource, answer.as_ref().err().map_or(Outcome::Done, Failure::outcome));
        answer
    }

    async fn answer(&mut self, request: Result<Request<Vec<u8>>, request::Error>) -> Result<String, Failure> {
        let request = request.map_err(|why| Failure::Invalid(why.to_string()))?;
        // The token may have been replaced. A new client also reads the certificates again.
        let is_old = self.token_file.as_ref().is_some_and(TokenFile::is_due);
        let client = match &self.client {
            Some(client) if !is_old => client.clone(),
            Some(_) | None => self.connect()?,
        };
        let asked = time::timeout(REQUEST_TIMEOUT, client.request_text(request)).await;
        match asked {
            Ok(answer) => answer.map_err(|error| match (failure(&error), &self.token_file) {
                (Failure::Unknown(said), Some(file)) => Failure::Unknown(file.explain(said)),
                (failure, _) => failure,
            }),
            Err(_late) => Err(Failure::Away(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()))),
        }
    }

    fn connect(&mut self) -> Result<Client, Failure> {
        if let Some(file) = &mut self.token_file {
            // While the file cannot be read, the last token may still be valid.
            if let Ok(token) = file.read() {
                self.config.auth_info.token = Some(token);
            }
        }
        let builder = ClientBuilder::try_from(self.config.clone()).map_err(|error| failure(&error))?;
        let rest = self.rest.clone();
        let bounded = MapResponseLayer::new(move |answer: Response<_>| {
            rest.heed(&answer);
            answer.map(|body| Limited::new(body, MAX_ANSWER))
        });
        let client = builder.with_layer(&bounded).build();
        Ok(self.client.insert(client).clone())
    }
}

fn failure(error: &Error) -> Failure {
    let status = match error {
        Error::Api(status) => status,
        Error::SerdeError(why) => {
            let why = why.to_string();
            let why = escaped(cut(&why, MAX_MESSAGE));
            return Failure::Away(format!("its answer is not that of an API server: {why}"));
        }
        _ => return Failure::Away(chain(error)),
    };
    match status.code {
        409 if status.reason == "AlreadyExists" => Failure::Exists,
        // A load balancer that has no API server answers every request with a 404 of its own.
        404 if status.reason == NOT_FOUND => Failure::Gone,
        403 if is_ending(status) => Failure::Gone,
        401 => Failure::Unknown(message(status)),
        403 => Failure::Refused(message(status)),
        400 | 405 | 413 | 415 | 422 => Failure::Invalid(message(status)),
        code => Failure::Away(format!("status {code}: {}", message(status))),
    }
}

fn message(status: &Status) -> String {
    escaped(cut(&status.message, MAX_MESSAGE)).into_owned()
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
    if sources(error).any(|cause| cause.is::<LengthLimitError>()) {
        return format!("its answer has more than {MAX_ANSWER} bytes");
    }
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
    use super::{Failure, failure};
    use kube::core::Status;
    use serde_json::{Value, json};

    fn of(code: u16, reason: &str, details: Value) -> Failure {
        let status = json!({ "code": code, "reason": reason, "message": "why", "details": details });
        let status: Status = serde_json::from_value(status).expect("a status");
        failure(&kube::Error::Api(status.boxed()))
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
}
