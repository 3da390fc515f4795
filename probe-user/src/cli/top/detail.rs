//! Explains a row: all that is known of it, as lines of text.

use std::fmt::Write as _;

use super::{
    model::{Balance, Data, Pool, Signal},
    query::Pane,
    table::{addresses, signals},
};
use crate::{
    cli::{finding::explain, start::waterfall},
    engine::incident::Incidents,
    sink::{
        escape::{brief, escaped, short_key},
        render::phase::pod,
        span::span,
    },
};

pub(super) fn title(pane: Pane) -> &'static str {
    match pane {
        Pane::Findings => "FINDING",
        Pane::Starts => "START",
        Pane::Addresses => "POOL",
        Pane::Signals => "SIGNAL",
    }
}

/// Returns `None` if the row no longer exists.
pub(super) fn text(data: &Data, pane: Pane, id: &str) -> Option<String> {
    match pane {
        Pane::Findings => finding(data, id),
        Pane::Starts => start(data, id),
        Pane::Addresses => pool(data, id),
        Pane::Signals => data.doctor.signals.iter().find(|it| it.signal == id).map(|it| signal(it, data)),
    }
}

/// Returns what `sandprobe explain` prints.
fn finding(data: &Data, id: &str) -> Option<String> {
    let snapshot = &data.state.snapshot;
    let finding = snapshot.findings.iter().find(|it| it.key.as_str() == id)?;
    Some(explain::text::text(finding, &Incidents::of(&snapshot.findings), snapshot))
}

/// Returns what `sandprobe explain pod` prints.
fn start(data: &Data, id: &str) -> Option<String> {
    let snapshot = &data.state.snapshot;
    if let Some(start) = snapshot.starts.iter().find(|it| it.sandbox.as_str() == id) {
        let start = data.as_of_now(start);
        return Some(waterfall::text(&start, &snapshot.label));
    }
    let waits =
        data.state.pods.iter().find(|it| it.name.uid.as_ref().is_some_and(|uid| uid.as_str() == id))?;
    let time = span(data.now().since(waits.waiting_since?));
    Some(format!(
        "{} waits for its first sandbox\n\n  for        {time}\n  uid        {id}\n\nThe kubelet makes the sandbox when the \
         pod's volumes are mounted; then the runtime calls the network's plugins.\n",
        pod(&waits.name)
    ))
}

fn pool(data: &Data, id: &str) -> Option<String> {
    let it = data.addresses.pools.iter().find(|it| addresses::id(it) == id)?;
    let Pool { network, subnet, size, in_use, pending_cleanup, leak_candidate, leaked, free } = it;
    let mut text = format!(
        "{}  {}\n\n  {:<11} {size}\n  {:<11} {free}\n  {:<11} {in_use}\n  {:<11} {pending_cleanup}, of sandboxes that have \
         ended and that their runtime has on record\n  {:<11} {leak_candidate}\n  {:<11} {leaked}\n",
        escaped(network),
        escaped(subnet),
        "addresses",
        "free",
        "in use",
        "cleanup",
        "leaked?",
        "leaked"
    );
    let balance = data.addresses.balance.iter().filter(|it| it.network.as_ref() == Some(network));
    for Balance { plugin, added, released, live, unreleased, .. } in balance {
        _ = writeln!(
            text,
            "\nAttachments of {}\n  {added} added, {released} released, {live} live, {unreleased} never released",
            escaped(plugin)
        );
    }
    // The findings of a pool have its name in their keys.
    let named = format!("/{network}/");
    let findings = data.state.snapshot.findings.iter();
    let findings: Vec<_> = findings.filter(|it| format!("{}/", it.key.as_str()).contains(&named)).collect();
    if !findings.is_empty() {
        text += "\nFindings\n";
    }
    for it in findings {
        let stage = it.stage.into_str();
        let summary = brief(&it.kind.explain().summary());
        _ = writeln!(text, "  {stage}  {}\n      {}", short_key(&it.key), escaped(&summary));
    }
    Some(text)
}

fn signal(it: &Signal, data: &Data) -> String {
    let (seen, _) = signals::seen(it);
    let mut text = format!("{}: {seen}\n\n", escaped(&it.signal));
    line("mechanism", it.mechanism.as_deref().unwrap_or("-"), &mut text);
    if !it.programs.is_empty() {
        line("programs", &it.programs.join(", "), &mut text);
    }
    if !it.note.is_empty() {
        line("note", &it.note, &mut text);
    }
    if !it.lacks.is_empty() {
        line("needs", &it.lacks, &mut text);
    }
    if !it.missed.is_empty() {
        text += "\nBetter mechanisms, and why they are not used\n";
    }
    for missed in &it.missed {
        _ = writeln!(text, "  not {}: {}", escaped(&missed.mechanism), escaped(&missed.why));
    }
    if !it.lacks.is_empty()
        && let Some(cure) = &data.doctor.cure
    {
        _ = writeln!(text, "\nTo see more\n  {}", escaped(cure));
    }
    text + "\nMore: sandprobe doctor\n"
}

fn line(name: &str, what: &str, text: &mut String) {
    _ = writeln!(text, "  {name:<10} {}", escaped(what));
}
