//! A picture as a trace for ui.perfetto.dev and chrome://tracing: a row is a process, and a lane in it is a
//! thread.
//!
//! The format is Chromium's "Trace Event Format": complete events (`X`), instants (`i`), and names of
//! processes and threads (`M`). Times are microseconds, here with three decimals.
//!
//! **Invariant:** bars of one lane are side by side or nested: a viewer drops bars that overlap in another
//! way.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

use super::chart::{Bar, Chart, Row};
use crate::sink::escape::escaped;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Trace {
    display_time_unit: &'static str,
    other_data: BTreeMap<&'static str, String>,
    trace_events: Vec<Event>,
}

#[derive(Serialize)]
#[serde(tag = "ph")]
enum Event {
    /// The name of a process or a thread.
    #[serde(rename = "M")]
    Meta { name: &'static str, pid: u32, tid: u32, args: Meta },
    #[serde(rename = "X")]
    Whole(Span),
    #[serde(rename = "i")]
    Moment {
        #[serde(flatten)]
        span: Span,
        /// The height of the mark; `t` is the height of its thread.
        s: &'static str,
    },
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Meta {
    Name(String),
    Labels(String),
    SortIndex(u32),
}

#[derive(Serialize)]
struct Span {
    name: String,
    cat: &'static str,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    pid: u32,
    tid: u32,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    args: BTreeMap<String, String>,
}

/// Returns the trace as one JSON object and a newline.
pub fn write(chart: &Chart) -> serde_json::Result<Vec<u8>> {
    let mut last: u32 = 0;
    let mut events = Vec::new();
    for row in &chart.rows {
        // Some viewers expect thread numbers to be unique over all processes.
        last = last.saturating_add(1);
        let pid = last;
        process(row, pid, &mut events);
        let mut lanes: Vec<(&str, u32)> = Vec::new();
        for bar in &row.bars {
            let known = lanes.iter().find(|(name, _)| *name == bar.lane).map(|(_, tid)| *tid);
            let tid = known.unwrap_or_else(|| {
                last = last.saturating_add(1);
                let tid = last;
                lanes.push((&bar.lane, tid));
                meta("thread_name", pid, tid, Meta::Name(escaped(&bar.lane).into_owned()), &mut events);
                meta("thread_sort_index", pid, tid, Meta::SortIndex(tid), &mut events);
                tid
            });
            events.push(event(chart, row, bar, pid, tid));
        }
    }
    let about = chart.about.iter().map(|(name, word)| (*name, escaped(word).into_owned()));
    let mut other_data: BTreeMap<&str, String> = about.collect();
    other_data.insert("title", chart.title.to_owned());
    let mut bytes = serde_json::to_vec(&Trace { display_time_unit: "ms", other_data, trace_events: events })?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn process(row: &Row, pid: u32, events: &mut Vec<Event>) {
    meta("process_name", pid, 0, Meta::Name(escaped(&row.name).into_owned()), events);
    meta("process_sort_index", pid, 0, Meta::SortIndex(pid), events);
    if !row.marks.is_empty() {
        meta("process_labels", pid, 0, Meta::Labels(row.marks.join(", ")), events);
    }
}

fn meta(name: &'static str, pid: u32, tid: u32, args: Meta, events: &mut Vec<Event>) {
    events.push(Event::Meta { name, pid, tid, args });
}

fn event(chart: &Chart, row: &Row, bar: &Bar, pid: u32, tid: u32) -> Event {
    let notes = bar.notes.iter().zip(1..).map(|(note, n): (_, u32)| (format!("note {n}"), note.as_str()));
    let marks = (!bar.marks.is_empty()).then(|| bar.marks.join(", "));
    let mut args: BTreeMap<String, String> =
        notes.map(|(name, note)| (name, escaped(note).into_owned())).collect();
    args.extend(marks.map(|marks| ("marks".to_owned(), marks)));
    let span = Span {
        name: escaped(&bar.name).into_owned(),
        cat: if bar.is_part { chart.noun } else { "beside" },
        ts: micros(row.begin.saturating_add(bar.at)),
        dur: bar.took.map(micros),
        pid,
        tid,
        args,
    };
    if bar.took.is_some() { Event::Whole(span) } else { Event::Moment { span, s: "t" } }
}

/// Microseconds, exact to the nanosecond for a hundred days, because a double has 53 bits.
#[expect(clippy::cast_precision_loss, reason = "a fraction is what the format has")]
fn micros(span: Duration) -> f64 {
    let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    nanos as f64 / 1000.0
}
