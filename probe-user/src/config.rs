//! The configuration file (TOML), which is read once. An unknown key is an error.
//!
//! Each setting has a default, and some have a flag. A flag wins over the environment, the environment over
//! the file, and the file over the default.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    num::NonZero,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use serde::{Deserialize, Deserializer, de};

use crate::{
    bounded_read,
    duration::{duration, positive_duration},
    engine::Limits,
    model::recovery::{Recovered, Rules},
    size::count,
    source::backfill::store::Declared,
};

/// How many boots the history keeps by default.
const BOOTS: usize = 50;

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Directories in which an IPAM plugin keeps a file for each address in use, named by the address and
    /// with the container's id in it: `[[ipam_store]]` with `dir` and, if it belongs to one network,
    /// `network`.
    #[serde(rename = "ipam_store")]
    pub(crate) ipam_stores: Vec<IpamStore>,
    /// How long an address must have had no sandbox, with runtime and kubelet up, before it counts as leaked.
    #[serde(deserialize_with = "span")]
    pub(crate) leak_grace: Option<Duration>,
    /// How long a teardown may take before it counts as stuck.
    #[serde(deserialize_with = "positive_span")]
    pub(crate) stuck_after: Option<Duration>,
    /// How long a CNI call may take before it counts as slow.
    #[serde(deserialize_with = "positive_span")]
    pub(crate) cni_slow: Option<Duration>,
    /// How many CNI plugins that run at once count as a queue.
    #[serde(deserialize_with = "number")]
    pub(crate) cni_queue: Option<NonZero<u32>>,
    /// The recovery after a restart is complete if no other pod comes for this long.
    #[serde(deserialize_with = "positive_span")]
    pub(crate) boot_quiet: Option<Duration>,
    /// When a pod counts as back after a restart: `started` or `listening`.
    #[serde(deserialize_with = "rule")]
    pub(crate) boot_recovered: Option<Recovered>,
    /// Namespaces whose pods are not service pods.
    pub(crate) boot_system: Option<Vec<String>>,
    /// How long the recovery after a restart may take.
    #[serde(deserialize_with = "positive_span")]
    pub(crate) boot_target: Option<Duration>,
    /// How many boots the history keeps.
    #[serde(deserialize_with = "number")]
    pub(crate) boot_keep: Option<NonZero<u32>>,
    /// Labels of this boot, by which boots are put into groups.
    #[serde(deserialize_with = "labels")]
    pub(crate) boot_labels: BTreeMap<String, String>,
    /// The address of metrics, the API and the page.
    pub(crate) listen: Option<Listen>,
    /// The Unix socket for other commands; `none` for no socket.
    pub(crate) socket: Option<PathBuf>,
    /// The certificate and key for TLS: PEM files.
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    /// A client with a certificate of this authority needs no token.
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// The file with the token that clients must send.
    pub(crate) token_file: Option<PathBuf>,
    /// Whether to serve beyond this machine without TLS or authentication.
    pub(crate) insecure_listen: Option<bool>,
    /// Labels of pods that metrics have: `namespace`, `pod`, `workload`.
    pub(crate) metric_labels: Vec<String>,
    /// The URL of the receiver of traces and log records; `none` for nowhere.
    pub(crate) otlp: Option<String>,
    /// Its protocol: `grpc` or `http/protobuf`.
    pub(crate) otlp_protocol: Option<String>,
    /// What is sent: `traces`, `logs`.
    pub(crate) otlp_signals: Vec<String>,
    /// Its certificate authorities, a PEM file.
    pub(crate) otlp_ca: Option<PathBuf>,
    /// The file with headers for it.
    pub(crate) otlp_header_file: Option<PathBuf>,
}

/// An address to listen on, or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum Listen {
    Nowhere,
    At(SocketAddr),
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::Nowhere);
        }
        let address = text.parse().map(Self::At);
        address.map_err(|_none| {
            format!("{text:?} is not ADDRESS:PORT, such as 127.0.0.1:9477 or [::]:9477, and not \"none\"")
        })
    }
}

impl TryFrom<String> for Listen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct IpamStore {
    pub(crate) dir: PathBuf,
    pub(crate) network: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("cannot read the configuration {path}: {why}; correct --config or make it readable", path = path.display())]
    Unreadable { path: PathBuf, why: io::Error },
    #[error("configuration {path}{at}: {why}; see docs/configuration.md", path = path.display())]
    Wrong { path: PathBuf, at: String, why: String },
    #[error("IPAM store {dir:?} is not an absolute path: give it as it is seen on the node, from / on")]
    Relative { dir: PathBuf },
}

impl Config {
    /// Reads the file; without one, all settings have their defaults.
    pub(crate) fn read(path: Option<&Path>) -> Result<Self, ConfigError> {
        let Some(path) = path else { return Ok(Self::default()) };
        let bytes =
            bounded_read::read(path).map_err(|why| ConfigError::Unreadable { path: path.to_owned(), why })?;
        Self::parse(&bytes).map_err(|(at, why)| ConfigError::Wrong { path: path.to_owned(), at, why })
    }

    /// Returns the address stores, checked.
    pub(crate) fn stores(&self) -> Result<Vec<Declared>, ConfigError> {
        let stores = self.ipam_stores.iter().map(|IpamStore { dir, network }| {
            Declared::new(dir, network.clone()).ok_or_else(|| ConfigError::Relative { dir: dir.clone() })
        });
        stores.collect()
    }

    /// Returns the limits of the engine's rules, where they are given.
    #[must_use]
    pub(crate) fn limits(&self) -> Limits {
        let default = Limits::default();
        Limits {
            leak_grace: self.leak_grace.unwrap_or(default.leak_grace),
            stuck_after: self.stuck_after.unwrap_or(default.stuck_after),
            cni_slow: self.cni_slow.unwrap_or(default.cni_slow),
            cni_queue: self.cni_queue.map_or(default.cni_queue, NonZero::get),
        }
    }

    /// Returns the rules for the recovery after a restart.
    #[must_use]
    pub(crate) fn boot(&self) -> Rules {
        let default = Rules::default();
        Rules {
            quiet: self.boot_quiet.unwrap_or(default.quiet),
            system: self.boot_system.clone().unwrap_or(default.system),
            recovered: self.boot_recovered.unwrap_or(default.recovered),
            target: self.boot_target.unwrap_or(default.target),
        }
    }

    /// Returns how many boots the history keeps.
    #[must_use]
    pub(crate) fn boots(&self) -> usize {
        self.boot_keep.map_or(BOOTS, |keep| usize::try_from(keep.get()).unwrap_or(usize::MAX))
    }

    /// Parses the file. An error is the place and the reason.
    fn parse(bytes: &[u8]) -> Result<Self, (String, String)> {
        let text = str::from_utf8(bytes).map_err(|error| (String::new(), error.to_string()))?;
        toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.map(|before| before.matches('\n').count() + 1);
            let at = line.map(|line| format!(" line {line}")).unwrap_or_default();
            (at, error.message().replace('\n', " "))
        })
    }
}

impl IpamStore {
    /// Parses `DIR[:NETWORK]`.
    #[must_use]
    pub(crate) fn parse(text: &str) -> Self {
        let (dir, network) = match text.rsplit_once(':') {
            Some((dir, network)) if !network.is_empty() && !network.contains('/') => {
                (dir, Some(network.to_owned()))
            }
            _ => (text, None),
        };
        // One folder has one name: without `//`, `/./` and a slash at its end.
        Self { dir: Path::new(dir).components().collect(), network }
    }
}

fn span<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    duration(&String::deserialize(from)?).map(Some).map_err(de::Error::custom)
}

fn positive_span<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    positive_duration(&String::deserialize(from)?).map(Some).map_err(de::Error::custom)
}

fn number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<NonZero<u32>>, D::Error> {
    count(&i64::deserialize(from)?.to_string()).map(Some).map_err(de::Error::custom)
}

/// Parses `started` or `listening`.
pub(crate) fn recovered(text: &str) -> Result<Recovered, String> {
    match text {
        "started" => Ok(Recovered::Started),
        "listening" => Ok(Recovered::Listening),
        other => Err(format!("{other:?} is neither \"started\" nor \"listening\"")),
    }
}

fn rule<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Recovered>, D::Error> {
    recovered(&String::deserialize(from)?).map(Some).map_err(de::Error::custom)
}

/// The longest key, and value, of a label, as in Kubernetes.
const MAX_LABEL_BYTES: usize = 63;

/// Parses `KEY=VALUE`.
pub(crate) fn boot_label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not KEY=VALUE"))?;
    let is_plain = key.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
    if key.is_empty() || key.len() > MAX_LABEL_BYTES || !is_plain {
        return Err(format!(
            "{key:?} is not a valid key: use at most {MAX_LABEL_BYTES} letters, digits and \"-_./\""
        ));
    }
    if value.is_empty() || value.len() > MAX_LABEL_BYTES || value.contains(char::is_control) {
        return Err(format!(
            "{value:?} is not a valid value: use at most {MAX_LABEL_BYTES} bytes, without control characters"
        ));
    }
    Ok((key.to_owned(), value.to_owned()))
}

fn labels<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    let given: BTreeMap<String, String> = BTreeMap::deserialize(from)?;
    let each = given.into_iter().map(|(key, value)| boot_label(&format!("{key}={value}")));
    each.collect::<Result<_, _>>().map_err(de::Error::custom)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path, time::Duration};

    use super::{Config, IpamStore, Listen, Recovered, Rules, boot_label};

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(text.as_bytes()).map_err(|(at, why)| format!("{at}: {why}"))
    }

    #[test]
    fn everything_has_a_default_and_a_key() {
        assert_eq!(parse(""), Ok(Config::default()));
        let text = "leak_grace = '2m'\nstuck_after = '30s'\ncni_slow = '500ms'\ncni_queue = 7\nboot_quiet = '90s'\n\
            boot_recovered = 'listening'\nboot_system = ['a']\nboot_keep = 3\nboot_target = '30s'\nboot_labels = { edge = 'connected' }\n\
            listen = '[::1]:9000'\nsocket = 'none'\ntls_cert = '/c'\ntls_key = '/k'\ntls_client_ca = '/a'\n\
            token_file = '/t'\ninsecure_listen = true\nmetric_labels = ['namespace']\n\
            otlp = 'http://a'\notlp_protocol = 'grpc'\notlp_signals = ['logs']\notlp_ca = '/o'\notlp_header_file = '/h'\n\
            [[ipam_store]]\ndir = '/var/lib/x'\n[[ipam_store]]\ndir = '/y'\nnetwork = 'podnet'\n";
        let config = parse(text).expect("a configuration");
        assert_eq!(config.leak_grace, Some(Duration::from_secs(120)));
        assert_eq!(config.stuck_after, Some(Duration::from_secs(30)));
        assert_eq!(config.cni_slow, Some(Duration::from_millis(500)));
        assert_eq!(config.limits().cni_queue, 7);
        assert_eq!(config.listen, Some(Listen::At(([0, 0, 0, 0, 0, 0, 0, 1], 9000).into())));
        assert_eq!(config.metric_labels, ["namespace"]);
        assert_eq!(
            (config.otlp.as_deref(), &*config.otlp_signals),
            (Some("http://a"), &["logs".to_owned()][..])
        );
        assert_eq!(config.boot().quiet, Duration::from_secs(90));
        assert_eq!(config.boot().recovered, Recovered::Listening);
        assert_eq!(config.boot().target, Duration::from_secs(30));
        assert_eq!((config.boot().system, config.boots()), (vec!["a".to_owned()], 3));
        assert_eq!(config.boot_labels, [("edge".to_owned(), "connected".to_owned())].into());
        assert_eq!((Config::default().boot(), Config::default().boots()), (Rules::default(), 50));
        assert_eq!(config.limits().leak_grace, Duration::from_secs(120));
        let store = |text| IpamStore::parse(text);
        assert_eq!(config.ipam_stores, [store("/var/lib/x"), store("/y:podnet")]);
        assert_eq!(config.stores().expect("absolute paths").len(), 2);
    }

    /// The file that packages put at /etc/sandprobe: as it is, it changes nothing, and it has each setting
    /// with its default.
    #[test]
    fn the_packaged_file_has_every_setting_with_its_default() {
        const FILE: &str = include_str!("../../deploy/package/sandprobe.toml");
        assert_eq!(parse(FILE), Ok(Config::default()));
        // A comment has a space after its mark, a setting none.
        let settings =
            || FILE.lines().filter_map(|line| line.strip_prefix('#')).filter(|it| !it.starts_with(' '));
        let text: String = settings().map(|line| format!("{line}\n")).collect();
        let all = parse(&text).expect("settings");
        let keys: BTreeSet<&str> =
            settings().filter_map(|line| line.split_once(" = ")).map(|(key, _)| key).collect();
        let documented = include_str!("../../docs/configuration.md").lines().filter_map(|line| {
            let cell = line.strip_prefix("| `")?.split(" | ").next()?;
            Some(
                cell.split('`')
                    .map(|it| it.trim_matches(['[', ']']))
                    .filter(|it| !it.contains(',') && *it != " "),
            )
        });
        let documented: BTreeSet<&str> = documented.flatten().filter(|key| !key.is_empty()).collect();
        let told: BTreeSet<&str> = keys.iter().copied().chain(["ipam_store"]).collect();
        assert_eq!(told, documented);

        let default = Config::default();
        assert_eq!(all.limits(), default.limits());
        assert_eq!((all.boot(), all.boots()), (default.boot(), default.boots()));
        assert_eq!((all.insecure_listen, &all.metric_labels), (Some(false), &default.metric_labels));
    }

    #[test]
    fn a_mistake_is_one_line_that_says_where() {
        for (text, told) in [
            ("leak_grace = '2m'\nleek_grace = '2m'", " line 2: unknown field `leek_grace`"),
            ("leak_grace = 2", " line 1: invalid type: integer `2`"),
            ("\nleak_grace = '2'", " line 2: \"2\" is not a duration: give a whole number"),
            ("cni_queue = 0", " line 1: \"0\" is not a whole number from 1 to 1000000"),
            ("boot_keep = -1", " line 1: \"-1\" is not a whole number from 1"),
            ("stuck_after = '0s'", " line 1: \"0s\" is too short: give 1ms at least"),
            ("cni_slow = '0s'", " line 1: \"0s\" is too short"),
            ("boot_quiet = '0s'", " line 1: \"0s\" is too short"),
            ("boot_target = '9000h'", " line 1: \"9000h\" is too long: give 8760h at most"),
            ("boot_recovered = 'ready'", " line 1: \"ready\" is neither"),
            ("boot_labels = { 'a b' = 'c' }", " line 1: \"a b\" is not a valid key"),
            ("[boot_labels]\na = ''", " line 1: \"\" is not a valid value"),
            ("\nlisten = 'x:1'", " line 2: \"x:1\" is not ADDRESS:PORT"),
            ("[[ipam_store]]\nnetwork = 'x'", " line 1: missing field `dir`"),
            ("[[ipam_store]]\ndir = '/x'\nkind = 'y'", " line 3: unknown field `kind`"),
            ("leak_grace", " line 1: "),
        ] {
            let error = parse(text).expect_err("a mistake");
            assert!(error.starts_with(told) && !error.contains('\n'), "{text:?}: {error}");
        }
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("config.toml");
        let error = Config::read(Some(&path)).expect_err("no such file").to_string();
        assert!(error.contains("config.toml: No such file"), "{error}");
        fs::write(&path, "x = 1\n").expect("a file");
        let error = Config::read(Some(&path)).expect_err("a mistake").to_string();
        assert!(error.contains("config.toml line 1: unknown field `x`"), "{error}");
        fs::write(&path, vec![b'#'; (1 << 20) + 1]).expect("a file");
        assert!(Config::read(Some(&path)).is_err());
        let config = parse("[[ipam_store]]\ndir = 'x'").expect("a configuration");
        assert!(config.stores().is_err());
    }

    #[test]
    fn a_store_may_be_of_one_network() {
        let store = IpamStore::parse("/var/lib/x:podnet");
        assert_eq!((&*store.dir, store.network.as_deref()), (Path::new("/var/lib/x"), Some("podnet")));
        for whole in ["/var/lib/x", "/a:b/c", "/x:"] {
            let store = IpamStore::parse(whole);
            assert_eq!((&*store.dir, store.network), (Path::new(whole), None), "{whole}");
        }
    }

    #[test]
    fn a_label_has_a_key_and_a_value() {
        let label = |key: &str, value: &str| Ok((key.to_owned(), value.to_owned()));
        assert_eq!(boot_label("edge=connected"), label("edge", "connected"));
        assert_eq!(boot_label("example.org/a_b-c=d = \u{e9}"), label("example.org/a_b-c", "d = \u{e9}"));
        let long = "a".repeat(64);
        for bad in ["", "edge", "=x", "edge=", "a b=c", "a=b\nc", &format!("{long}=a"), &format!("a={long}")]
        {
            assert!(boot_label(bad).is_err(), "{bad}");
        }
    }
}
