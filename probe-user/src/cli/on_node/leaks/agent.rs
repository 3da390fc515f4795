//! What the agent of this node knows about each CNI plugin, with or without a store.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::{cli::table::aligned, model::finding::Stage};

/// The needed part of `/v1/pools`.
#[derive(Deserialize)]
struct PoolsAnswer {
    /// An older agent does not have this member, nor some of its counts.
    #[serde(default)]
    balance: Vec<Balance>,
}

#[derive(Deserialize)]
struct Balance {
    plugin: String,
    network: Option<String>,
    #[serde(default)]
    pods: u64,
    #[serde(default)]
    sandboxes: u64,
    added: u64,
    released: u64,
    released_without_netns: u64,
    unverified: Option<u64>,
    live: u64,
    ended: u64,
    unreleased: u64,
    unknown: u64,
}

/// The needed part of `/v1/findings`.
#[derive(Deserialize)]
struct FindingsAnswer {
    findings: Vec<ListedFinding>,
}

#[derive(Deserialize)]
struct ListedFinding {
    key: String,
    stage: String,
}

/// Returns the keys of the confirmed findings.
pub(super) fn confirmed(bytes: &[u8]) -> serde_json::Result<BTreeSet<String>> {
    let FindingsAnswer { findings } = serde_json::from_slice(bytes)?;
    let confirmed = findings.into_iter().filter(|it| it.stage == Stage::Confirmed.into_str());
    Ok(confirmed.map(|it| it.key).collect())
}

impl Balance {
    /// Returns a row of the ratios that are 1 where each pod has one sandbox and each ADD its DEL.
    /// Attachments that live or whose fate is not known have no DEL yet.
    fn ratios(&self) -> [String; 6] {
        let released = self.released.saturating_add(self.released_without_netns);
        [
            self.plugin.clone(),
            self.network.clone().unwrap_or_else(|| "?".to_owned()),
            self.pods.to_string(),
            ratio(self.sandboxes, self.pods),
            ratio(self.added, self.pods),
            self.unverified.map_or_else(
                || "-".to_owned(),
                |it| ratio(released.saturating_sub(it), released.saturating_add(self.unreleased)),
            ),
        ]
    }
}

/// Returns `count` for each one of `whole`; `-` if there is none.
fn ratio(count: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    let percent = (u128::from(count) * 100 + u128::from(whole) / 2) / u128::from(whole);
    format!("{}.{:02}", percent / 100, percent % 100)
}

/// Returns two tables of the plugins: what became of the attachments, and the ratios that should be 1. They
/// are empty if the agent knows of no plugin.
pub(super) fn balance(bytes: &[u8]) -> serde_json::Result<String> {
    let PoolsAnswer { balance } = serde_json::from_slice(bytes)?;
    let rows = balance.iter().map(|it| {
        [
            it.plugin.clone(),
            it.network.clone().unwrap_or_else(|| "?".to_owned()),
            it.added.to_string(),
            it.released.to_string(),
            it.released_without_netns.to_string(),
            it.live.to_string(),
            it.ended.to_string(),
            it.unreleased.to_string(),
            it.unknown.to_string(),
        ]
    });
    let headings =
        ["PLUGIN", "NETWORK", "ADDED", "RELEASED", "BLINDLY", "LIVE", "ENDED", "UNRELEASED", "UNKNOWN"];
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return Ok(String::new());
    }
    let ratios: Vec<_> = balance.iter().map(Balance::ratios).collect();
    let of_ratios = ["PLUGIN", "NETWORK", "PODS", "SANDBOXES/POD", "ADDS/POD", "RELEASES/ADD"];
    Ok(format!("\n{}\n{}", aligned(headings, &rows), aligned(of_ratios, &ratios)))
}

#[cfg(test)]
mod tests {
    use super::{balance, confirmed};

    #[test]
    fn only_what_is_confirmed_needs_no_further_grace() {
        let told =
            br#"{"schema":1,"findings":[{"key":"leaked_address/n/10.1.0.2/a","stage":"confirmed","kind":"x"},
            {"key":"leaked_address/n/10.1.0.3/b","stage":"candidate"}]}"#;
        let keys: Vec<String> = confirmed(told).expect("JSON").into_iter().collect();
        assert_eq!(keys, ["leaked_address/n/10.1.0.2/a"]);
        assert!(confirmed(b"{}").is_err());
    }

    #[test]
    fn each_plugin_has_a_row() {
        let told = br#"{"schema":1,"pools":[],"balance":[
            {"plugin":"cloud\u001b[2J","network":"a","pods":4,"sandboxes":7,"added":9,"released":3,
             "released_without_netns":2,"unverified":1,"live":1,"ended":1,"unreleased":2,"unknown":0},
            {"plugin":"other","pods":0,"sandboxes":0,"added":0,"released":0,"released_without_netns":0,"unverified":0,
             "live":0,"ended":0,"unreleased":0,"unknown":0}]}"#;
        let text = balance(told).expect("a table");
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[2][1..], ["a", "9", "3", "2", "1", "1", "2", "0"]);
        assert_eq!(rows[3][..3], ["other", "?", "0"]);
        assert_eq!(rows[6][1..], ["a", "4", "1.75", "2.25", "0.57"]);
        assert_eq!(rows[7], ["other", "?", "0", "-", "-", "-"]);
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    /// The example of the docs.
    #[test]
    fn the_day_of_the_first_report_is_in_the_docs() {
        let told = br#"{"balance":[{"plugin":"cloud-cni","network":"cloud","pods":1440,"sandboxes":2520,"added":2520,
            "released":1800,"released_without_netns":720,"unverified":720,"live":0,"ended":0,"unreleased":0,"unknown":0}]}"#;
        let text = balance(told).expect("a table");
        let docs = include_str!("../../../../../docs/findings/unverified_release.md");
        assert!(docs.contains(&format!("$ sandprobe leaks\n...{text}```\n")), "{text}");
    }

    #[test]
    fn an_agent_that_counts_no_unverified_releases_has_no_ratio_of_them() {
        let told = br#"{"balance":[{"plugin":"cloud-cni","added":9,"released":3,"released_without_netns":6,
            "live":0,"ended":0,"unreleased":0,"unknown":0}]}"#;
        assert!(balance(told).expect("a table").ends_with(" 0     -              -         -\n"));
    }

    #[test]
    fn an_agent_without_plugins_has_no_table() {
        for told in [&br#"{"pools":[]}"#[..], br#"{"balance":[]}"#] {
            assert_eq!(balance(told).expect("an answer"), "");
        }
    }

    #[test]
    fn an_answer_that_cannot_be_read_is_not_one_without_plugins() {
        for told in [&br#"{"balance":[{}]}"#[..], b"[1]", b"x", b""] {
            assert!(balance(told).is_err(), "{told:?}");
        }
    }
}
