//! The flags of the receiver of traces and log records.

use std::{env, path::PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;

use crate::{
    cli::say,
    config::Config,
    recording::Header,
    sink::otlp::{
        Export,
        credentials::{Credentials, Sources},
        header, resource,
        signal::Signal,
        target::{Protocol, Target, Url},
    },
    source::{host::HostRoot, node::machine_id},
};

/// Variables that are not flags: a list of processes would show the secrets of the first one.
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";

#[derive(Debug, Args)]
pub(super) struct OtlpArgs {
    /// Send starts, teardowns and boots as traces, and findings as log records, to this receiver of OTLP;
    /// "none" for nowhere
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_parser = receiver)]
    otlp: Option<Receiver>,

    /// The protocol of the receiver: grpc or http/protobuf [default: grpc on port 4317, else http/protobuf]
    // It is parsed only if there is a receiver: the variable may be meant for other programs, which support
    // more.
    #[arg(long, value_name = "PROTOCOL", env = "OTEL_EXPORTER_OTLP_PROTOCOL")]
    otlp_protocol: Option<String>,

    /// What to send, separated by commas: traces, logs [default: traces,logs]
    #[arg(long, value_name = "SIGNALS", env = "SANDPROBE_OTLP_SIGNALS", value_delimiter = ',', value_parser = Signal::parse)]
    otlp_signals: Vec<Signal>,

    /// The certificate authorities of an https:// receiver, a PEM file; else those of the system
    #[arg(long, value_name = "FILE", env = "OTEL_EXPORTER_OTLP_CERTIFICATE")]
    otlp_ca: Option<PathBuf>,

    /// A file with headers for the receiver, "name: value" in each line; also from OTEL_EXPORTER_OTLP_HEADERS
    #[arg(long, value_name = "FILE")]
    otlp_header_file: Option<PathBuf>,
}

/// A receiver, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Receiver {
    Nowhere,
    At(Url),
}

fn receiver(text: &str) -> Result<Receiver, String> {
    if text == "none" { Ok(Receiver::Nowhere) } else { text.parse().map(Receiver::At) }
}

/// A receiver whose files were read.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) export: Export,
    pub(super) sources: Sources,
}

impl OtlpArgs {
    /// `None`: nothing is sent.
    pub(super) fn open(
        &self,
        config: &Config,
        header: &Header,
        root: &HostRoot,
    ) -> anyhow::Result<Option<Opened>> {
        let configured = parse("otlp", config.otlp.as_deref(), receiver)?;
        let Some(Receiver::At(url)) = self.otlp.clone().or(configured) else { return Ok(None) };
        let target = Target::new(url, self.protocol(config)?).map_err(|why| anyhow!("--otlp: {why}"))?;
        let headers = variable(HEADERS, header::in_list)?;
        let sources = Sources {
            ca: self.otlp_ca.clone().or_else(|| config.otlp_ca.clone()),
            header_file: self.otlp_header_file.clone().or_else(|| config.otlp_header_file.clone()),
            headers,
        };
        let credentials = Credentials::load(&target, &sources).context("--otlp")?;
        if credentials.has_headers() && !target.has_tls() && !target.is_local() {
            say(&format!("the headers for {target} are readable on the network: take https://"));
        }
        let more = variable(ATTRIBUTES, header::pairs)?;
        let resource = resource::of(header, machine_id::read(root).as_deref(), &more);
        let signals = self.signals(config)?;
        let export = Export { target, credentials, signals, resource };
        Ok(Some(Opened { export, sources }))
    }

    fn protocol(&self, config: &Config) -> anyhow::Result<Option<Protocol>> {
        let flag = "--otlp-protocol or OTEL_EXPORTER_OTLP_PROTOCOL";
        match &self.otlp_protocol {
            Some(text) => text.parse().map(Some).map_err(|why| anyhow!("{flag}: {why}")),
            None => parse("otlp_protocol", config.otlp_protocol.as_deref(), str::parse),
        }
    }

    /// Returns each signal once.
    fn signals(&self, config: &Config) -> anyhow::Result<Vec<Signal>> {
        let chosen = match &self.otlp_signals[..] {
            [] => {
                let configured = config.otlp_signals.iter().map(|signal| {
                    Signal::parse(signal).map_err(|why| anyhow!("configuration: otlp_signals: {why}"))
                });
                configured.collect::<anyhow::Result<_>>()?
            }
            typed => typed.to_vec(),
        };
        let all = Signal::ALL.into_iter();
        Ok(if chosen.is_empty() { all.collect() } else { all.filter(|it| chosen.contains(it)).collect() })
    }
}

impl Opened {
    /// Returns the message with the receiver.
    pub(super) fn said(&self) -> String {
        let signals: Vec<&str> = self.export.signals.iter().map(|signal| signal.as_str()).collect();
        format!("{} go to {}\n", signals.join(" and "), self.export.target)
    }
}

fn parse<T>(
    key: &str,
    text: Option<&str>,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> anyhow::Result<Option<T>> {
    text.map(parse).transpose().map_err(|why| anyhow!("configuration: {key}: {why}"))
}

/// Returns the value of an environment variable; empty without one.
fn variable<T: Default>(name: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> anyhow::Result<T> {
    let Some(text) = env::var_os(name) else { return Ok(T::default()) };
    let text = text.to_str().ok_or_else(|| anyhow!("{name} is not UTF-8 text"))?;
    parse(text).map_err(|why| anyhow!("{name}: {why}"))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use clap::Parser as _;

    use super::{Config, Header, HostRoot, Opened, OtlpArgs, Signal};
    use crate::engine::Settings;

    #[derive(clap::Parser)]
    struct Typed {
        #[command(flatten)]
        otlp: OtlpArgs,
    }

    fn open(dir: &Path, arguments: &str, config: &str) -> anyhow::Result<Option<Opened>> {
        let file = dir.join("config.toml");
        fs::write(&file, config).expect("a file");
        let typed = Typed::try_parse_from(["x"].into_iter().chain(arguments.split_whitespace()))?;
        let header = Header {
            made_by: "0".to_owned(),
            node: "node".to_owned(),
            boot_id: "boot".to_owned(),
            kernel: "6".to_owned(),
            boot_wall_ns: 0,
            settings: Settings::default(),
        };
        typed.otlp.open(&Config::read(Some(&file))?, &header, &HostRoot::open(dir)?)
    }

    #[test]
    fn a_flag_wins_over_the_file() {
        let dir = tempfile::tempdir().expect("a folder");
        let said = |arguments: &str, config: &str| {
            open(dir.path(), arguments, config).expect("good").map(|it| it.said())
        };
        let file = "otlp = 'http://a:4317'\notlp_signals = ['traces']";
        assert_eq!(said("", ""), None);
        assert_eq!(said("", file).as_deref(), Some("traces go to http://a:4317 (grpc)\n"));
        assert_eq!(said("--otlp none", file), None);
        let both = "--otlp http://b:1 --otlp-protocol grpc --otlp-signals logs,traces";
        assert_eq!(said(both, file).as_deref(), Some("traces and logs go to http://b:1 (grpc)\n"));
        let twice = "--otlp http://b:1 --otlp-signals logs,logs";
        assert_eq!(said(twice, file).as_deref(), Some("logs go to http://b:1 (http/protobuf)\n"));
        let twice = "otlp = 'http://a:4317'\notlp_signals = ['traces', 'traces']";
        assert_eq!(said("", twice).as_deref(), Some("traces go to http://a:4317 (grpc)\n"));
        // As in a variable that is meant for other programs.
        assert_eq!(said("--otlp-protocol http/json", ""), None);
        let other = said("", "otlp = 'http://a:4317'\notlp_protocol = 'http/protobuf'");
        assert_eq!(other.as_deref(), Some("traces and logs go to http://a:4317 (http/protobuf)\n"));
    }

    #[test]
    fn the_node_is_the_resource() {
        let dir = tempfile::tempdir().expect("a folder");
        fs::create_dir(dir.path().join("etc")).expect("a folder");
        fs::write(dir.path().join("etc/machine-id"), "5d1cb95b000040008000000000000001\n").expect("a file");
        let opened = open(dir.path(), "--otlp http://a:1", "").expect("good").expect("a receiver");
        let all = &opened.export.resource.attributes;
        let text = |key: &str| {
            let value = all.iter().find(|it| it.key == key).and_then(|it| it.value.clone());
            format!("{:?}", value.expect(key).value.expect(key))
        };
        assert!(text("host.id").contains("\"5d1cb95b000040008000000000000001\""), "{}", text("host.id"));
        assert!(text("k8s.node.name").contains("\"node\"") && text("service.name").contains("\"sandprobe\""));
        assert!(all.is_sorted_by(|one, other| one.key < other.key), "{all:?}");
        assert_eq!(opened.export.signals, Signal::ALL);
    }

    #[test]
    fn a_mistake_is_one_line_that_says_where() {
        let dir = tempfile::tempdir().expect("a folder");
        let headers = dir.path().join("headers");
        fs::write(&headers, "authorization secret\n").expect("a file");
        let with_headers = format!("--otlp http://a --otlp-header-file {}", headers.display());
        for (arguments, config, told) in [
            ("--otlp a:1", "", "is no URL"),
            ("", "otlp = 'a:1'", "configuration: otlp: \"a:1\" is no URL"),
            ("--otlp http://a:4317/x", "", "--otlp: gRPC has no path"),
            ("--otlp http://a --otlp-protocol udp", "", "OTLP_PROTOCOL: \"udp\" is neither \"grpc\""),
            ("--otlp http://a", "otlp_protocol = 'udp'", "configuration: otlp_protocol: \"udp\""),
            ("--otlp http://a --otlp-signals metrics", "", "is neither \"traces\""),
            ("--otlp http://a", "otlp_signals = ['x']", "configuration: otlp_signals: \"x\""),
            ("--otlp https://a --otlp-ca /nowhere", "", "cannot read a certificate authority in /nowhere"),
            ("--otlp http://a --otlp-header-file /nowhere", "", "cannot read the headers in /nowhere"),
            (&with_headers, "", "line 1: it is not \"name: value\""),
        ] {
            let error = open(dir.path(), arguments, config).expect_err("a mistake");
            let error = format!("{error:#}");
            assert!(error.contains(told) && !error.contains("secret"), "{arguments:?} {config:?}: {error}");
        }
    }
}
