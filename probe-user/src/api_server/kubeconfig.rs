//! Reads a kubeconfig: the format of kubectl's own configuration (`k8s.io/client-go/tools/clientcmd/api/v1`),
//! which may be YAML or JSON.

use std::{
    collections::BTreeMap,
    io,
    path::{self, Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{Uri, uri::Scheme};
use rustls::pki_types::ServerName;
use serde::{Deserialize, de::DeserializeOwned};
use serde_yaml_ng::Value;

use super::{
    access::{Access, Login},
    token::{TokenError, TokenFile, bearer},
};
use crate::{bounded_read, endpoint::pem::PemSource};

/// Ways to log in that a confined agent does not have.
const OTHER_LOGINS: [&str; 8] =
    ["exec", "auth-provider", "username", "password", "as", "as-uid", "as-groups", "as-user-extra"];

/// Why a kubeconfig cannot be used. No text of the file is repeated but names, because it may be a secret.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KubeconfigError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it is not a kubeconfig{0}")]
    Shape(String),
    #[error("it has no current-context")]
    NoContext,
    #[error("it has no {kind} {name:?}")]
    Missing { kind: &'static str, name: String },
    #[error("its {kind} {name:?} lacks a field, or has one of the wrong type")]
    Entry { kind: &'static str, name: String },
    #[error("its server is not an http:// or https:// address without user and query")]
    Server,
    #[error("its tls-server-name is not a name or an address")]
    ServerName,
    #[error("its {0} is not base64")]
    Base64(&'static str),
    #[error("it has a client certificate without its key, or a key without its certificate")]
    HalfIdentity,
    #[error("its user has {0:?}, but a confined agent can only send a token or a client certificate")]
    Login(String),
    #[error(
        "its cluster has insecure-skip-tls-verify: give its certificate-authority, so that the server is verified"
    )]
    Insecure,
    #[error("its cluster has a proxy-url, but the agent uses no proxy: give a kubeconfig without it")]
    Proxy,
    #[error(transparent)]
    Token(#[from] TokenError),
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig {
    current_context: Option<String>,
    // kubectl writes an empty list as null.
    contexts: Option<Vec<Named>>,
    clusters: Option<Vec<Named>>,
    users: Option<Vec<Named>>,
}

/// An entry of a list, whose second field has the name of the list's kind. Only the entries of the current
/// context are looked at.
#[derive(Deserialize)]
struct Named {
    name: String,
    #[serde(alias = "context", alias = "cluster", alias = "user", default)]
    value: Value,
}

#[derive(Deserialize)]
struct OfContext {
    cluster: String,
    user: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct OfCluster {
    server: String,
    tls_server_name: Option<String>,
    insecure_skip_tls_verify: Option<bool>,
    certificate_authority: Option<String>,
    certificate_authority_data: Option<String>,
    proxy_url: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct OfUser {
    client_certificate: Option<String>,
    client_certificate_data: Option<String>,
    client_key: Option<String>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<String>,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

/// Returns the access of the file's current context. Paths in the file are relative to its folder.
pub(crate) fn access(file: &Path) -> Result<Access, KubeconfigError> {
    // The thread that reads the named files again has another working folder.
    let file = path::absolute(file)?;
    let text = bounded_read::read_text(&file)?;
    let Kubeconfig { current_context, contexts, clusters, users } =
        serde_yaml_ng::from_str(&text).map_err(|why| KubeconfigError::Shape(place(&why)))?;
    let context = filled(current_context).ok_or(KubeconfigError::NoContext)?;
    let context: OfContext = find("context", contexts, context)?;
    let cluster: OfCluster = find("cluster", clusters, context.cluster)?;
    // kubectl also logs in as nobody without a user.
    let user = match filled(context.user) {
        Some(name) => find("user", users, name)?,
        None => OfUser::default(),
    };
    if let Some((other, _)) = user.others.iter().find(|(key, value)| is_other_login(key, value)) {
        return Err(KubeconfigError::Login(other.clone()));
    }
    let url = server(&cluster.server).ok_or(KubeconfigError::Server)?;
    if url.scheme() == Some(&Scheme::HTTPS) && cluster.insecure_skip_tls_verify == Some(true) {
        return Err(KubeconfigError::Insecure);
    }
    if filled(cluster.proxy_url).is_some() {
        return Err(KubeconfigError::Proxy);
    }
    let server_name = match filled(cluster.tls_server_name) {
        Some(name) => Some(ServerName::try_from(name).map_err(|_invalid| KubeconfigError::ServerName)?),
        None => None,
    };
    let authority = source(
        &file,
        "certificate-authority-data",
        cluster.certificate_authority_data,
        cluster.certificate_authority,
    )?;
    let certificate =
        source(&file, "client-certificate-data", user.client_certificate_data, user.client_certificate)?;
    let key = source(&file, "client-key-data", user.client_key_data, user.client_key)?;
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => return Err(KubeconfigError::HalfIdentity),
    };
    let login = login(&file, filled(user.token), filled(user.token_file))?;
    Ok(Access { url, authority, server_name, identity, login })
}

/// Returns where in the file an error is.
fn place(why: &serde_yaml_ng::Error) -> String {
    match why.location() {
        Some(at) => format!(": see line {}, column {}", at.line(), at.column()),
        None => String::new(),
    }
}

fn find<T: DeserializeOwned>(
    kind: &'static str,
    all: Option<Vec<Named>>,
    name: String,
) -> Result<T, KubeconfigError> {
    let Some(found) = all.into_iter().flatten().find(|it| it.name == name) else {
        return Err(KubeconfigError::Missing { kind, name });
    };
    serde_yaml_ng::from_value(found.value).map_err(|_error| KubeconfigError::Entry { kind, name })
}

/// An empty string means the same as none, as for kubectl.
fn filled(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn is_other_login(key: &str, value: &Value) -> bool {
    let is_empty = match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Sequence(list) => list.is_empty(),
        Value::Mapping(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::Tagged(_) => false,
    };
    OTHER_LOGINS.contains(&key) && !is_empty
}

fn server(text: &str) -> Option<Uri> {
    let url: Uri = text.parse().ok()?;
    let is_http = matches!(url.scheme_str(), Some("http" | "https"));
    (is_http && url.query().is_none() && !url.authority()?.as_str().contains('@')).then_some(url)
}

/// As for kubectl, the file goes first, and the token is for a file that cannot be read.
fn login(file: &Path, token: Option<String>, token_file: Option<String>) -> Result<Login, KubeconfigError> {
    let unreadable = match token_file.map(|path| TokenFile::open(beside(file, &path))) {
        Some(Ok(file)) => return Ok(Login::TokenFile(file)),
        Some(Err(why)) => Some(why),
        None => None,
    };
    match (token, unreadable) {
        (Some(token), _) => Ok(Login::Token(bearer(&token, "the kubeconfig")?)),
        (None, Some(why)) => Err(why.into()),
        (None, None) => Ok(Login::Nothing),
    }
}

/// Returns where PEM text is: in the kubeconfig itself, else in a file.
fn source(
    file: &Path,
    field: &'static str,
    data: Option<String>,
    path: Option<String>,
) -> Result<Option<PemSource>, KubeconfigError> {
    let Some(mut data) = filled(data) else {
        return Ok(filled(path).map(|path| PemSource::File(beside(file, &path))));
    };
    data.retain(|letter| !letter.is_ascii_whitespace());
    let text = STANDARD.decode(data).map_err(|_error| KubeconfigError::Base64(field))?;
    Ok(Some(PemSource::Inline { file: file.to_owned(), text }))
}

/// Returns the path of a file that is named in another one.
fn beside(file: &Path, named: &str) -> PathBuf {
    file.parent().unwrap_or(file).join(named)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Access, PemSource, access};

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
        let cluster = "server: 'https://a:6443/k8s/', certificate-authority: ca.crt, tls-server-name: api";
        let found = read(cluster, "tokenFile: token, extensions: [], exec: null").expect("an access");
        assert_eq!(found.base(), "https://a:6443/k8s");
        assert_eq!(found.server_name.as_ref().map(|it| it.to_str()).as_deref(), Some("api"));
        let files = found.files();
        let names: Vec<_> = files.iter().filter_map(|it| it.file_name()?.to_str()).collect();
        assert_eq!(names, ["ca.crt", "token"]);
        assert!(files.iter().all(|it| it.is_absolute()), "{files:?}");

        let cluster =
            "server: 'https://a', certificate-authority: ca.crt, certificate-authority-data: 'YW Jj'";
        let found = read(cluster, "").expect("an access");
        assert!(matches!(found.authority, Some(PemSource::Inline { text, .. }) if text == b"abc"));
        assert!(found.identity.is_none() && found.server_name.is_none());
    }

    /// kubectl also prefers the file, while it can be read, and takes what is empty for absent.
    #[test]
    fn the_token_is_that_of_the_file() {
        for (user, wanted) in [
            ("token: xyz, tokenFile: token", Some("Bearer abc")),
            ("token: xyz, tokenFile: none", Some("Bearer xyz")),
            ("token: xyz, tokenFile: ''", Some("Bearer xyz")),
            ("token: '', password: '', as-groups: []", None),
        ] {
            let found = read("server: 'http://a'", user).expect("an access").token();
            assert_eq!(found.as_ref().and_then(|it| it.to_str().ok()), wanted, "{user}");
            assert!(found.is_none_or(|it| it.is_sensitive()), "{user}");
        }
    }

    #[test]
    fn what_the_agent_cannot_use_is_said() {
        let server = "server: 'https://a'";
        for (cluster, user, said) in [
            (server, "exec: {command: x}", "its user has \"exec\", but"),
            (server, "token: a, password: b", "its user has \"password\", but"),
            (server, "token: a, as: admin", "its user has \"as\", but"),
            (server, "token: ' '", "the token in the kubeconfig is empty"),
            (server, "token: [secret]", "its user \"u\" lacks a field, or has one of the wrong type"),
            (server, "client-key: a", "it has a client certificate without its key"),
            (server, "client-key-data: '*'", "its client-key-data is not base64"),
            ("server: 'ftp://a'", "", "its server is not an http://"),
            ("server: 'https://me:secret@a'", "", "its server is not an http://"),
            ("server: 'https://a?b=c'", "", "its server is not an http://"),
            ("server: 'https://a', tls-server-name: 'a:1'", "", "its tls-server-name is not a name"),
            ("server: 'https://a', insecure-skip-tls-verify: true", "", "its cluster has insecure-skip-tls-"),
            (
                "server: 'https://a', proxy-url: 'http://u:secret@p:3128'",
                "",
                "its cluster has a proxy-url, but",
            ),
            ("sever: 'https://a'", "", "its cluster \"a\" lacks a field, or has one of the wrong type"),
        ] {
            let error = read(cluster, user).err().unwrap_or_default();
            assert!(error.starts_with(said) && !error.contains("secret"), "{cluster} {user}: {error}");
        }
    }

    #[test]
    fn a_file_that_is_not_a_kubeconfig_is_not_repeated() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("file");
        for text in
            ["secret", "users: secret", "secret: {", "users: [{name: u, user: {token: secret}}, secret]"]
        {
            fs::write(&path, text).expect("a file");
            let error = access(&path).err().map(|why| format!("{:#}", anyhow::Error::new(why)));
            let error = error.expect("it is not a kubeconfig");
            assert!(error.starts_with("it is not a kubeconfig") && !error.contains("secret"), "{error}");
        }
        fs::write(&path, "current-context: ''\nclusters: null\n").expect("a file");
        assert_eq!(
            access(&path).err().map(|why| why.to_string()).as_deref(),
            Some("it has no current-context")
        );
    }
}
