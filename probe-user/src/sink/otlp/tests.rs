//! The agent's side, and a receiver that checks what it gets.

mod failing;
#[expect(unreachable_pub, reason = "the tests of the whole agent have it as a module of their library")]
#[path = "../../../../tests/src/receiver.rs"]
mod receiver;
pub(super) mod recorded;
mod sending;
mod traced;

use std::{fs, net::SocketAddr, path::PathBuf, time::Duration};

use self::receiver::{Protocol as Spoken, Receiver};
use super::{
    Otlp,
    credentials::{Credentials, Sources},
    exporter::Route,
    feed::ChangeSink,
    pace::Pace,
    resource,
    signal::Signal,
    target::{Protocol, Target},
};
use crate::{engine::Settings, model::time::Timestamp, recording::Header};

/// The agent's pace, a hundred times as fast.
fn quick() -> Pace {
    let usual = Pace::default();
    let quick = |span: Duration| span / 100;
    Pace {
        gather: quick(usual.gather),
        deadline: Duration::from_secs(2),
        first_wait: quick(usual.first_wait),
        longest_wait: quick(usual.longest_wait),
        ..usual
    }
}

fn protocol(spoken: Spoken) -> Protocol {
    match spoken {
        Spoken::Grpc => Protocol::Grpc,
        Spoken::Http => Protocol::Http,
    }
}

fn target(scheme: &str, address: &str, spoken: Spoken) -> Target {
    let url = format!("{scheme}://{address}").parse().expect("a URL");
    Target::new(url, Some(protocol(spoken))).expect("a receiver")
}

fn file(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "src/sink/serve/tls", name].iter().collect()
}

/// Sources that trust the test receiver's certificate, which `ca.pem` signed.
fn trusting() -> Sources {
    Sources { ca: Some(file("ca.pem")), ..Sources::default() }
}

fn route(target: Target, sources: &Sources, pace: Pace) -> Route {
    let credentials = Credentials::load(&target, sources).expect("good files");
    let header = Header {
        made_by: "0".to_owned(),
        node: "node-1".to_owned(),
        boot_id: "b".to_owned(),
        kernel: "6".to_owned(),
        boot_wall_ns: 0,
        settings: Settings::default(),
    };
    Route { target, credentials, resource: resource::of(&header, None, &[]).into(), pace }
}

fn start(route: Route) -> (Otlp, ChangeSink) {
    Otlp::start_at(route, &Signal::ALL, Timestamp::ZERO).expect("a thread")
}

fn to(receiver: &Receiver, spoken: Spoken) -> Target {
    target("http", &receiver.address().to_string(), spoken)
}

/// An address at which nothing listens.
fn nowhere() -> SocketAddr {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    socket.local_addr().expect("an address")
}

/// A file with these headers.
fn headers(dir: &tempfile::TempDir, text: &str) -> Sources {
    let path = dir.path().join("headers");
    fs::write(&path, text).expect("a file");
    Sources { header_file: Some(path), ..Sources::default() }
}
