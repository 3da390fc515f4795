//! An agent that is told to hang up, or whose terminal is closed, runs on.

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

/// How often the files are looked at without being told to.
const PERIOD: Duration = Duration::from_secs(10);

#[test]
fn sighup_has_the_token_read_again_and_ends_nothing() -> Result<()> {
    let place = tempfile::tempdir()?;
    let file = place.path().join("token");
    let write = |token: &str| -> Result<()> {
        fs::write(&file, token)?;
        Ok(fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?)
    };
    write("the-first-of-two-tokens")?;
    let agent = Agent::alive(&["--token-file", file.to_str().context("the path is no text")?])?;
    let is_known = |token: &str| -> Result<bool> {
        let header = format!("Bearer {token}");
        let stream = TcpStream::connect(agent.address)?;
        Ok(http::get(stream, "/v1/findings", &[("Authorization", &header)])?.status == 200)
    };
    ensure!(is_known("the-first-of-two-tokens")?, "it does not know its token");
    write("the-other-of-two-tokens")?;
    let begun = Instant::now();
    agent.signal(Signal::SIGHUP)?;
    let known = || Ok(is_known("the-other-of-two-tokens")?.then_some(()));
    clock::poll("the new token is known", machine::patience(), known)?;
    let took = begun.elapsed();
    ensure!(machine::is_emulated() || took < PERIOD / 2, "it took {took:?}, as without the signal");
    ensure!(!is_known("the-first-of-two-tokens")?, "the old token is still good");
    agent.end()
}

/// Nobody is left to read what it writes to its standard output.
#[test]
fn a_terminal_that_is_closed_does_not_end_it() -> Result<()> {
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
        let count = text.lines().find_map(|line| line.strip_prefix("sandprobe_stream_events_dropped_total "));
        Ok((count.context("it is not counted")? != "0").then_some(()))
    };
    clock::poll("events are dropped", machine::patience(), dropped)?;
    ensure!(get(agent.address, "/healthz")?.starts_with("ok"), "it is not alive");
    let (status, said) = agent.ended()?;
    ensure!(status.code() == Some(1) && said.contains("events were not written"), "{status} {said}");
    Ok(())
}
