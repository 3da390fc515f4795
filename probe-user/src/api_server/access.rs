//! Where the API server is, how its certificate is checked, and how this agent logs in: by the service
//! account of its pod, or by a kubeconfig.

use std::{
    env,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderValue, Uri,
    uri::{Authority, Scheme},
};
use http_body_util::Full;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName};

use super::token::{TokenError, TokenFile};
use crate::endpoint::{
    authorities::{AuthorityError, authorities, authorities_in},
    pem::{PemSource, Unreadable},
    url,
};

/// The folder of a pod's service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The variables with the address of the API server, which the kubelet sets in each container.
const HOST: &str = "KUBERNETES_SERVICE_HOST";
const PORT: &str = "KUBERNETES_SERVICE_PORT";
/// How long connecting may take, over all addresses of a family.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) type Client = HttpClient<HttpsConnector<HttpConnector>, Full<Bytes>>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum AccessError {
    #[error("this is not a pod of a cluster")]
    NoPod,
    #[error("{HOST} and {PORT} are not an address")]
    NoAddress,
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error("TLS with these certificates does not work")]
    Unusable(#[from] rustls::Error),
    #[error("{0} has no valid port")]
    Port(Uri),
    #[error(
        "{0} is not encrypted, and the token would be readable on the network: give the https:// address of the \
         API server in the kubeconfig"
    )]
    Readable(Uri),
}

/// How the API server is reached. It has secrets, so it has no `Debug`.
#[derive(Clone)]
pub(crate) struct Access {
    pub(crate) url: Uri,
    /// `None`: the system's authorities.
    pub(crate) authority: Option<PemSource>,
    /// The name that the server's certificate must have, if it is not the one in the URL.
    pub(crate) server_name: Option<ServerName<'static>>,
    /// The agent's own certificate and its key.
    pub(crate) identity: Option<(PemSource, PemSource)>,
    pub(crate) login: Login,
}

/// What the agent sends to log in.
#[derive(Clone)]
pub(crate) enum Login {
    /// Nothing: a certificate is enough, or `kubectl proxy` logs in.
    Nothing,
    Token(HeaderValue),
    TokenFile(TokenFile),
}

impl Access {
    pub(crate) fn new(url: Uri) -> Self {
        Self { url, authority: None, server_name: None, identity: None, login: Login::Nothing }
    }

    /// Returns the access of a pod's service account.
    pub(crate) fn of_pod() -> Result<Self, AccessError> {
        let (Ok(host), Ok(port)) = (env::var(HOST), env::var(PORT)) else { return Err(AccessError::NoPod) };
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let url = format!("https://{host}:{port}/").parse().map_err(|_invalid| AccessError::NoAddress)?;
        let folder = Path::new(SERVICE_ACCOUNT);
        Ok(Self {
            authority: Some(PemSource::File(folder.join("ca.crt"))),
            login: Login::TokenFile(TokenFile::open(folder.join("token"))?),
            ..Self::new(url)
        })
    }

    pub(crate) fn url(&self) -> &Uri {
        &self.url
    }

    /// Checks all that can be checked without the API server. Returns the server's port.
    pub(crate) fn check(&self) -> Result<u16, AccessError> {
        let is_encrypted = self.url.scheme() == Some(&Scheme::HTTPS);
        let is_here = self.url.host().is_some_and(url::is_loopback);
        // kubectl leaves the token out in that case, but without it this agent would be nobody.
        if !matches!(self.login, Login::Nothing) && !is_encrypted && !is_here {
            return Err(AccessError::Readable(self.url.clone()));
        }
        self.client()?;
        let usual = if is_encrypted { 443 } else { 80 };
        let port = self.url.authority().and_then(|authority: &Authority| url::port(authority, usual));
        port.ok_or_else(|| AccessError::Port(self.url.clone()))
    }

    /// Returns the URL before the paths of the API.
    pub(crate) fn base(&self) -> String {
        let scheme = self.url.scheme_str().unwrap_or_default();
        let authority = self.url.authority().map(Authority::as_str).unwrap_or_default();
        format!("{scheme}://{authority}{}", self.url.path().trim_end_matches('/'))
    }

    /// Returns the header with the token, as it was last read.
    pub(crate) fn token(&self) -> Option<HeaderValue> {
        match &self.login {
            Login::Nothing => None,
            Login::Token(header) => Some(header.clone()),
            Login::TokenFile(file) => Some(file.header().clone()),
        }
    }

    /// Returns the files that are read again while the agent runs.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let own = self.identity.iter().flat_map(|(certificate, key)| [certificate, key]);
        let pem = own.chain(&self.authority).filter_map(PemSource::file);
        let token = match &self.login {
            Login::TokenFile(file) => Some(file.path()),
            Login::Nothing | Login::Token(_) => None,
        };
        pem.chain(token).map(Path::to_owned).collect()
    }

    /// Whether only the system's certificate authorities can check the server.
    pub(crate) fn needs_system_authorities(&self) -> bool {
        self.authority.is_none()
    }

    /// Reads the certificates, and makes a client with them.
    pub(crate) fn client(&self) -> Result<Client, AccessError> {
        let mut http = HttpConnector::new();
        http.set_connect_timeout(Some(CONNECT_TIMEOUT));
        http.enforce_http(false);
        http.set_nodelay(true);
        let mut https = HttpsConnectorBuilder::new().with_tls_config(self.tls()?).https_or_http();
        if let Some(name) = &self.server_name {
            https = https.with_server_name_resolver(FixedServerNameResolver::new(name.clone()));
        }
        Ok(HttpClient::builder(TokioExecutor::new()).build(https.enable_http1().wrap_connector(http)))
    }

    fn tls(&self) -> Result<ClientConfig, AccessError> {
        let roots = match &self.authority {
            Some(source) => authorities_in(source)?,
            None if self.url.scheme() == Some(&Scheme::HTTPS) => authorities(None, "certificate-authority:")?,
            None => RootCertStore::empty(),
        };
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        Ok(match &self.identity {
            Some((certificate, key)) => {
                let chain = certificate.certificates("a client certificate")?;
                config.with_client_auth_cert(chain, key.private_key()?)?
            }
            None => config.with_no_client_auth(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use http::HeaderValue;

    use super::{Access, Login, PemSource};

    fn pem(name: &str) -> PemSource {
        PemSource::File([env!("CARGO_MANIFEST_DIR"), "src/sink/serve/tls", name].iter().collect::<PathBuf>())
    }

    #[test]
    fn the_port_is_the_named_one_or_the_scheme_s() {
        for (url, wanted) in [
            ("https://a", Some(443)),
            ("http://a", Some(80)),
            ("https://a:6443", Some(6443)),
            ("http://a:65536", None),
        ] {
            let access =
                Access { authority: Some(pem("ca.pem")), ..Access::new(url.parse().expect("a URL")) };
            assert_eq!(access.check().ok(), wanted, "{url}");
        }
    }

    #[test]
    fn a_secret_is_not_sent_where_others_can_read_it() {
        let token = || Login::Token(HeaderValue::from_static("Bearer abc"));
        for (url, login, is_fine) in [
            ("https://api.example:6443", token(), true),
            ("http://127.0.0.1:8001", token(), true),
            ("http://[::1]:8001", token(), true),
            ("http://localhost", token(), true),
            ("http://api.example:8080", Login::Nothing, true),
            ("http://api.example:8080", token(), false),
            ("http://10.0.0.1", token(), false),
        ] {
            let url = url.parse().expect("a URL");
            let access = Access { login, authority: Some(pem("ca.pem")), ..Access::new(url) };
            let checked = access.check().map_err(|why| why.to_string());
            assert_eq!(checked.is_ok(), is_fine, "{}: {checked:?}", access.url);
        }
    }

    #[test]
    fn certificates_that_do_not_serve_are_named_at_the_start() {
        for (certificate, key, said) in [
            ("client.pem", "client.key", None),
            ("client.pem", "other.key", Some("TLS with these certificates does not work")),
            ("client.key", "client.key", Some("cannot read a client certificate in ")),
            ("client.pem", "none", Some("cannot read a private key in ")),
        ] {
            let access = Access {
                authority: Some(pem("ca.pem")),
                identity: Some((pem(certificate), pem(key))),
                ..Access::new("https://a".parse().expect("a URL"))
            };
            let found = access.check().err().map(|why| why.to_string());
            let is_it = match (&found, said) {
                (Some(found), Some(said)) => found.starts_with(said),
                (found, said) => found.is_none() && said.is_none(),
            };
            assert!(is_it, "{certificate} {key}: {found:?}");
        }
    }
}
