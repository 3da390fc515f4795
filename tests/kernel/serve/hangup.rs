//! An agent runs on after SIGHUP, and after its terminal is closed.

use std::{
    fs,
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    fcntl::{self, FcntlArg, FdFlag},
    pty,
    sys::signal::Signal,
};
use tests::{clock, guard::cgroup::CgroupGuard, http, live::Shared, machine};

use super::client::{Agent, get};

/// The interval at which the agent reads the files without a signal.
const PERIOD: Duration = Duration::from_secs(10);

#[test]
fn sighup_makes_the_agent_read_the_token_again() -> Result<()> {
    let place = tempfile::tempdir()?;
    let file = place.path().join("token");
    let write = |token: &str| -> Result<()> {
        fs::write(&file, token)?;
        Ok(fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?)
    };
    write("the-first-of-two-tokens")?;
    let agent = Agent::alive(&["--token-file", file.to_str().context("the path is no text")?])?;
    let is_accepted = |token: &str| -> Result<bool> {
        let header = format!("Bearer {token}");
        let stream = TcpStream::connect(agent.address)?;
        Ok(http::get(stream, "/v1/findings", &[("Authorization", &header)])?.status == 200)
    };
    ensure!(is_accepted("the-first-of-two-tokens")?, "the agent does not accept its token");
    write("the-other-of-two-tokens")?;
    let begun = Instant::now();
    agent.signal(Signal::SIGHUP)?;
    let accepted = || Ok(is_accepted("the-other-of-two-tokens")?.then_some(()));
    clock::poll("the agent accepts the new token", machine::patience(), accepted)?;
    let took = begun.elapsed();
    ensure!(
        machine::is_emulated() || took < PERIOD / 2,
        "the new token took {took:?}, as long as without the signal"
    );
    ensure!(!is_accepted("the-first-of-two-tokens")?, "the agent still accepts the old token");
    agent.end()
}

/// Nobody is left to read its standard output.
#[test]
fn closing_the_terminal_does_not_end_the_agent() -> Result<()> {
    let hierarchy = Shared::start()?.hierarchy().clone();
    let pty = pty::openpty(None, None)?;
    // The agent must not hold its own terminal open.
    fcntl::fcntl(&pty.master, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    let agent = Agent::with_output(pty.slave.into())?;
    drop(pty.master);
    agent.signal(Signal::SIGHUP)?;
    let dropped = || -> Result<Option<()>> {
        CgroupGuard::create(&hierarchy)?.end()?;
        let text = get(agent.address, "/metrics")?;
        let count = text
            .lines()
            .find_map(|line| line.strip_prefix("sandprobe_stream_events_dropped_total{why=\"slow\"} "));
        Ok((count.context("the counter is missing")? != "0").then_some(()))
    };
    clock::poll("events are dropped", machine::patience(), dropped)?;
    ensure!(get(agent.address, "/healthz")?.starts_with("ok"), "the agent is not alive");
    let (status, stderr) = agent.ended()?;
    ensure!(status.code() == Some(1) && stderr.contains("events were not written"), "{status} {stderr}");
    Ok(())
}
