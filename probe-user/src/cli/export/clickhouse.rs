//! Loads files into ClickHouse by its HTTP interface.

use std::{
    env, error::Error as _, ffi::OsString, fs::File as OpenFile, io::Read as _, path::PathBuf, sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail, ensure};
use bytes::Bytes;
use clap::Args;
use form_urlencoded::Serializer;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, uri::Scheme};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{ClientConfig, crypto::ring};
use tokio::{runtime, time::timeout};

use crate::{
    bounded_read,
    cli::say,
    endpoint::{
        authorities::authorities,
        url::{is_loopback, port},
    },
    sink::{
        escape::brief,
        fleet::{File, clickhouse},
    },
};

/// The longest time for a request: a file is loaded before the answer comes.
const TIMEOUT: Duration = Duration::from_secs(300);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer that is read, bytes.
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// The most characters of an answer that an error repeats.
const MAX_REPEATED_CHARS: usize = 500;
const USER_AGENT: &str = concat!("sandprobe/", env!("CARGO_PKG_VERSION"));
/// The variables of ClickHouse's own client.
const USER: &str = "CLICKHOUSE_USER";
const PASSWORD: &str = "CLICKHOUSE_PASSWORD";

#[derive(Debug, Args)]
pub(super) struct ClickHouseArgs {
    /// Load the tables into this ClickHouse by its HTTP interface, as http://HOST:8123/?database=fleet; what
    /// follows "?" are settings of its own
    #[arg(long, value_name = "URL")]
    clickhouse: Option<String>,

    /// The user of ClickHouse; its password comes from --clickhouse-password-file or CLICKHOUSE_PASSWORD
    #[arg(long, value_name = "NAME", env = USER)]
    clickhouse_user: Option<String>,

    /// A file whose first line is the password
    #[arg(long, value_name = "FILE", requires = "clickhouse")]
    clickhouse_password_file: Option<PathBuf>,

    /// The certificate authorities of an https:// ClickHouse, a PEM file; else those of the system
    #[arg(long, value_name = "FILE", requires = "clickhouse")]
    clickhouse_ca: Option<PathBuf>,

    /// Do not create the tables: they exist (deploy/fleet/clickhouse/tables.sql), and the user may not create
    /// any
    #[arg(long, requires = "clickhouse")]
    clickhouse_no_create: bool,
}

/// Parameters that ClickHouse takes from the URL but that are not settings: secrets, and the statement.
const NOT_IN_URL: [&str; 4] = ["user", "password", "quota_key", "query"];

/// Parses where ClickHouse is. The text may have a password, so no error repeats it.
fn server(text: &str) -> anyhow::Result<Uri> {
    let (_, query) = text.split_once('?').unwrap_or_default();
    let is_refused = form_urlencoded::parse(query.as_bytes())
        .any(|(name, _)| NOT_IN_URL.iter().any(|it| name.eq_ignore_ascii_case(it)));
    if text.contains('@') || is_refused {
        bail!(
            "no user, password, quota_key or query in the URL: see --clickhouse-user and --clickhouse-password-file"
        );
    }
    let uri = text.parse::<Uri>().ok().filter(|uri| {
        uri.scheme().is_some_and(|it| [Scheme::HTTP, Scheme::HTTPS].contains(it))
            && uri.host().is_some_and(|host| !host.is_empty())
            && uri.authority().is_some_and(|authority| port(authority, 443).is_some())
    });
    uri.context("not a URL of ClickHouse, such as http://127.0.0.1:8123 or https://db.example:8443")
}

/// A client of one server.
pub(super) struct ClickHouse {
    server: Uri,
    headers: HeaderMap,
    makes_tables: bool,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    runtime: runtime::Runtime,
}

impl ClickHouseArgs {
    /// `None`: nothing is loaded.
    pub(super) fn open(&self) -> anyhow::Result<Option<ClickHouse>> {
        let Some(text) = &self.clickhouse else { return Ok(None) };
        let server = server(text).map_err(|why| anyhow!("--clickhouse: {why}"))?;
        let is_encrypted = server.scheme() == Some(&Scheme::HTTPS);
        let headers = self.headers()?;
        let is_local = server.host().is_some_and(is_loopback);
        if headers.contains_key("x-clickhouse-key") && !is_encrypted && !is_local {
            say("the password for ClickHouse is readable on the network: take https://");
        }
        let mut http = HttpConnector::new();
        http.set_connect_timeout(Some(CONNECT_TIMEOUT));
        http.enforce_http(false);
        let authorities = if is_encrypted {
            authorities(self.clickhouse_ca.as_deref(), "--clickhouse-ca")?
        } else {
            rustls::RootCertStore::empty()
        };
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(authorities)
            .with_no_client_auth();
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        // A connection that waited for the next file may be closed by then.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(https);
        Ok(Some(ClickHouse { server, headers, makes_tables: !self.clickhouse_no_create, client, runtime }))
    }

    /// Returns the credentials, which the list of processes does not show.
    fn headers(&self) -> anyhow::Result<HeaderMap> {
        let mut headers = HeaderMap::new();
        if let Some(user) = &self.clickhouse_user {
            headers.insert(HeaderName::from_static("x-clickhouse-user"), secret("user", user.as_bytes())?);
        }
        let password = match &self.clickhouse_password_file {
            Some(path) => {
                // It may be a pipe, such as <(pass show clickhouse).
                let mut bytes = Vec::new();
                let read = OpenFile::open(path)
                    .and_then(|it| it.take(bounded_read::MAX_BYTES).read_to_end(&mut bytes));
                read.with_context(|| format!("cannot read the password in {}", path.display()))?;
                let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
                let first = first.strip_suffix(b"\r").unwrap_or(first);
                ensure!(!first.is_empty(), "the password in {} is empty", path.display());
                Some(first.to_owned())
            }
            None => env::var_os(PASSWORD).map(OsString::into_encoded_bytes),
        };
        if let Some(password) = password.filter(|password| !password.is_empty()) {
            headers.insert(HeaderName::from_static("x-clickhouse-key"), secret("password", &password)?);
        }
        Ok(headers)
    }
}

fn secret(what: &str, value: &[u8]) -> anyhow::Result<HeaderValue> {
    let mut value = HeaderValue::from_bytes(value)
        .map_err(|_error| anyhow!("the {what} for ClickHouse has characters that no header has"))?;
    value.set_sensitive(true);
    Ok(value)
}

impl ClickHouse {
    /// Makes the tables that are not there.
    pub(super) fn make_tables(&mut self) -> anyhow::Result<()> {
        if !self.makes_tables {
            return Ok(());
        }
        clickhouse::tables().try_for_each(|statement| {
            self.request(&statement, Bytes::new())
                .with_context(|| format!("cannot make the tables in {}", self.said()))
        })
    }

    /// Loads a file. What was loaded before is replaced.
    pub(super) fn load(&mut self, name: &str, file: &File) -> anyhow::Result<()> {
        let loaded = self.request(&clickhouse::insert(file.table), file.bytes.clone());
        loaded.with_context(|| {
            let table = file.table.name;
            let date = file.date;
            format!("cannot load {table} of {date} ({name}) into {}; it can be exported again", self.said())
        })
    }

    fn said(&self) -> String {
        let scheme = self.server.scheme_str().unwrap_or_default();
        let authority = self.server.authority().map(ToString::to_string).unwrap_or_default();
        format!("{scheme}://{authority}")
    }

    /// Returns the URL with this statement among its parameters. The answer comes when the statement is done.
    fn address(&self, statement: &str) -> anyhow::Result<Uri> {
        let own = self.server.query().unwrap_or_default();
        let mut query = Serializer::new(own.to_owned());
        query.append_pair("wait_end_of_query", "1").append_pair("query", statement);
        let path = self.server.path();
        let uri = format!("{}{path}?{}", self.said(), query.finish());
        uri.parse().context("the URL of ClickHouse")
    }

    fn request(&self, statement: &str, body: Bytes) -> anyhow::Result<()> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(self.address(statement)?)
            .header(http::header::USER_AGENT, USER_AGENT)
            .body(Full::new(body))?;
        request.headers_mut().extend(self.headers.clone());
        let asked = async {
            let answer = self.client.request(request).await.map_err(|error| anyhow!(reason(&error)))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
            let body = body.map_err(|error| anyhow!("its answer cannot be read: {error}"))?.to_bytes();
            // An error after the status was sent shows only in this header.
            let is_done =
                head.status.is_success() && !head.headers.contains_key("x-clickhouse-exception-code");
            let text = String::from_utf8_lossy(&body);
            let said = text.lines().map(str::trim).find(|line| !line.is_empty());
            let said = said.map(|line| brief(line).chars().take(MAX_REPEATED_CHARS).collect::<String>());
            match said {
                None if is_done => Ok(()),
                None => bail!("it answers {}", head.status),
                // ClickHouse's answer to a statement that succeeded is empty.
                Some(said) if is_done => bail!("it answers \"{said}\", so it is not ClickHouse"),
                Some(said) => bail!("it answers {}: {said}", head.status.as_u16()),
            }
        };
        let answered = self.runtime.block_on(async { timeout(TIMEOUT, asked).await });
        answered.unwrap_or_else(|_elapsed| {
            Err(anyhow!("it has not answered within {} s; look at its log", TIMEOUT.as_secs()))
        })
    }
}

/// Returns an error with its causes; the last one says most.
fn reason(error: &hyper_util::client::legacy::Error) -> String {
    let what = if error.is_connect() { "it is not reached" } else { "it does not answer in HTTP" };
    let mut text = what.to_owned();
    let mut cause = error.source();
    while let Some(why) = cause {
        let why_text = why.to_string();
        if !text.contains(&why_text) {
            text = format!("{text}: {why_text}");
        }
        cause = why.source();
    }
    text
}
