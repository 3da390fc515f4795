//! The listeners of `run`, and the start of its server.

use std::{
    fs, io, mem,
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, anyhow};
use clap::Args;

use crate::{
    agent::{served::Served, stats::StatsCollector},
    bounded_read,
    cli::{
        args::{SOCKET, SOCKET_VARIABLE},
        say,
    },
    config::{Config, Listen},
    confine::{Confinement, role::Role},
    recording::{Header, history::History},
    session::Session,
    sink::{
        metrics::{Metrics, label::PodLabel},
        net::loop_queue,
        render::doctor::Report,
        serve::{
            Listeners, Server,
            app_state::ServerConfig,
            guard::{Guard, Token},
            listen::{self, ListenError, Socket},
            reload::Reload,
            ring::Ring,
            shut::{Shut, ShutPort, ShutSocket},
            tls::{self, Paths, Tls},
        },
        verdict::Judge,
    },
    source::node::clock,
};

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// The address of metrics, the API and the page over HTTP; "none" for no address [default:
    /// 127.0.0.1:9477]
    #[arg(long, value_name = "ADDRESS:PORT", env = "SANDPROBE_LISTEN", value_parser = listen)]
    listen: Option<Listen>,

    /// The Unix socket for other commands on this node; "none" for no socket [default:
    /// /run/sandprobe/sandprobe.sock]
    #[arg(long, value_name = "PATH", env = SOCKET_VARIABLE)]
    socket: Option<PathBuf>,

    /// The certificate for TLS, a PEM file: the server's own, then the intermediate ones
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,

    /// The private key of that certificate, a PEM file
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,

    /// The certificate authority of clients: a client with its certificate needs no token
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,

    /// A file with the token that clients must send (Authorization: Bearer TOKEN); /healthz and /readyz need
    /// none
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Serve beyond this machine even without TLS or without authentication
    #[arg(long)]
    insecure_listen: bool,

    /// Labels of pods in metrics, separated by commas: namespace, pod, workload (derived from the pod's name)
    #[arg(long, value_name = "LABELS", env = "SANDPROBE_METRIC_LABELS", value_delimiter = ',', value_parser = PodLabel::parse)]
    metric_labels: Vec<PodLabel>,

    /// Have the kernel measure the runs and run time of eBPF programs; costs tens of nanoseconds for each run
    /// of any program
    #[arg(long)]
    pub(super) bpf_stats: bool,
}

fn listen(text: &str) -> Result<Listen, String> {
    text.parse()
}

/// The default address.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9477);

impl ServeArgs {
    /// Opens the listeners. An address that was given and cannot be used is an error. A default one is
    /// skipped, or opened later.
    pub(super) fn open(&self, config: &Config) -> anyhow::Result<(Listeners, Metrics)> {
        let tls = self.tls(config)?;
        let token_file = pick(&self.token_file, &config.token_file);
        let token = token_file.map(token).transpose()?;
        let by_certificate = tls.is_some() && pick(&self.tls_client_ca, &config.tls_client_ca).is_some();
        let is_guarded = token.is_some() || by_certificate;
        let listen = self.listen.or(config.listen);
        let is_local = match listen {
            Some(Listen::At(address)) => address.ip().is_loopback(),
            Some(Listen::Nowhere) | None => true,
        };
        let is_insecure = self.insecure_listen || config.insecure_listen.unwrap_or(false);
        let is_protected = tls.is_some() && is_guarded;
        if !(is_local || is_insecure || is_protected) {
            return Err(anyhow!(
                "listening beyond this machine needs --tls-cert and --tls-key, and --token-file or --tls-client-ca; or \
                 --insecure-listen"
            ));
        }
        let mut shut = Shut::default();
        let network = match listen {
            Some(Listen::Nowhere) => None,
            Some(Listen::At(address)) => Some(listen::address(address)?),
            None => or_later(listen::address(LISTEN), || ShutPort::new(LISTEN), &mut shut.port),
        };
        let socket = match pick(&self.socket, &config.socket) {
            Some(path) if path.as_os_str() == "none" => None,
            Some(path) => Some(Socket::bind(path)?),
            None => {
                let path = Path::new(SOCKET);
                or_later(Socket::bind(path), || ShutSocket::new(path), &mut shut.socket)
            }
        };
        let guard = Guard { own_names_only: is_local && !is_guarded, token, by_certificate };
        let metrics = Metrics::new(&self.labels(config)?);
        let token = token_file.map(Path::to_owned).zip(guard.token.clone());
        let reload = Reload::new(tls.clone(), token);
        let tls = tls.map(|(_, tls)| tls);
        Ok((Listeners { network, tls, socket, shut, guard, reload }, metrics))
    }

    fn labels(&self, config: &Config) -> anyhow::Result<Vec<PodLabel>> {
        if !self.metric_labels.is_empty() {
            return Ok(self.metric_labels.clone());
        }
        let labels = config.metric_labels.iter().map(|label| {
            PodLabel::parse(label).map_err(|why| anyhow!("configuration: metric_labels: {why}"))
        });
        labels.collect()
    }

    fn tls(&self, config: &Config) -> anyhow::Result<Option<(Paths, Tls)>> {
        let certificate = pick(&self.tls_cert, &config.tls_cert);
        let key = pick(&self.tls_key, &config.tls_key);
        let client_authority = pick(&self.tls_client_ca, &config.tls_client_ca);
        match (certificate, key) {
            (Some(certificate), Some(key)) => {
                let [certificate, key] = [certificate, key].map(Path::to_owned);
                let paths =
                    Paths { certificate, key, client_authority: client_authority.map(Path::to_owned) };
                let tls = Tls::new(tls::load(paths.files())?);
                Ok(Some((paths, tls)))
            }
            (None, None) if client_authority.is_none() => Ok(None),
            _ => Err(anyhow!("TLS needs both --tls-cert and --tls-key")),
        }
    }
}

/// Returns the flag's path, or else the configuration file's.
fn pick<'a>(typed: &'a Option<PathBuf>, configured: &'a Option<PathBuf>) -> Option<&'a Path> {
    typed.as_deref().or(configured.as_deref())
}

fn token(path: &Path) -> anyhow::Result<Token> {
    let text = bounded_read::read_text(path)
        .with_context(|| format!("cannot read the token in {}", path.display()))?;
    let mode = fs::metadata(path).map_or(0, |found| found.permissions().mode());
    if mode & 0o007 != 0 {
        say(&format!("{} can be read by everybody: chmod 600 it", path.display()));
    }
    Token::new(&text).map_err(|why| anyhow!("{}: {why}", path.display()))
}

/// Returns what was opened. If another process has it, prepares to open it later.
fn or_later<T, S>(
    opened: Result<T, ListenError>,
    prepare: impl FnOnce() -> io::Result<S>,
    shut: &mut Option<S>,
) -> Option<T> {
    let error = match opened {
        Ok(opened) => return Some(opened),
        Err(error) => error,
    };
    if error.is_taken()
        && let Ok(prepared) = prepare()
    {
        say(&format!("{error}; going on without, and trying again each minute"));
        *shut = Some(prepared);
    } else {
        say(&format!("{error}; going on without"));
    }
    None
}

/// Returns the line with the URL for a browser; empty if there is none.
pub(super) fn said(doors: &Listeners) -> String {
    let address = doors.network.as_ref().and_then(|network| network.local_addr().ok());
    let scheme = if doors.tls.is_some() { "https" } else { "http" };
    address.map_or_else(String::new, |address| format!("page, metrics and API: {scheme}://{address}/\n"))
}

/// Starts the server, whose clients receive every change from now on; the metrics receive them already. Also
/// returns the way to ask the agent's loop, and what gives the verdict on the node.
pub(super) fn start(
    (mut doors, metrics): (Listeners, Metrics),
    session: &mut Session,
    header: &Header,
    past: History,
    report: Report,
    mut figures: StatsCollector,
    confinement: &Confinement,
) -> anyhow::Result<(Served, loop_queue::Client, Arc<Judge>)> {
    let ring = Arc::new(Ring::behind(session.last_seq()));
    session.add_sink(Box::new(Arc::clone(&ring)));
    figures.count(Arc::clone(&ring));
    let config = ServerConfig {
        header: header.clone(),
        since: clock::now(),
        report,
        past,
        ring,
        metrics: metrics.clone(),
        state_writes: figures.state_writes(),
        stream_trouble: figures.stream_trouble(),
    };
    if !confinement.removes(Role::Server) {
        doors.socket.iter_mut().for_each(Socket::leave);
        // It could not rename a file either.
        doors.shut.socket = None;
    }
    // The files may be readable only with the rights of the thread that reads the node's files, and not with
    // the server's.
    let reload = mem::take(&mut doors.reload);
    confinement.start(Role::Files, || reload.start())?.context("cannot start a thread")?;
    let (client, requests) = loop_queue::queue();
    let started = confinement.start(Role::Server, || Server::start(doors, config, &client))?;
    let (server, judge) = started.context("cannot start the server")?;
    Ok((Served::new(server, requests, figures, metrics), client, judge))
}

#[cfg(test)]
mod tests {
    use std::{fs, io, path::Path};

    use clap::Parser as _;

    use super::{Config, Listeners, ServeArgs};

    #[derive(clap::Parser)]
    struct Typed {
        #[command(flatten)]
        serve: ServeArgs,
    }

    fn open(dir: &Path, arguments: &str, config: &str) -> anyhow::Result<Listeners> {
        let socket = dir.join("agent.sock").display().to_string();
        let typed = ["x", "--socket", &socket].into_iter().chain(arguments.split_whitespace());
        let file = dir.join("config.toml");
        fs::write(&file, config).expect("a file");
        Typed::try_parse_from(typed)?.serve.open(&Config::read(Some(&file))?).map(|(doors, _)| doors)
    }

    #[test]
    fn beyond_the_machine_it_is_protected_or_said_not_to_be() {
        let dir = tempfile::tempdir().expect("a folder");
        let token = dir.path().join("token");
        fs::write(&token, "0123456789abcdef\n").expect("a file");
        let token = format!("--token-file {}", token.display());
        let why = |arguments: &str, config: &str| match open(dir.path(), arguments, config) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
        for (arguments, config) in [
            ("--listen 0.0.0.0:0", ""),
            (&*format!("--listen 0.0.0.0:0 {token}"), ""),
            ("", "listen = '[::]:0'"),
        ] {
            assert!(why(arguments, config).contains("needs --tls-cert"), "{arguments:?} {config:?}");
        }
        assert_eq!(why("--listen 0.0.0.0:0 --insecure-listen", ""), "");
        assert_eq!(why("", "listen = '[::]:0'\ninsecure_listen = true"), "");
        assert!(why("--tls-cert x --listen none", "").contains("both --tls-cert and --tls-key"));
        assert!(why("--tls-client-ca x --listen none", "").contains("both --tls-cert and --tls-key"));
        assert!(why("--token-file /nowhere --listen none", "").contains("cannot read the token in /nowhere"));
        assert!(why("--listen here", "").contains("is not ADDRESS:PORT"));
        assert!(why("--listen none --metric-labels namespace,node", "").contains("no label of a pod"));
        assert!(why("--listen none", "metric_labels = ['node']").contains("no label of a pod"));
    }

    #[test]
    fn only_an_unprotected_agent_asks_for_its_own_names() {
        let dir = tempfile::tempdir().expect("a folder");
        let token = dir.path().join("token");
        fs::write(&token, "0123456789abcdef").expect("a file");
        let guard = |arguments: &str| open(dir.path(), arguments, "").expect("free").guard;
        assert!(guard("--listen 127.0.0.1:0").own_names_only);
        assert!(!guard(&format!("--listen 127.0.0.1:0 --token-file {}", token.display())).own_names_only);
        assert!(!guard("--listen 0.0.0.0:0 --insecure-listen").own_names_only);
    }

    #[test]
    fn what_was_asked_for_and_is_taken_is_an_error() {
        let dir = tempfile::tempdir().expect("a folder");
        let first = open(dir.path(), "--listen 127.0.0.1:0", "").expect("free");
        let address = first.network.as_ref().expect("one").local_addr().expect("an address");
        let taken = |arguments: &str| open(dir.path(), arguments, "").err().expect("taken").to_string();
        assert!(
            taken("--listen none").contains("another sandprobe answers on"),
            "{}",
            taken("--listen none")
        );
        let busy = taken(&format!("--listen {address}"));
        let why = io::Error::from_raw_os_error(libc::EADDRINUSE);
        assert!(busy.contains(&format!("cannot listen on {address}: {why}")), "{busy}");
    }
}
