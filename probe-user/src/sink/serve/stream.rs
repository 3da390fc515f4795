//! Events as they come, to one client: from its place in the ring on, in chunks of which the next is made when the one
//! before was taken.

use std::{sync::Arc, time::Duration};

use hyper::body::Bytes;
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc, watch},
    time::{Instant, sleep_until},
};

use super::{
    over,
    ring::{Next, Ring},
};
use crate::sink::{
    filter::Filter,
    jsonl::{Decimal, MissedBecause, StreamEvent, StreamNotice, StreamState, Version},
};

/// Longest chunk, beside its last event.
const CHUNK: usize = 16 << 10;
/// A stream in which nothing happens shows that it is alive.
const ALIVE: Duration = Duration::from_secs(15);

/// How each record is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One JSON object a line.
    Lines,
    /// Server-sent events (HTML Living Standard, section 9.2): the record as data, its place as id.
    SentEvents,
}

/// Where a client wants to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// With what comes from now on.
    Now,
    /// Behind this event of this run, if it names the run.
    Event { instance: Option<String>, seq: u64 },
}

impl Since {
    /// `SEQ`, or `INSTANCE:SEQ` as a stream gives it.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (instance, seq) = match text.rsplit_once(':') {
            Some((instance, seq)) => (Some(instance.to_owned()), seq),
            None => (None, text),
        };
        Some(Self::Event { instance, seq: seq.parse().ok()? })
    }
}

/// Whose events they are.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) ring: Arc<Ring>,
    pub(super) instance: String,
    pub(super) node: String,
    pub(super) boot_id: String,
}

/// What one client asked to follow.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) since: Since,
    pub(super) filter: Filter,
    pub(super) form: Form,
    /// Whether to go on with what comes later.
    pub(super) follow: bool,
}

/// Sends chunks until the client is gone, or the server ends, or nothing more is wanted.
pub(super) async fn run(
    source: Source,
    subscription: Subscription,
    chunks: mpsc::Sender<Bytes>,
    mut end: watch::Receiver<bool>,
    _permit: OwnedSemaphorePermit,
) {
    let mut news = source.ring.news();
    let newest = source.ring.newest();
    let mut chunk = Vec::new();
    let (mut place, other) = match &subscription.since {
        Since::Now => (newest, false),
        Since::Event { instance: Some(instance), .. } if *instance != source.instance => (0, true),
        // A number that was not given yet is of another run too.
        Since::Event { seq, .. } if *seq > newest => (0, true),
        Since::Event { seq, .. } => (*seq, false),
    };
    source.say(StreamEvent::Opened, place, None, subscription.form, &mut chunk);
    if other {
        let missing = Some((MissedBecause::OtherRun, None));
        source.say(StreamEvent::Missed, place, missing, subscription.form, &mut chunk);
    }
    let mut why = MissedBecause::Late;
    let mut alive = Instant::now() + ALIVE;
    loop {
        news.mark_unchanged();
        let Next { missed, events, place: next } = source.ring.after(place, &subscription.filter, CHUNK);
        // Of another run it was said already that nobody knows how much is missing.
        if missed > 0 && !(other && place == 0) {
            let first = place + missed;
            source.say(StreamEvent::Missed, first, Some((why, Some(missed))), subscription.form, &mut chunk);
        }
        let had_all = next == place;
        place = next;
        for event in &events {
            source.write(event.seq, &event.line, subscription.form, &mut chunk);
        }
        // From here on it is this client that did not keep up.
        why = MissedBecause::Slow;
        if !chunk.is_empty() {
            let room = tokio::select! {
                room = chunks.reserve() => room,
                () = over(&mut end) => return,
            };
            let Ok(room) = room else { return };
            room.send(Bytes::from(std::mem::take(&mut chunk)));
            alive = Instant::now() + ALIVE;
        }
        if !had_all {
            continue;
        }
        if !subscription.follow {
            return;
        }
        tokio::select! {
            // What was told last goes out before the end.
            biased;
            _ = news.changed() => {}
            () = sleep_until(alive) => source.say(StreamEvent::Alive, place, None, subscription.form, &mut chunk),
            () = chunks.closed() => return,
            () = over(&mut end) => return,
        }
    }
}

impl Source {
    fn write(&self, seq: u64, line: &[u8], form: Form, out: &mut Vec<u8>) {
        match form {
            Form::Lines => out.extend_from_slice(line),
            Form::SentEvents => {
                out.extend_from_slice(format!("id: {}:{seq}\ndata: ", self.instance).as_bytes());
                out.extend_from_slice(line);
                out.push(b'\n');
            }
        }
    }

    fn say(
        &self,
        event: StreamEvent,
        place: u64,
        missing: Option<(MissedBecause, Option<u64>)>,
        form: Form,
        out: &mut Vec<u8>,
    ) {
        let (why, missed) = missing.unzip();
        let stream = StreamState {
            instance: Some(&self.instance),
            since: Some(format!("{}:{place}", self.instance)),
            why,
            missed: missed.flatten().map(Decimal),
        };
        let record =
            StreamNotice { schema: Version, node: &self.node, boot_id: &self.boot_id, event, stream };
        // Neither fails: the keys are strings, and a vector takes all.
        let mut line = serde_json::to_vec(&record).unwrap_or_default();
        line.push(b'\n');
        self.write(place, &line, form, out);
    }
}
