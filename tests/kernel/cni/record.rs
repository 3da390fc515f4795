//! The raw bytes of the rings. They contain only the CNI variables of an environment and a call's place in a
//! trace, and nothing of VERSION and STATUS calls.

use std::{
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use probe_user::source::live::attach::Rings;
use tests::{
    live::{Setup, load},
    machine,
};

use super::call::{Environment, Runtime, SECRET};
use crate::container::new_id;

#[test]
fn no_record_contains_other_variables_or_version_and_status_calls() -> Result<()> {
    let (mut probe, _) = load(Setup { all_execs: true, ..Setup::default() })?;
    let mut rings = probe.take_rings().context("the rings are taken")?;
    let mut runtime = Runtime::start()?;
    let ids = [new_id()?, new_id()?, new_id()?];
    runtime.call(&Environment::of_add(&ids[0]).amid(60 << 10), &[])?;
    runtime.call(&Environment::of_add(&ids[1]).before(200 << 10, 2000), &[])?;
    let uncounted = [("VERSION", new_id()?), ("STATUS", new_id()?)];
    for (command, id) in &uncounted {
        runtime.call(&Environment::of_add(id).with("CNI_COMMAND", command), &[])?;
    }
    // An exec that is no call keeps its place in a trace for itself, and nobody's baggage is kept.
    let no_call = Environment::of_add(&ids[0]).without("CNI_COMMAND").with("TRACEPARENT", SECRET);
    runtime.call(&no_call.with("TRACESTATE", SECRET), &[])?;
    runtime.call(&Environment::of_add(&ids[0]).with("BAGGAGE", SECRET), &[])?;
    // The buffer in which a record is built held longer records before. This call is short.
    runtime.call(&Environment::of_add(&ids[2]).with("CNI_ARGS", ""), &[])?;
    let records = until_reported(&mut rings, &ids)?;
    for record in &records {
        let text = String::from_utf8_lossy(record);
        ensure!(!text.contains(SECRET), "{text}");
        ensure!(uncounted.iter().all(|(_, id)| !text.contains(id)), "{text}");
    }
    // A runtime of this machine may have made such calls too.
    let (version, status) = probe.totals()?.cni_not_streamed();
    ensure!(version >= 1 && status >= 1, "counted {version} and {status}");
    Ok(())
}

/// Reads records until each of `ids` was in one.
fn until_reported(rings: &mut Rings, ids: &[String]) -> Result<Vec<Vec<u8>>> {
    let deadline = Instant::now() + machine::patience();
    let mut records: Vec<Vec<u8>> = Vec::new();
    loop {
        for ring in [&mut rings.lifecycle, &mut rings.bulk] {
            while let Some(record) = ring.next() {
                records.push(record.to_vec());
            }
        }
        let is_reported = |id: &String| records.iter().any(|record| contains(record, id.as_bytes()));
        if ids.iter().all(is_reported) {
            return Ok(records);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        ensure!(left > Duration::ZERO, "the calls are not in {} records", records.len());
        let mut ready =
            [&rings.lifecycle, &rings.bulk].map(|ring| PollFd::new(ring.as_fd(), PollFlags::POLLIN));
        poll(&mut ready, PollTimeout::try_from(left)?)?;
    }
}

fn contains(record: &[u8], text: &[u8]) -> bool {
    record.windows(text.len()).any(|window| window == text)
}
