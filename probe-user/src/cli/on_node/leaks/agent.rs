//! What the agent of this node knows about each CNI plugin, with or without a store.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::{cli::table::aligned, model::finding::Stage};

/// The needed part of `/v1/pools`.
#[derive(Deserialize)]
struct PoolsAnswer {
    /// An older agent does not have this member.
    #[serde(default)]
    balance: Vec<Balance>,
}

#[derive(Deserialize)]
struct Balance {
    plugin: String,
    network: Option<String>,
    added: u64,
    released: u64,
    released_without_netns: u64,
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

/// Returns a table of the plugins; empty if the agent knows of none.
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
    Ok(if rows.is_empty() { String::new() } else { format!("\n{}", aligned(headings, &rows)) })
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
            {"plugin":"cloud\u001b[2J","network":"a","added":9,"released":3,"released_without_netns":1,"live":2,
             "ended":1,"unreleased":2,"unknown":0},
            {"plugin":"other","added":0,"released":0,"released_without_netns":0,"live":0,
             "ended":0,"unreleased":0,"unknown":0}]}"#;
        let text = balance(told).expect("a table");
        let rows: Vec<Vec<&str>> =
            text.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0][1..], ["a", "9", "3", "1", "2", "1", "2", "0"]);
        assert_eq!(rows[1][..3], ["other", "?", "0"]);
        assert!(!text.contains('\u{1b}'), "{text}");
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
