//! A file of the node hangs, like a file on a file server that is gone. The agent reports the file and works
//! on without it.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use tests::{clock, guard::hang::Hang, held, http, live::Shared, machine};

use super::{
    MEMORY_KB,
    client::{Agent, get},
};
use crate::container::Container;

/// The number of containers that are made while the file hangs. The agent asks questions about each.
const CONTAINERS: usize = 20;
/// A read hangs if it takes this long.
const HUNG: Duration = Duration::from_secs(10);

#[test]
#[expect(clippy::print_stdout, reason = "the figures are what it is run for")]
fn a_hanging_file_is_named_and_delays_nothing_else() -> Result<()> {
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
    clock::poll("a reader of the agent waits for the file", machine::patience(), || {
        Ok(hang.holds_a_process()?.then_some(()))
    })?;
    // The age of the oldest question grows until the agent gives up the reader.
    let (begun, mut longest) = (Instant::now(), 0.0_f64);
    let path = file.display().to_string();
    let why = clock::poll("the file is named", machine::patience(), || {
        longest = longest.max(metric(agent.address, "sandprobe_oldest_question_age_seconds")?);
        Ok(Some(unready(agent.address)?).filter(|why| why.contains(&path)))
    })?;
    let named = begun.elapsed();
    ensure!(why.contains("has hung for") && why.contains("the disk or the file server"), "{why}");
    ensure!(longest >= HUNG.as_secs_f64() / 2.0, "the oldest question waited for {longest} s at most");
    hanging(agent.address, 1.0)?;

    // Hooks and questions still work.
    let made = r#"sandprobe_events_total{kind="cgroup.created"}"#;
    let before = metric(agent.address, made)?;
    let mut containers = Vec::new();
    for _ in 0..CONTAINERS {
        let container = Container::create(&hierarchy)?;
        containers.push((container.idle()?, container));
    }
    let answered = || -> Result<Option<()>> {
        let seen = metric(agent.address, made)? >= before + CONTAINERS as f64;
        let waiting = metric(agent.address, r#"sandprobe_queue_length{queue="questions"}"#)?;
        let oldest = metric(agent.address, "sandprobe_oldest_question_age_seconds")?;
        Ok((seen && waiting == 0.0 && oldest == 0.0).then_some(()))
    };
    clock::poll("all questions are answered", machine::patience(), answered)?;
    let why = unready(agent.address)?;
    ensure!(
        why.lines().count() == 1 && why.contains(&path),
        "more than the hanging file was not read: {why}"
    );
    let asked = Instant::now();
    ensure!(get(agent.address, "/healthz")?.starts_with("ok"), "the agent is not alive");
    let took = asked.elapsed();
    // The agent judges the node a moment after it changed.
    clock::poll("the blind spot is a finding", machine::patience(), || {
        Ok(get(agent.address, "/v1/findings")?.contains("blind_spot/file/").then_some(()))
    })?;

    drop(hang);
    clock::poll("the agent is ready again", machine::patience(), || Ok(get(agent.address, "/readyz").ok()))?;
    hanging(agent.address, 0.0)?;
    for (mut child, _container) in containers {
        child.kill()?;
        child.wait()?;
    }
    let most = held::kilobytes(agent.id(), "VmHWM")?;
    println!(
        "named after {named:?}, the oldest question waited {longest} s, /healthz took {took:?}, {most} kB"
    );
    ensure!(most < MEMORY_KB, "{most} kB");
    agent.end()
}

/// The agent reads its boot history before it serves.
#[test]
fn a_hanging_boot_history_does_not_keep_the_agent_from_starting() -> Result<()> {
    let _shared = Shared::start()?;
    let state = tempfile::tempdir()?;
    let boots = state.path().join("boots.jsonl");
    fs::write(&boots, "")?;
    let hang = Hang::at(&boots)?;
    let agent = Agent::with_state(state.path().to_str().context("the path is no text")?)?;
    ensure!(hang.holds_a_process()?, "nobody read the history");
    ensure!(get(agent.address, "/healthz")?.starts_with("ok"), "the agent is not alive");
    drop(hang);
    let written = || Ok((fs::metadata(&boots)?.len() > 0).then_some(()));
    clock::poll("this boot is in the history", machine::patience(), written)?;
    agent.end()
}

/// Waits until the metrics count this number of hanging files. They are made a moment after `/readyz` reports
/// a file.
fn hanging(address: SocketAddr, files: f64) -> Result<()> {
    let counted = || Ok((metric(address, "sandprobe_node_files_hanging")? == files).then_some(()));
    clock::poll("the metrics count the hanging file", machine::patience(), counted)
}

/// Returns the reasons why the agent is not ready, one on each line. Empty if it is ready.
fn unready(address: SocketAddr) -> Result<String> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let answer = http::get(stream, "/readyz", &[])?;
    Ok(if answer.status == 200 { String::new() } else { answer.body })
}

/// Returns the value of one metric series.
fn metric(address: SocketAddr, series: &str) -> Result<f64> {
    let text = get(address, "/metrics")?;
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.with_context(|| format!("no {series}"))?.parse().context("the value is not a number")
}
