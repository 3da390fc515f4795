//! chromedriver, and the browser that it starts.
//!
//! **Invariant:** no process is left when this is dropped or the test is killed. The browser ends when the
//! pipe to its driver closes.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};
use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, Uid},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::wire;

/// A loaded machine needs seconds to start it.
const START: Duration = Duration::from_secs(60);
const MISSING: &str = "start chromedriver: cargo xtask setup browser installs chromium and chromium-driver";

/// With these arguments the browser sends no request of its own to the network, and renders the same
/// everywhere.
const ARGUMENTS: [&str; 13] = [
    "--headless=new",
    // The browser ends when this pipe closes.
    "--remote-debugging-pipe",
    // Containers have little shared memory.
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--force-color-profile=srgb",
    "--lang=en-US",
];

pub(super) struct Driver {
    child: Child,
    pub(super) port: u16,
    pub(super) session: String,
    browser: Option<Pid>,
    profile: TempDir,
}

impl Driver {
    pub(super) fn start() -> Result<Self> {
        let profile =
            tempfile::Builder::new().prefix("browser").tempdir().context("make a profile's folder")?;
        let mut child = Command::new("chromedriver")
            .arg("--port=0")
            // This is also chromium's home, where it stores fonts and crash reports.
            .env("HOME", profile.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context(MISSING)?;
        let stdout = child.stdout.take().context("its standard output was asked for")?;
        let (port, session) = (0, String::new());
        let mut driver = Self { child, port, session, browser: None, profile };
        let (sender, ports) = mpsc::channel();
        // The thread goes on reading, so that the driver can go on writing.
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some(port) = port_of(&line) {
                    sender.send(port).ok();
                }
            }
        });
        driver.port = ports.recv_timeout(START).context("chromedriver did not print its port")?;
        driver.open()?;
        Ok(driver)
    }

    fn open(&mut self) -> Result<()> {
        let mut arguments: Vec<String> = ARGUMENTS.map(str::to_owned).to_vec();
        arguments.push(format!("--user-data-dir={}", self.profile.path().join("profile").display()));
        if Uid::effective().is_root() {
            // Chromium refuses to run as root with its sandbox.
            arguments.push("--no-sandbox".to_owned());
        }
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        } } });
        let opened =
            wire::ask(self.port, "POST", "/session", Some(&wanted), START).context("start chromium")?;
        self.session = opened["sessionId"].as_str().context("a session without an id")?.to_owned();
        let pid = opened["capabilities"]["goog:processID"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        self.browser = pid.map(Pid::from_raw);
        Ok(())
    }

    pub(super) fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        limit: Duration,
    ) -> Result<Value> {
        wire::ask(self.port, method, &format!("/session/{}{path}", self.session), body, limit)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Ends the session normally first, then kills by process id. Errors mean that a process has ended
        // already.
        self.ask("DELETE", "", None, Duration::from_secs(10)).ok();
        self.child.kill().ok();
        self.child.wait().ok();
        if let Some(browser) = self.browser {
            kill(browser, Signal::SIGKILL).ok();
        }
    }
}

/// `ChromeDriver was started successfully on port 43227.`
fn port_of(line: &str) -> Option<u16> {
    line.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok()
}
