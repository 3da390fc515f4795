//! An empty file in libcni's cache, as a power cut can leave it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::{
    keyed::Faults,
    node::Node,
    story::{Stage, job, service},
};

use super::{findings, until_confirmed, watch_store};

const CACHE: &str = "/var/lib/cni/results";

/// An empty file of an attachment that no other test has. Dropping this removes it.
struct Torn(PathBuf);

impl Torn {
    fn new() -> Result<Self> {
        fs::create_dir_all(CACHE).with_context(|| format!("make {CACHE}"))?;
        let torn = Path::new(CACHE).join(format!("torn-{}-eth0", "f0".repeat(32)));
        fs::write(&torn, "").with_context(|| format!("write {}", torn.display()))?;
        Ok(Self(torn))
    }
}

impl Drop for Torn {
    fn drop(&mut self) {
        // An error in drop cannot be reported.
        let _ = fs::remove_file(&self.0);
    }
}

/// The agent sees beside the torn file that another file is gone. A leak that only the cache showed is then
/// over.
#[test]
fn a_torn_file_does_not_hide_a_removed_one() -> Result<()> {
    let torn = Torn::new()?;
    let mut node = Node::start_keyed(Faults::default())?;
    // Without the plugin's store the addresses are known only from libcni's cache.
    let mut stream = watch_store(None)?;
    let mut stage = Stage::new(&mut node)?;
    let truth = stage.forgotten_sandboxes(&[service("forgotten")])?;
    until_confirmed(&mut stream, &["leaked_address/del_missing"])?;
    stream.until("the torn file", |event: &Value| {
        event["event"] == "finding.confirmed" && event["finding"]["key"] == "blind_spot/cni_cache"
    })?;
    let sandbox = &truth.pods.first().and_then(|pod| pod.sandboxes.first()).context("no sandbox ran")?.id;
    for entry in fs::read_dir(CACHE)? {
        let path = entry?.path();
        if path.to_string_lossy().contains(sandbox.as_str()) {
            fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
        }
    }
    // The agent reads the records again after a plugin call.
    stage.completed_job(&job("next"))?;
    stream.until("the end of the leak", |event: &Value| {
        event["event"] == "finding.closed" && event["finding"]["kind"] == "leaked_address"
    })?;
    let (received, _) = stream.end()?;
    stage.clean()?;
    let found = findings(&received);
    // The agent also reports that the runtime had no records while it was set up anew.
    let spot = found.get("blind_spot/cni_cache").context("the torn file is not reported")?;
    let detail = &spot["detail"];
    ensure!(detail["name"] == *torn.0.to_string_lossy(), "{spot:#}");
    ensure!(spot["severity"] == "info" && detail["count"] == "1", "{spot:#}");
    node.stop()
}
