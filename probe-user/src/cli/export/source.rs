//! Where rows come from: recordings, logs of events, boots, or the running agent.

use std::{
    fmt::Display,
    io::{self, BufRead, Cursor, Read as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow};
use serde_json::{Value, json};

use super::Contexts;
use crate::{
    cli::{
        args::Form,
        boot::{self, this},
        client::{AgentArgs, HISTORY, STATE},
        input::{open, packed},
        output,
        replay::unreadable,
        snapshot::AgentSnapshot,
    },
    model::hash::fnv,
    recording::{ReadError, Reader},
    replay::{Pace, ReplayError, replay},
    session::Session,
    sink::{
        Label,
        fleet::{self, File, Missed, Rows, Unusable},
        render::jsonl::{
            self,
            boot::{Boot, restarts},
        },
        select::filter::Filter,
    },
    words::count::counted,
};

/// The longest line that is read, bytes. A finding with all its evidence is far shorter.
const MAX_LINE_BYTES: u64 = 64 << 20;
/// The kind of a file must show within this many lines, not only in the first: it may be the rest of a cut
/// line.
const HEAD: usize = 64;
/// How many bytes these lines may have together, because they are kept until it is the file's turn.
const HEAD_BYTES: u64 = MAX_LINE_BYTES;
/// The agent's path for the latest events that it has.
const EVENTS: &str = "/v1/events?since=0&follow=false";
/// How a recording begins.
const RECORDING: &[u8] = br#"{"sandprobe_recording":"#;

/// A source whose kind is known.
pub(super) struct Source {
    /// The name of its files, made from its first lines up to the one that shows its kind, so that a log that
    /// has grown replaces what it was exported to before.
    name: String,
    from: From,
}

enum From {
    Recording(Input),
    Lines(Input),
    /// Lines that were read, with their numbers.
    Read {
        said: String,
        lines: Vec<(u64, Value)>,
        left_out: LeftOut,
    },
}

struct Input {
    file: PathBuf,
    content: Content,
}

/// What a source has, from its beginning.
enum Content {
    /// A regular file, which is opened again when it is its turn: there may be more files than a process may
    /// have open.
    File,
    /// What can be read only once, with what was read of it already.
    Once(Box<dyn BufRead>),
}

impl Input {
    fn new(file: &Path, is_plain: bool, reader: Box<dyn BufRead>) -> Self {
        let content = if is_plain { Content::File } else { Content::Once(reader) };
        Self { file: file.to_owned(), content }
    }

    /// Opens the source. `None`: it no longer begins with the lines that gave it this name. A log that is
    /// rotated meanwhile leaves its name to another file, which may have its inode, or to none.
    fn open(self, name: &str) -> anyhow::Result<Option<Box<dyn BufRead>>> {
        let Self { file, content } = self;
        let Content::Once(reader) = content else {
            let mut reader = match open(&file) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                opened => opened.with_context(|| format!("cannot open {}", file.display()))?,
            };
            let mut head = Vec::new();
            kind(&mut reader, &mut head).with_context(|| format!("cannot read {}", file.display()))?;
            let is_it = named(&head) == name;
            return Ok(is_it.then(|| Box::new(Cursor::new(head).chain(reader)) as Box<dyn BufRead>));
        };
        Ok(Some(reader))
    }
}

/// Returns the name of the files of a source that begins with `head`.
fn named(head: &[u8]) -> String {
    format!("{:016x}", fnv(head))
}

/// What a file contains, by its first lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Recording,
    Lines,
    Boots,
    /// The file is still empty.
    Empty,
}

/// The files of a source.
pub(super) struct Exported {
    pub(super) name: String,
    pub(super) files: Vec<File>,
    /// What is missing, a line each.
    pub(super) problems: Vec<String>,
}

/// The lines that no row could be made of, and the events that were missing before.
#[derive(Default)]
struct LeftOut {
    count: u64,
    first: Option<String>,
    missed: Missed,
}

impl Source {
    /// Finds the kind of a file by its first lines. Boots are read at once, for what they say about the nodes
    /// of other sources.
    pub(super) fn of(file: &Path, contexts: &mut Contexts) -> anyhow::Result<Self> {
        let (mut reader, is_plain): (Box<dyn BufRead>, bool) = if file == Path::new("-") {
            (Box::new(io::stdin().lock()), false)
        } else {
            let reader = open(file).with_context(|| format!("cannot open {}", file.display()))?;
            // What came from a pipe cannot be read again.
            let about = reader.get_ref().metadata();
            let is_plain = about.with_context(|| format!("cannot read {}", file.display()))?.is_file();
            (Box::new(reader), is_plain)
        };
        let mut head = Vec::new();
        let kind = kind(&mut reader, &mut head).with_context(|| format!("cannot read {}", file.display()))?;
        let name = named(&head);
        let packed = packed(file, &head);
        let reader: Box<dyn BufRead> = Box::new(Cursor::new(head).chain(reader));
        let from = match kind {
            Some(Kind::Recording) => From::Recording(Input::new(file, is_plain, reader)),
            Some(Kind::Lines) => From::Lines(Input::new(file, is_plain, reader)),
            Some(Kind::Boots | Kind::Empty) => {
                let (lines, left_out) = values(file, reader)?;
                learn(contexts, &lines);
                From::Read { said: file.display().to_string(), lines, left_out }
            }
            None => {
                return Err(packed.unwrap_or_else(|| {
                    anyhow!(
                        "{}: its first lines are none of a recording, of events or of boots: give what sandprobe record, \
                         --log-file, -o json or sandprobe boot -o json has written",
                        file.display()
                    )
                }));
            }
        };
        Ok(Self { name, from })
    }

    /// Returns the name of its files, if it gives any.
    pub(super) fn name(&self) -> Option<&str> {
        let is_empty = matches!(&self.from, From::Read { lines, .. } if lines.is_empty());
        (!is_empty).then_some(&self.name)
    }

    /// Reads what the running agent has: its latest events, starts, findings, and the boots of its history.
    pub(super) fn of_agent(agent: &AgentArgs, contexts: &mut Contexts) -> anyhow::Result<Self> {
        let answer = ask(agent, STATE)?;
        let AgentSnapshot { label, findings, starts, now, .. } = AgentSnapshot::answered(agent, &answer)?;
        let records = this::answered(agent, &ask(agent, HISTORY)?)?.records.into_iter();
        let rows: Vec<_> = records.map(|record| boot::Row::new(record.node, record.recovery, now)).collect();
        let mut lines = of_boots(&rows);
        let events = ask(agent, EVENTS)?;
        let events = events.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        for event in events {
            lines.push(serde_json::from_slice(event).with_context(|| agent.answer_at(EVENTS))?);
        }
        let mut kept = Vec::new();
        starts.iter().for_each(|start| jsonl::started(start, &label, &mut kept));
        for start in kept.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            lines.push(serde_json::from_slice(start)?);
        }
        for finding in &findings {
            lines.push(of_finding(&label, serde_json::to_value(jsonl::Finding::of(finding, &label))?));
        }
        let Label { boot_id, .. } = &label;
        let lines: Vec<_> = (1..).zip(lines).collect();
        learn(contexts, &lines);
        let name = named(format!("agent {boot_id} {}", label.wall_ns(now)).as_bytes());
        Ok(Self {
            name,
            from: From::Read { said: "the agent".to_owned(), lines, left_out: LeftOut::default() },
        })
    }

    pub(super) fn export(self, contexts: &Contexts) -> anyhow::Result<Exported> {
        let Self { name, from } = self;
        let (said, made) = match from {
            From::Recording(input) => made(input, &name, contexts, recording)?,
            From::Lines(input) => made(input, &name, contexts, lines)?,
            From::Read { said, lines, left_out } => (said, Some(read(&lines, left_out, contexts)?)),
        };
        let Some((files, left_out, cut_off)) = made else {
            let problem = format!(
                "{said}: it was replaced or removed meanwhile, as when a log is rotated: export it again"
            );
            return Ok(Exported { name, files: Vec::new(), problems: vec![problem] });
        };
        let problems = cut_off.into_iter().chain(left_out.problems(&said)).collect();
        Ok(Exported { name, files, problems })
    }
}

fn ask(agent: &AgentArgs, path: &str) -> anyhow::Result<Vec<u8>> {
    agent.ask_or_why(path).map_err(|why| match why.why() {
        Some(why) => anyhow!("{why}"),
        None => anyhow!("{}; or give recordings or logs as FILE", agent.nobody()),
    })
}

type Made = (Vec<File>, LeftOut, Option<String>);

/// Makes files of an input with `make`. `None`: the input is no longer there.
fn made(
    input: Input,
    name: &str,
    contexts: &Contexts,
    make: fn(&Path, Box<dyn BufRead>, &Contexts) -> anyhow::Result<Made>,
) -> anyhow::Result<(String, Option<Made>)> {
    let file = input.file.clone();
    let made = input.open(name)?.map(|reader| make(&file, reader, contexts)).transpose()?;
    Ok((file.display().to_string(), made))
}

/// Returns the boots and the restarts since them, in the form of `boot -o json` and `boot --restarts -o
/// json`.
fn of_boots(rows: &[boot::Row]) -> Vec<Value> {
    let boots = boot::boots(rows);
    let (restarts, _) = restarts(&boots);
    let boots = boots.iter().map(|boot| json!({ "boot": Boot::of(boot) }));
    boots.chain(restarts.iter().map(|it| json!({ "restart": it }))).collect()
}

fn of_finding(label: &Label, finding: Value) -> Value {
    json!({ "schema": jsonl::SCHEMA, "node": label.node, "boot_id": label.boot_id, "finding": finding })
}

/// Learns what boots say about the nodes.
fn learn(contexts: &mut Contexts, lines: &[(u64, Value)]) {
    for (boot, context) in lines.iter().filter_map(|(_, line)| fleet::context(line)) {
        contexts.entry(boot).or_default().learn(&context);
    }
}

fn read(lines: &[(u64, Value)], mut left_out: LeftOut, contexts: &Contexts) -> anyhow::Result<Made> {
    let mut rows = Rows::new(contexts);
    for (number, line) in lines {
        left_out.take(&format_args!("line {number}"), rows.add(line))?;
    }
    Ok((rows.finish()?, left_out, None))
}

fn lines(file: &Path, mut reader: Box<dyn BufRead>, contexts: &Contexts) -> anyhow::Result<Made> {
    let mut rows = Rows::new(contexts);
    let mut left_out = LeftOut::default();
    let mut text = Vec::new();
    for number in 1.. {
        text.clear();
        line(&mut reader, &mut text).with_context(|| format!("cannot read {}", file.display()))?;
        if text.is_empty() {
            break;
        }
        left_out.take(&format_args!("line {number}"), rows.add_line(&text))?;
    }
    left_out.missed = rows.missed();
    Ok((rows.finish()?, left_out, None))
}

/// Replays a recording. What is known of the boot is known only at its end, so the lines are kept until then.
fn recording(file: &Path, reader: Box<dyn BufRead>, contexts: &Contexts) -> anyhow::Result<Made> {
    let mut reader = Reader::open(reader).map_err(|error| unreadable(file, &error))?;
    let header = reader.header().clone();
    let mut session = Session::new(&header, Filter::default(), output::format(Form::Json));
    let ended = replay(&mut reader, Pace::FlatOut, |call| session.call(call));
    let cut_off = match ended {
        Ok(()) => None,
        Err(ReplayError::Make(error)) => return Err(error.into()),
        Err(ReplayError::Read(error @ ReadError::CutOff { .. })) => {
            Some(unreadable(file, &error).to_string())
        }
        Err(ReplayError::Read(error)) => return Err(unreadable(file, &error)),
    };
    let row = boot::Row::of_recording(header, session.recovery().clone(), session.engine().now());
    let of_boots = of_boots(&[row]);
    let mut own = Contexts::new();
    if let Some((id, mut context)) = of_boots.first().and_then(fleet::context) {
        if let Some(known) = contexts.get(&id) {
            context.learn(known);
        }
        own.insert(id, context);
    }
    let mut rows = Rows::new(&own);
    let mut left_out = LeftOut::default();
    let text = std::mem::take(session.output());
    let texts = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    for (text, number) in texts.zip(1_u64..) {
        left_out.take(&format_args!("event {number}"), rows.add_line(text))?;
    }
    for value in &of_boots {
        let what = if value.get("boot").is_some() { "the boot" } else { "a restart" };
        left_out.take(&what, rows.add(value))?;
    }
    Ok((rows.finish()?, left_out, cut_off))
}

impl LeftOut {
    /// Counts a line that no row could be made of. A row that cannot be written ends the export.
    fn take(&mut self, what: &dyn Display, added: Result<(), Unusable>) -> anyhow::Result<()> {
        match added {
            Ok(()) => Ok(()),
            Err(Unusable::Unwritable(why)) => Err(why.into()),
            Err(why) => {
                self.count += 1;
                self.first.get_or_insert_with(|| format!("{what}: {why}"));
                Ok(())
            }
        }
    }

    fn problems(&self, said: &str) -> Vec<String> {
        let lines = self.first.as_ref().map(|first| match self.count {
            1 => format!("{said}: one line was left out: {first}"),
            count => format!("{said}: {count} lines were left out, first {first}"),
        });
        let Missed { events, and_more } = self.missed;
        let missed = (events > 0 || and_more).then(|| {
            let misses = match (events, and_more) {
                (0, _) => "events".to_owned(),
                (_, true) => format!("at least {}", counted(events, "event")),
                (_, false) => counted(events, "event"),
            };
            format!("{said} misses {misses}, as it says itself")
        });
        lines.into_iter().chain(missed).collect()
    }
}

/// Reads a line, or nothing at the end.
fn line(reader: &mut dyn BufRead, text: &mut Vec<u8>) -> io::Result<()> {
    if is_cut(reader, text, MAX_LINE_BYTES)? {
        return Err(io::Error::other(format!("a line is longer than {MAX_LINE_BYTES} bytes")));
    }
    Ok(())
}

/// Reads a line of at most `longest` bytes. Returns true if it is longer.
fn is_cut(reader: &mut dyn BufRead, text: &mut Vec<u8>, longest: u64) -> io::Result<bool> {
    let read = reader.take(longest).read_until(b'\n', text)?;
    Ok(u64::try_from(read).is_ok_and(|read| read == longest) && !text.ends_with(b"\n"))
}

/// Reads lines until one shows what the file contains. `None`: none of the first ones does.
fn kind(reader: &mut dyn BufRead, head: &mut Vec<u8>) -> io::Result<Option<Kind>> {
    for number in 0..HEAD {
        let begin = head.len();
        let room = HEAD_BYTES.saturating_sub(u64::try_from(begin).unwrap_or(u64::MAX));
        if is_cut(reader, head, room)? {
            return Ok(None);
        }
        let text = head.get(begin..).unwrap_or_default();
        if text.is_empty() {
            return Ok((number == 0).then_some(Kind::Empty));
        }
        if number == 0 && text.starts_with(RECORDING) {
            return Ok(Some(Kind::Recording));
        }
        let Ok(value) = serde_json::from_slice::<Value>(text) else { continue };
        if fleet::is_of_boots(&value) {
            return Ok(Some(Kind::Boots));
        }
        if value.get("schema").is_some() {
            return Ok(Some(Kind::Lines));
        }
    }
    Ok(None)
}

/// Returns all lines of a file with boots, with their numbers.
fn values(file: &Path, mut reader: Box<dyn BufRead>) -> anyhow::Result<(Vec<(u64, Value)>, LeftOut)> {
    let mut values = Vec::new();
    let mut left_out = LeftOut::default();
    let mut text = Vec::new();
    for number in 1.. {
        text.clear();
        line(&mut reader, &mut text).with_context(|| format!("cannot read {}", file.display()))?;
        if text.is_empty() {
            break;
        }
        match serde_json::from_slice(&text) {
            Ok(value) => values.push((number, value)),
            Err(error) => left_out.take(&format_args!("line {number}"), Err(Unusable::NotJson(error)))?,
        }
    }
    Ok((values, left_out))
}

#[cfg(test)]
mod tests {
    use std::io::{self, BufRead, Read};

    use super::{HEAD_BYTES, kind};

    /// Lines of this length that never end. Counts what is read of them.
    struct Endless {
        line: usize,
        read: usize,
    }

    impl Read for Endless {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            for byte in &mut *to {
                self.read += 1;
                *byte = if self.read.is_multiple_of(self.line) { b'\n' } else { b'x' };
            }
            Ok(to.len())
        }
    }

    #[test]
    fn the_lines_that_tell_a_kind_are_bounded_together() {
        let bound = usize::try_from(HEAD_BYTES).expect("it fits");
        for line in [usize::MAX, bound / 3, 4 << 20] {
            let mut reader = io::BufReader::new(Endless { line, read: 0 });
            let mut head = Vec::new();
            assert!(kind(&mut reader as &mut dyn BufRead, &mut head).expect("it can be read").is_none());
            assert_eq!(head.len(), bound, "{line}");
        }
    }
}
