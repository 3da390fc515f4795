//! The contents of a start's line that matter.

use serde_json::Value;

use super::{Boot, number, text, time};

pub(super) struct Start {
    pub(super) boot: Boot,
    pub(super) sandbox: String,
    pub(super) is_comparable: bool,
    pub(super) total_ns: i64,
    pub(super) plugin: Option<String>,
    pub(super) version: Option<String>,
    /// The longest phase: its name, its plugin, when it began by the wall clock, and how long it took.
    pub(super) slowest: (String, Option<String>, i64, i64),
}

impl Start {
    pub(super) fn of(boot: Boot, line: &Value) -> Self {
        let start = &line["start"];
        let is = |member: &str| start[member] == true;
        let phases = start["phases"].as_array().expect("phases");
        let mut slowest = &phases[0];
        for phase in phases {
            if number(&phase["duration_ns"]) > number(&slowest["duration_ns"]) {
                slowest = phase;
            }
        }
        let boot_wall = time(&line["at"]) - number(&line["boot_ns"]);
        let cni = phases.iter().find(|it| it["phase"] == "cni" && it["ifname"] != "lo");
        let plugin = cni.and_then(|it| it["plugin"].as_str()).map(str::to_owned);
        let plugins = start["plugins"].as_array().map(Vec::as_slice).unwrap_or_default();
        let version = plugins
            .iter()
            .find(|it| it["path"].as_str().and_then(|path| path.rsplit('/').next()) == plugin.as_deref());
        Self {
            boot,
            sandbox: text(&line["sandbox"]["id"]),
            is_comparable: is("complete")
                && !is("rebuilt")
                && !is("listed")
                && !is("suspended")
                && !is("gapped"),
            total_ns: number(&start["total_ns"]),
            version: version.and_then(|it| it["version"].as_str()).map(str::to_owned),
            plugin,
            slowest: (
                text(&slowest["phase"]),
                slowest["plugin"].as_str().map(str::to_owned),
                boot_wall + number(&slowest["begin_ns"]),
                number(&slowest["duration_ns"]),
            ),
        }
    }
}
