//! Replays a recording into metrics, and returns a scrape at its end.

use std::{fs::File, io::BufReader, path::Path};

use anyhow::{Context as _, Result};
use probe_user::{
    model::time::Timestamp,
    recording::Reader,
    session::Session,
    sink::{
        metrics::{Metrics, agent_stats::AgentStats, label::PodLabel},
        render::jsonl::Jsonl,
        select::filter::Filter,
    },
};

/// Returns the text of the scrape with these pod labels.
pub(crate) fn of(recording: &Path, labels: &[PodLabel], own: &AgentStats) -> Result<String> {
    let file = File::open(recording).with_context(|| format!("open {}", recording.display()))?;
    let mut reader = Reader::open(BufReader::new(file))?;
    let mut session = Session::new(reader.header(), Filter::default(), Box::new(Jsonl));
    let metrics = Metrics::new(labels);
    session.add_sink(Box::new(metrics.clone()));
    let mut now = Timestamp::ZERO;
    while let Some(call) = reader.next_call()? {
        now = now.max(call.at().unwrap_or_default());
        session.call(call)?;
        session.output().clear();
    }
    metrics.update(session.engine(), now, own);
    Ok(metrics.text()?)
}
