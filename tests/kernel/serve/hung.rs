//! A file of the node that hangs, as those of a file server that is gone: the agent says so and goes on without it.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use tests::{clock, guard::hang::Hang, http, live::Shared, machine};

use super::{
    MEMORY_KB,
    client::{Agent, get},
};
use crate::container::Container;

/// So many pods' containers are made while it hangs: each has questions of its own.
const CONTAINERS: usize = 20;
/// A file hangs if it does for so long.
const HUNG: Duration = Duration::from_secs(10);

#[test]
#[expect(clippy::print_stdout, reason = "the figures are what it is run for")]
fn a_file_that_hangs_is_named_and_holds_up_nothing_else() -> Result<()> {
    let hierarchy = Shared::start()?.hierarchy().clone();
    let place = tempfile::tempdir()?;
    let store = place.path().join("store");
    fs::create_dir(&store)?;
    let file = store.join("192.0.2.7");
    fs::write(&file, "c1 eth0\n")?;
    let config = place.path().join("config.toml");
    fs::write(&config, format!("[[ipam_store]]\ndir = '{}'\nnetwork = 'hung'\n", store.display()))?;

    let hang = Hang::at(&file)?;
    let agent = Agent::alive(&["--config", config.to_str().context("the path is no text")?])?;
    clock::poll("a reader is there", machine::patience(), || Ok(hang.holds_somebody()?.then_some(())))?;
    // Whoever waits for the look at the node waits for longer and longer, until the reader is given up.
    let (begun, mut longest) = (Instant::now(), 0.0_f64);
    let path = file.display().to_string();
    let why = clock::poll("the file is named", machine::patience(), || {
        longest = longest.max(figure(agent.address, "sandprobe_oldest_question_age_seconds")?);
        Ok(Some(unready(agent.address)?).filter(|why| why.contains(&path)))
    })?;
    let named = begun.elapsed();
    ensure!(why.contains("has hung for") && why.contains("the disk or the file server"), "{why}");
    ensure!(longest >= HUNG.as_secs_f64() / 2.0, "the oldest question waited for {longest} s at most");
    hanging(agent.address, 1.0)?;

    // Hooks and questions go on.
    let made = r#"sandprobe_events_total{kind="cgroup.created"}"#;
    let before = figure(agent.address, made)?;
    let mut containers = Vec::new();
    for _ in 0..CONTAINERS {
        let container = Container::create(&hierarchy)?;
        containers.push((container.idle()?, container));
    }
    let answered = || -> Result<Option<()>> {
        let seen = figure(agent.address, made)? >= before + CONTAINERS as f64;
        let waiting = figure(agent.address, r#"sandprobe_queue_length{queue="questions"}"#)?;
        let oldest = figure(agent.address, "sandprobe_oldest_question_age_seconds")?;
        Ok((seen && waiting == 0.0 && oldest == 0.0).then_some(()))
    };
    clock::poll("all is answered", machine::patience(), answered)?;
    let why = unready(agent.address)?;
    ensure!(why.lines().count() == 1 && why.contains(&path), "what could be read was not: {why}");
    let asked = Instant::now();
    ensure!(get(agent.address, "/healthz")?.starts_with("ok"), "it is not alive");
    let took = asked.elapsed();
    let findings = get(agent.address, "/v1/findings")?;
    ensure!(findings.contains("blind_spot/file/"), "no blind spot: {findings}");

    drop(hang);
    clock::poll("it heals", machine::patience(), || Ok(get(agent.address, "/readyz").ok()))?;
    hanging(agent.address, 0.0)?;
    for (mut child, _container) in containers {
        child.kill()?;
        child.wait()?;
    }
    let status = fs::read_to_string(format!("/proc/{}/status", agent.id()))?;
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    let most: u64 = most.context("no VmHWM")?.parse()?;
    println!(
        "named after {named:?}, the oldest question waited {longest} s, /healthz took {took:?}, {most} kB"
    );
    ensure!(most < MEMORY_KB, "{most} kB");
    agent.end()
}

/// What is kept of boots is read before anybody is served.
#[test]
fn a_history_that_hangs_does_not_keep_it_from_starting() -> Result<()> {
    let _shared = Shared::start()?;
    let state = tempfile::tempdir()?;
    let boots = state.path().join("boots.jsonl");
    fs::write(&boots, "")?;
    let hang = Hang::at(&boots)?;
    let agent = Agent::with_state(state.path().to_str().context("the path is no text")?)?;
    ensure!(hang.holds_somebody()?, "nobody read it");
    ensure!(get(agent.address, "/healthz")?.starts_with("ok"), "it is not alive");
    drop(hang);
    let written = || Ok((fs::metadata(&boots)?.len() > 0).then_some(()));
    clock::poll("this boot is written down", machine::patience(), written)?;
    agent.end()
}

/// Waits until so many files hang by the metrics, which are made a moment after `/readyz` knows of it.
fn hanging(address: SocketAddr, files: f64) -> Result<()> {
    let counted = || Ok((figure(address, "sandprobe_node_files_hanging")? == files).then_some(()));
    clock::poll("the metrics count it", machine::patience(), counted)
}

/// Why it is not ready, a line for each reason; nothing if it is.
fn unready(address: SocketAddr) -> Result<String> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let answer = http::get(stream, "/readyz", &[])?;
    Ok(if answer.status == 200 { String::new() } else { answer.body })
}

/// The value of one series.
fn figure(address: SocketAddr, series: &str) -> Result<f64> {
    let text = get(address, "/metrics")?;
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.with_context(|| format!("no {series}"))?.parse().context("no number")
}
