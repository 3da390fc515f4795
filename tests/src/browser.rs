//! A real browser without a window. Tests drive chromium through WebDriver (W3C, "WebDriver"), and through
//! the DevTools protocol for what WebDriver lacks.
//!
//! Each browser has its own profile in a folder that is removed with it. Every command has a deadline. Every
//! wait is for a condition that is checked in the page.

mod driver;
mod wire;

use std::{env, fs, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use driver::Driver;

/// The deadline of a command and of a wait.
const PATIENCE: Duration = Duration::from_secs(30);
/// How much longer than its own deadline a script may take.
const MARGIN: Duration = Duration::from_secs(15);

pub struct Browser(Driver);

/// The color scheme that the user prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    Light,
    Dark,
}

/// Keys by their code points ("WebDriver", section 17.4.2, Keyboard actions).
pub mod key {
    pub const TAB: char = '\u{e004}';
    pub const ENTER: char = '\u{e007}';
    pub const SHIFT: char = '\u{e008}';
    pub const ESCAPE: char = '\u{e00c}';
    pub const END: char = '\u{e010}';
    pub const UP: char = '\u{e013}';
    pub const DOWN: char = '\u{e015}';
}

impl Browser {
    pub fn start() -> Result<Self> {
        let browser = Self(Driver::start()?);
        let limits = json!({ "script": millis(PATIENCE), "pageLoad": millis(PATIENCE) });
        browser.post("/timeouts", &limits)?;
        // Removes the requests of the browser's own first page.
        browser.open("about:blank")?;
        browser.requests()?;
        browser.complaints()?;
        Ok(browser)
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.0.ask("POST", path, Some(body), PATIENCE + MARGIN)
    }

    /// Opens a page. Returns when the page and everything that it requests at once is loaded.
    pub fn open(&self, url: &str) -> Result<()> {
        self.post("/url", &json!({ "url": url })).map(drop)
    }

    /// Runs a function's body in the page, with these arguments.
    pub fn run(&self, script: &str, arguments: &[Value]) -> Result<Value> {
        self.post("/execute/sync", &json!({ "script": script, "args": arguments }))
    }

    /// Like `run`, for a function that calls its last argument with its result.
    pub fn run_async(&self, script: &str, arguments: &[Value]) -> Result<Value> {
        self.post("/execute/async", &json!({ "script": script, "args": arguments }))
    }

    /// Waits until this function's body, run before each frame, returns a true value, and returns the value.
    pub fn until(&self, what: &str, script: &str, arguments: &[Value]) -> Result<Value> {
        let waiting = format!(
            "const args = [...arguments], done = args.pop(), limit = performance.now() + {};
             const met = function () {{ {script} }};
             const look = () => {{
               let it; try {{ it = met(...args); }} catch (error) {{ done({{ failed: String(error) }}); return; }}
               if (it) done({{ it }});
               else if (performance.now() > limit) done({{ failed: 'not within the time' }});
               else requestAnimationFrame(look);
             }};
             look();",
            millis(PATIENCE - Duration::from_secs(2))
        );
        let answer = self.run_async(&waiting, arguments)?;
        match answer["failed"].as_str() {
            Some(error) => bail!("waiting for {what}: {error}"),
            None => Ok(answer["it"].clone()),
        }
    }

    /// Presses and releases keys one after the other, with `held` pressed all the time.
    pub fn press(&self, held: &[char], keys: &[char]) -> Result<()> {
        let act = |kind: &'static str| move |key: &char| json!({ "type": kind, "value": key });
        let mut acts: Vec<Value> = held.iter().map(act("keyDown")).collect();
        acts.extend(keys.iter().flat_map(|key| [act("keyDown")(key), act("keyUp")(key)]));
        acts.extend(held.iter().map(act("keyUp")));
        self.post("/actions", &json!({ "actions": [{ "type": "key", "id": "keys", "actions": acts }] }))
            .map(drop)
    }

    /// Types text, as with the keyboard.
    pub fn write(&self, text: &str) -> Result<()> {
        self.press(&[], &text.chars().collect::<Vec<_>>())
    }

    /// Sends a command of the DevTools protocol.
    pub fn tool(&self, command: &str, parameters: &Value) -> Result<Value> {
        self.post("/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    pub fn prefer(&self, scheme: Scheme) -> Result<()> {
        let scheme = match scheme {
            Scheme::Light => "light",
            Scheme::Dark => "dark",
        };
        let features = json!([
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ]);
        self.tool("Emulation.setEmulatedMedia", &json!({ "features": features })).map(drop)
    }

    /// Sets the size of the page in CSS pixels.
    pub fn resize(&self, width: u32, height: u32) -> Result<()> {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.tool("Emulation.setDeviceMetricsOverride", &size).map(drop)
    }

    /// Returns the messages of the browser since the last call: errors and warnings of scripts, refused
    /// requests, violations of the page's policy.
    pub fn complaints(&self) -> Result<Vec<String>> {
        let answer = self.post("/se/log", &json!({ "type": "browser" }))?;
        let entries = answer.as_array().context("the log is not a list")?;
        let is_one = |it: &&Value| matches!(it["level"].as_str(), Some("SEVERE" | "WARNING"));
        Ok(entries.iter().filter(is_one).map(|it| it["message"].to_string()).collect())
    }

    /// Returns the addresses of requests since the last call, in order. `data:` addresses are left out.
    pub fn requests(&self) -> Result<Vec<String>> {
        let answer = self.post("/se/log", &json!({ "type": "performance" }))?;
        let mut urls = Vec::new();
        for entry in answer.as_array().context("the log is not a list")? {
            let message = entry["message"].as_str().context("an entry is not text")?;
            let message: Value = serde_json::from_str(message).context("an entry is not JSON")?;
            let message = &message["message"];
            if message["method"] == "Network.requestWillBeSent" {
                let url = message["params"]["request"]["url"].as_str().context("a request without a URL")?;
                if !url.starts_with("data:") {
                    urls.push(url.to_owned());
                }
            }
        }
        Ok(urls)
    }

    /// Writes a screenshot for a person to look at: `target/screens/NAME.png`.
    pub fn screenshot(&self, name: &str) -> Result<PathBuf> {
        let picture = self.0.ask("GET", "/screenshot", None, PATIENCE + MARGIN)?;
        let bytes = BASE64_STANDARD.decode(picture.as_str().context("the screenshot is not text")?)?;
        let folder = target()?.join("screens");
        fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let path = folder.join(format!("{name}.png"));
        fs::write(&path, bytes).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }
}

/// Cargo's target folder, which contains this program.
pub fn target() -> Result<PathBuf> {
    let own = env::current_exe().context("find the running program")?;
    // The folder of a named target is marked too, within the one of all targets.
    let mut found = None;
    for folder in own.ancestors().take(5) {
        if folder.join("CACHEDIR.TAG").is_file() {
            found = Some(folder.to_owned());
        }
    }
    found.with_context(|| format!("{} is not in a target folder of cargo", own.display()))
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
