//! Streams events to one client from its position in the ring, in chunks. The next chunk is made when the
//! client has taken the previous one.

use std::{sync::Arc, time::Duration};

use hyper::body::Bytes;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

use super::{
    over,
    ring::{Next, Ring},
    seats::Following,
};
use crate::sink::{
    render::jsonl::{Decimal, MissedBecause, StreamEvent, StreamNotice, StreamState, Version},
    select::filter::Filter,
};

/// The longest chunk, bytes, without its last event.
const CHUNK: usize = 16 << 10;
/// How often a stream without events shows that it is alive.
const ALIVE: Duration = Duration::from_secs(15);

/// The form of each record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One JSON object a line.
    Lines,
    /// Server-sent events (HTML Living Standard, section 9.2): the record as data, its place as id.
    SentEvents,
}

/// Where a client wants to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// With the next event.
    Now,
    /// After this event; of this run, if the run is given.
    Event { instance: Option<String>, seq: u64 },
}

impl Since {
    /// Parses `SEQ`, or `INSTANCE:SEQ` as a stream gives it.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (instance, seq) = match text.rsplit_once(':') {
            Some((instance, seq)) => (Some(instance.to_owned()), seq),
            None => (None, text),
        };
        Some(Self::Event { instance, seq: seq.parse().ok()? })
    }
}

/// The owner of the events.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) ring: Arc<Ring>,
    pub(super) instance: String,
    pub(super) node: String,
    pub(super) boot_id: String,
}

/// The subscription of a client.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) since: Since,
    pub(super) filter: Filter,
    pub(super) form: Form,
    /// Whether to continue with later events.
    pub(super) follow: bool,
}

/// Sends chunks until the client leaves, the server ends, or nothing more is wanted.
pub(super) async fn run(
    source: Source,
    subscription: Subscription,
    chunks: mpsc::Sender<Bytes>,
    mut end: watch::Receiver<bool>,
    _following: Following,
) {
    let mut news = source.ring.news();
    let newest = source.ring.newest();
    let mut chunk = Vec::new();
    let (mut place, other) = match &subscription.since {
        Since::Now => (newest, false),
        Since::Event { instance: Some(instance), .. } if *instance != source.instance => (0, true),
        // A number that does not exist yet also belongs to another run.
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
        // For another run it was already said that the number of missed events is unknown.
        if missed > 0 && !(other && place == 0) {
            let first = place + missed;
            source.say(StreamEvent::Missed, first, Some((why, Some(missed))), subscription.form, &mut chunk);
        }
        let had_all = next == place;
        place = next;
        for event in &events {
            source.write(event.seq, &event.line, subscription.form, &mut chunk);
        }
        // From now on, only this client can be too slow.
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
            // The last events are sent before the end.
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
        // This cannot fail: the keys are strings, and a vector accepts every write.
        let mut line = serde_json::to_vec(&record).unwrap_or_default();
        line.push(b'\n');
        self.write(place, &line, form, out);
    }
}
