//! Where rows come from: recordings, logs of events, boots, or the running agent.

use std::{
    fs::File as OpenFile,
    io::{self, BufRead, BufReader, Cursor, Read as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow};
use serde_json::{Value, json};

use super::Contexts;
use crate::{
    cli::{args::Form, boot, client::AgentArgs, output, replay::unreadable, snapshot::AgentSnapshot},
    model::hash::fnv,
    recording::{ReadError, Reader, history::History},
    replay::{Pace, ReplayError, replay},
    session::Session,
    sink::{
        Label,
        filter::Filter,
        fleet::{self, File, Rows, Unusable},
        jsonl::{self, boot::Boot},
    },
};

/// The longest line that is read, bytes. A finding with all its evidence is far shorter.
const LONGEST: u64 = 64 << 20;
/// How a recording begins.
const RECORDING: &[u8] = br#"{"sandprobe_recording":"#;

/// A source whose kind is known.
pub(super) struct Source {
    /// The name of its files: that of its first line, so that a log that has grown replaces what it was exported to before.
    name: String,
    from: From,
}

enum From {
    Recording(Input),
    Lines(Input),
    /// Lines that were read.
    Read {
        said: String,
        lines: Vec<Value>,
    },
}

/// A file, or standard input with what was read of it.
struct Input {
    file: PathBuf,
    reader: Option<Box<dyn BufRead>>,
}

/// The files of a source.
pub(super) struct Exported {
    pub(super) name: String,
    pub(super) files: Vec<File>,
    /// What is missing, in a line.
    pub(super) problem: Option<String>,
}

/// The lines of which no row could be made.
#[derive(Default)]
struct LeftOut {
    count: u64,
    first: Option<String>,
}

impl Source {
    /// Tells the kind of a file by its first line. Boots are read at once, for what they say of the nodes of other sources.
    pub(super) fn of(file: &Path, contexts: &mut Contexts) -> anyhow::Result<Self> {
        let is_stdin = file == Path::new("-");
        let mut reader: Box<dyn BufRead> =
            if is_stdin { Box::new(io::stdin().lock()) } else { Box::new(open(file)?) };
        let mut first = Vec::new();
        line(&mut reader, &mut first).with_context(|| format!("cannot read {}", file.display()))?;
        let name = format!("{:016x}", fnv(&first));
        let reader: Box<dyn BufRead> = Box::new(Cursor::new(first.clone()).chain(reader));
        if first.starts_with(RECORDING) {
            let input = Input { file: file.to_owned(), reader: is_stdin.then_some(reader) };
            return Ok(Self { name, from: From::Recording(input) });
        }
        let value: Option<Value> = serde_json::from_slice(&first).ok();
        match value {
            Some(value) if fleet::context(&value).is_some() => {
                let lines = values(file, reader)?;
                for (boot, context) in lines.iter().filter_map(fleet::context) {
                    contexts.entry(boot).or_default().learn(&context);
                }
                Ok(Self { name, from: From::Read { said: file.display().to_string(), lines } })
            }
            Some(value) if value.get("schema").is_some() => {
                let input = Input { file: file.to_owned(), reader: is_stdin.then_some(reader) };
                Ok(Self { name, from: From::Lines(input) })
            }
            Some(_) | None => Err(anyhow!(
                "{}: its first line is none of a recording, of events or of boots: give what sandprobe record, \
                 --log-file, -o json or sandprobe boot -o json has written",
                file.display()
            )),
        }
    }

    /// What the running agent has: its latest events, starts, findings, and the boots of its history.
    pub(super) fn of_agent(agent: &AgentArgs, contexts: &mut Contexts) -> anyhow::Result<Self> {
        let ask = |path: &str| {
            let answer = agent.ask_or_why(path);
            answer.map_err(|why| anyhow!("{}", why.unwrap_or_else(|| NOBODY.to_owned())))
        };
        let AgentSnapshot { label, findings, starts, now, .. } = AgentSnapshot::answered(&ask("/v1/state")?)?;
        let mut lines = Vec::new();
        for record in History::read(&ask("/v1/history")?).records {
            let row = boot::Row::new(record.node, record.recovery, now);
            lines.push(json!({ "boot": Boot::of(&row.told()) }));
        }
        for (boot, context) in lines.iter().filter_map(fleet::context) {
            contexts.entry(boot).or_default().learn(&context);
        }
        let events = ask("/v1/events?since=0&follow=false")?;
        let events = events.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        for event in events {
            lines.push(serde_json::from_slice(event).context("what the agent answers")?);
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
        let name = format!("agent-{boot_id}-{}", label.wall_ns(now));
        Ok(Self { name, from: From::Read { said: "the agent".to_owned(), lines } })
    }

    pub(super) fn export(self, contexts: &Contexts) -> anyhow::Result<Exported> {
        let Self { name, from } = self;
        let (said, (files, left_out, cut_off)) = match from {
            From::Recording(input) => (input.file.display().to_string(), recording(input, contexts)?),
            From::Lines(input) => (input.file.display().to_string(), lines(input, contexts)?),
            From::Read { said, lines } => (said, read(&lines, contexts)?),
        };
        let problem = cut_off.or_else(|| left_out.told(&said));
        Ok(Exported { name, files, problem })
    }
}

const NOBODY: &str = "no agent answers on this node: start sandprobe run, or give recordings or logs as FILE";

type Made = (Vec<File>, LeftOut, Option<String>);

fn of_finding(label: &Label, finding: Value) -> Value {
    json!({ "schema": jsonl::SCHEMA, "node": label.node, "boot_id": label.boot_id, "finding": finding })
}

fn read(lines: &[Value], contexts: &Contexts) -> anyhow::Result<Made> {
    let (mut rows, mut left_out) = (Rows::new(contexts), LeftOut::default());
    for (line, number) in lines.iter().zip(1..) {
        left_out.take(number, rows.add(line))?;
    }
    Ok((rows.finish()?, left_out, None))
}

fn lines(input: Input, contexts: &Contexts) -> anyhow::Result<Made> {
    let Input { file, reader } = input;
    let mut reader = match reader {
        Some(reader) => reader,
        None => Box::new(open(&file)?),
    };
    let (mut rows, mut left_out, mut text) = (Rows::new(contexts), LeftOut::default(), Vec::new());
    for number in 1.. {
        text.clear();
        line(&mut reader, &mut text).with_context(|| format!("cannot read {}", file.display()))?;
        if text.is_empty() {
            break;
        }
        left_out.take(number, rows.add_line(&text))?;
    }
    Ok((rows.finish()?, left_out, None))
}

/// Replays it. What is known of the boot is known only at its end, so the lines are kept until then.
fn recording(input: Input, contexts: &Contexts) -> anyhow::Result<Made> {
    let Input { file, reader } = input;
    let reader = match reader {
        Some(reader) => reader,
        None => Box::new(open(&file)?),
    };
    let mut reader = Reader::open(reader).map_err(|error| unreadable(&file, &error))?;
    let header = reader.header().clone();
    let mut session = Session::new(&header, Filter::default(), output::format(Form::Json));
    let ended = replay(&mut reader, Pace::FlatOut, |call| session.call(call));
    let cut_off = match ended {
        Ok(()) => None,
        Err(ReplayError::Make(error)) => return Err(error.into()),
        Err(ReplayError::Read(error @ ReadError::CutOff { .. })) => {
            Some(unreadable(&file, &error).to_string())
        }
        Err(ReplayError::Read(error)) => return Err(unreadable(&file, &error)),
    };
    let row = boot::Row::of_recording(header, session.recovery().clone(), session.engine().now());
    let boot = json!({ "boot": Boot::of(&row.told()) });
    let mut own = Contexts::new();
    if let Some((id, mut context)) = fleet::context(&boot) {
        if let Some(known) = contexts.get(&id) {
            context.learn(known);
        }
        own.insert(id, context);
    }
    let (mut rows, mut left_out) = (Rows::new(&own), LeftOut::default());
    let text = std::mem::take(session.output());
    let texts = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    for (text, number) in texts.zip(1..) {
        left_out.take(number, rows.add_line(text))?;
    }
    left_out.take(0, rows.add(&boot))?;
    Ok((rows.finish()?, left_out, cut_off))
}

impl LeftOut {
    /// Counts a line of which no row could be made. What cannot be written ends the export.
    fn take(&mut self, number: u64, added: Result<(), Unusable>) -> anyhow::Result<()> {
        match added {
            Ok(()) => Ok(()),
            Err(Unusable::Unwritable(why)) => Err(why.into()),
            Err(why) => {
                self.count += 1;
                self.first.get_or_insert_with(|| format!("line {number}: {why}"));
                Ok(())
            }
        }
    }

    fn told(&self, said: &str) -> Option<String> {
        let first = self.first.as_ref()?;
        Some(match self.count {
            1 => format!("{said}: one line was left out: {first}"),
            count => format!("{said}: {count} lines were left out, first {first}"),
        })
    }
}

fn open(file: &Path) -> anyhow::Result<BufReader<OpenFile>> {
    let opened = OpenFile::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    Ok(BufReader::with_capacity(64 << 10, opened))
}

/// Reads a line, or nothing at the end.
fn line(reader: &mut dyn BufRead, text: &mut Vec<u8>) -> io::Result<()> {
    let read = reader.take(LONGEST).read_until(b'\n', text)?;
    if u64::try_from(read).is_ok_and(|read| read == LONGEST) {
        return Err(io::Error::other(format!("a line is longer than {LONGEST} bytes")));
    }
    Ok(())
}

/// All lines of a file with boots.
fn values(file: &Path, mut reader: Box<dyn BufRead>) -> anyhow::Result<Vec<Value>> {
    let (mut values, mut text) = (Vec::new(), Vec::new());
    for number in 1.. {
        text.clear();
        line(&mut reader, &mut text).with_context(|| format!("cannot read {}", file.display()))?;
        if text.is_empty() {
            break;
        }
        let value = serde_json::from_slice(&text);
        values.push(value.with_context(|| format!("{}: line {number} is no JSON", file.display()))?);
    }
    Ok(values)
}
