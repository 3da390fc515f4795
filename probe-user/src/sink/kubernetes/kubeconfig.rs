//! Reads a kubeconfig: the format of kubectl's own configuration (`k8s.io/client-go/tools/clientcmd/api/v1`),
//! which may be YAML or JSON.

use std::{
    collections::BTreeMap,
    io,
    path::{self, Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::Uri;
use serde::{Deserialize, de::IgnoredAny};

use super::{
    access::{Access, AccessError, Login},
    token::{TokenError, TokenFile, bearer},
};
use crate::{bounded_read, sink::net::pem::Source};

#[derive(Debug, thiserror::Error)]
pub(crate) enum KubeconfigError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it is no kubeconfig: {0}")]
    Shape(#[from] serde_yaml_ng::Error),
    #[error("it has no current-context")]
    NoContext,
    #[error("it has no {kind} {name:?}")]
    Missing { kind: &'static str, name: String },
    #[error("its server {0:?} is no http:// or https:// address")]
    Server(String),
    #[error("its {0} is not base64")]
    Base64(&'static str),
    #[error("it has a client certificate without its key, or a key without its certificate")]
    HalfIdentity,
    #[error(
        "its user logs in by {0:?}, and a confined agent can only send a token or a client certificate: give one of \
         these"
    )]
    Login(String),
    #[error(
        "its cluster has insecure-skip-tls-verify, and the token could go to anybody: give its certificate-authority"
    )]
    Insecure,
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Access(#[from] AccessError),
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig {
    current_context: Option<String>,
    // kubectl writes an empty list as null.
    contexts: Option<Vec<Named<OfContext>>>,
    clusters: Option<Vec<Named<OfCluster>>>,
    users: Option<Vec<Named<OfUser>>>,
}

/// An entry of a list. Its second field has the name of the list's kind.
#[derive(Deserialize)]
struct Named<T> {
    name: String,
    #[serde(alias = "context", alias = "cluster", alias = "user")]
    value: T,
}

#[derive(Deserialize)]
struct OfContext {
    cluster: String,
    #[serde(default)]
    user: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct OfCluster {
    server: String,
    tls_server_name: Option<String>,
    #[serde(default)]
    insecure_skip_tls_verify: bool,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct OfUser {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    /// Other ways to log in.
    #[serde(flatten)]
    others: BTreeMap<String, IgnoredAny>,
}

/// Returns the access of the file's current context. Paths in the file are relative to its folder.
pub(crate) fn access(file: &Path) -> Result<Access, KubeconfigError> {
    // A thread may have a working folder of its own.
    let file = path::absolute(file)?;
    let Kubeconfig { current_context, contexts, clusters, users } =
        serde_yaml_ng::from_str(&bounded_read::read_text(&file)?)?;
    let context = find("context", contexts, current_context.ok_or(KubeconfigError::NoContext)?)?;
    let cluster = find("cluster", clusters, context.cluster)?;
    // kubectl also logs in as nobody without a user.
    let user = if context.user.is_empty() { OfUser::default() } else { find("user", users, context.user)? };
    if let Some(other) = user.others.into_keys().find(|key| key != "extensions") {
        return Err(KubeconfigError::Login(other));
    }
    if cluster.insecure_skip_tls_verify {
        return Err(KubeconfigError::Insecure);
    }
    let server = cluster.server.parse::<Uri>().ok();
    let url = server.filter(|it| matches!(it.scheme_str(), Some("http" | "https")));
    let authority = source(
        &file,
        "certificate-authority-data",
        cluster.certificate_authority_data,
        cluster.certificate_authority,
    )?;
    let certificate =
        source(&file, "client-certificate-data", user.client_certificate_data, user.client_certificate)?;
    let key = source(&file, "client-key-data", user.client_key_data, user.client_key)?;
    Ok(Access {
        url: url.ok_or(KubeconfigError::Server(cluster.server))?,
        authority,
        server_name: cluster.tls_server_name,
        identity: match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => return Err(KubeconfigError::HalfIdentity),
        },
        login: match (user.token, user.token_file) {
            // kubectl also prefers it to the file.
            (Some(token), _) => Login::Token(bearer(&token, "the kubeconfig")?),
            (None, Some(path)) => Login::TokenFile(TokenFile::open(beside(&file, path))?),
            (None, None) => Login::Nothing,
        },
    })
}

fn find<T>(kind: &'static str, all: Option<Vec<Named<T>>>, name: String) -> Result<T, KubeconfigError> {
    let found = all.into_iter().flatten().find(|it| it.name == name);
    found.map(|it| it.value).ok_or(KubeconfigError::Missing { kind, name })
}

/// Returns where PEM text is: in the kubeconfig itself, else in a file.
fn source(
    file: &Path,
    field: &'static str,
    data: Option<String>,
    path: Option<PathBuf>,
) -> Result<Option<Source>, KubeconfigError> {
    let Some(data) = data else { return Ok(path.map(|path| Source::File(beside(file, path)))) };
    let text = STANDARD.decode(data.trim()).map_err(|_error| KubeconfigError::Base64(field))?;
    Ok(Some(Source::Inline { file: file.to_owned(), text }))
}

/// Returns the path of a file that is named in another one.
fn beside(file: &Path, named: PathBuf) -> PathBuf {
    file.parent().map(|folder| folder.join(&named)).unwrap_or(named)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Access, Login, Source, access};

    /// Returns the access of a kubeconfig with this cluster and user, or the error.
    fn read(cluster: &str, user: &str) -> Result<Access, String> {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: here\npreferences: {{}}\n\
             contexts:\n- name: there\n  context: {{cluster: b, user: none}}\n\
             - name: here\n  context: {{cluster: a, user: u, namespace: default}}\n\
             clusters:\n- name: a\n  cluster: {{{cluster}}}\nusers:\n- name: u\n  user: {{{user}}}\n"
        );
        fs::write(&path, text).expect("a file");
        fs::write(place.path().join("token"), "abc\n").expect("a file");
        access(&path).map_err(|why| why.to_string())
    }

    #[test]
    fn paths_are_relative_to_the_file_and_inline_data_goes_first() {
        let cluster = "server: 'https://a:6443/k8s', certificate-authority: ca.crt, tls-server-name: api";
        let found = read(cluster, "tokenFile: token, extensions: []").expect("an access");
        assert_eq!(found.url, "https://a:6443/k8s");
        assert_eq!(found.server_name.as_deref(), Some("api"));
        let files = found.files();
        let names: Vec<_> = files.iter().filter_map(|it| it.file_name()?.to_str()).collect();
        assert_eq!(names, ["ca.crt", "token"]);
        assert!(files.iter().all(|it| it.is_absolute()), "{files:?}");
        assert!(matches!(found.login, Login::TokenFile(_)));

        let cluster = "server: 'https://a', certificate-authority: ca.crt, certificate-authority-data: YWJj";
        let found = read(cluster, "token: abc, tokenFile: none").expect("an access");
        assert!(matches!(found.authority, Some(Source::Inline { text, .. }) if text == b"abc"));
        assert!(matches!(found.login, Login::Token(it) if it == "Bearer abc" && it.is_sensitive()));
        assert!(matches!(read("server: 'http://a'", "").expect("an access").login, Login::Nothing));
    }

    #[test]
    fn what_the_agent_cannot_do_is_said() {
        let server = "server: 'https://a'";
        for (cluster, user, said) in [
            (server, "exec: {command: x}", "its user logs in by \"exec\""),
            (server, "username: a, password: b", "its user logs in by \"password\""),
            (server, "token: a, as: admin", "its user logs in by \"as\""),
            (server, "token: ' '", "the token in the kubeconfig is empty"),
            (server, "client-key: a", "it has a client certificate without its key"),
            (server, "client-key-data: '*'", "its client-key-data is not base64"),
            ("server: 'ftp://a'", "", "its server \"ftp://a\" is no http://"),
            ("server: 'a'", "", "its server \"a\" is no http://"),
            ("server: 'https://a', insecure-skip-tls-verify: true", "", "its cluster has insecure-skip-tls-"),
            ("sever: 'https://a'", "", "it is no kubeconfig: "),
        ] {
            let error = read(cluster, user).err().unwrap_or_default();
            assert!(error.starts_with(said) && error.lines().count() == 1, "{cluster} {user}: {error}");
        }
    }
}
