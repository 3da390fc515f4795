//! A recorded line as a template for copies with other names, times and paces.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::Value;

/// A part of a line.
enum Piece {
    Text(String),
    /// A name that differs in each copy.
    Name(usize),
    /// A time since boot, relative to the first one of the recording.
    Boot(i64),
    /// A wall-clock time, relative to the first one of the recording.
    Wall(i64),
    /// A duration.
    Span(i64),
    /// The wall time of the boot itself, as nanoseconds since the epoch.
    BootWall,
    Seq,
}

/// Lines that are copied together.
pub(crate) struct Template {
    lines: Vec<Vec<Piece>>,
}

/// The properties of a copy.
pub(crate) struct Copy<'a> {
    pub(crate) names: &'a [String],
    /// The boot's wall time, and when this begins since boot; nanoseconds.
    pub(crate) boot_wall_ns: i64,
    pub(crate) begin_ns: i64,
    /// The pace: durations in hundredths of the recorded ones.
    pub(crate) pace: i64,
}

/// The zero points of a recording's times.
#[derive(Clone, Copy)]
pub(crate) struct Zero {
    pub(crate) boot_wall_ns: i64,
    pub(crate) begin_ns: i64,
}

const BOOT: [&str; 4] = ["boot_ns", "begin_ns", "since_boot_ns", "start_ns"];
const WALL: [&str; 5] = ["at", "since", "opened_at", "confirmed_at", "closed_at"];
const BOOT_WALL: [&str; 3] = ["boot_wall_ns", "wall_ns", "last_heartbeat_wall_ns"];

impl Template {
    /// `names` are the strings that differ in each copy. The longest match counts.
    pub(crate) fn of(lines: &[Value], zero: Zero, names: &[String]) -> Self {
        let compile = |line: &Value| {
            let mut pieces = Vec::new();
            compile(line, "", zero, names, &mut pieces);
            join(pieces)
        };
        Self { lines: lines.iter().map(compile).collect() }
    }

    /// Appends a copy. `seq` counts the events.
    pub(crate) fn copy(&self, copy: &Copy<'_>, seq: &mut u64, to: &mut String) {
        for line in &self.lines {
            line.iter().for_each(|piece| piece.write(copy, seq, to));
            to.push('\n');
        }
    }
}

impl Piece {
    fn write(&self, copy: &Copy<'_>, seq: &mut u64, to: &mut String) {
        let paced = |span: i64| span * copy.pace / 100;
        match self {
            Self::Text(text) => to.push_str(text),
            Self::Name(which) => to.push_str(&copy.names[*which]),
            Self::Boot(since) => write!(to, "{}", copy.begin_ns + paced(*since)).expect("a text"),
            Self::Wall(since) => {
                let at =
                    Timestamp::from_nanosecond(i128::from(copy.boot_wall_ns + copy.begin_ns + paced(*since)));
                write!(to, "{:.9}", at.expect("a time")).expect("a text");
            }
            Self::Span(span) => write!(to, "{}", paced(*span)).expect("a text"),
            Self::BootWall => write!(to, "{}", copy.boot_wall_ns).expect("a text"),
            Self::Seq => {
                *seq += 1;
                write!(to, "{seq}").expect("a text");
            }
        }
    }
}

fn compile(value: &Value, key: &str, zero: Zero, names: &[String], to: &mut Vec<Piece>) {
    let text = |text: &str| Piece::Text(text.to_owned());
    match value {
        Value::Object(members) => {
            to.push(text("{"));
            for (number, (key, value)) in members.iter().enumerate() {
                let comma = if number > 0 { "," } else { "" };
                to.push(Piece::Text(format!("{comma}{}:", Value::from(key.as_str()))));
                compile(value, key, zero, names, to);
            }
            to.push(text("}"));
        }
        Value::Array(items) => {
            to.push(text("["));
            for (number, value) in items.iter().enumerate() {
                to.extend((number > 0).then(|| text(",")));
                compile(value, key, zero, names, to);
            }
            to.push(text("]"));
        }
        Value::String(string) => {
            to.push(text("\""));
            let number = || string.parse::<i64>().expect("a number");
            if BOOT.contains(&key) {
                to.push(Piece::Boot(number() - zero.begin_ns));
            } else if BOOT_WALL.contains(&key) {
                to.push(Piece::BootWall);
            } else if key.ends_with("_ns") && key != "target_ns" {
                to.push(Piece::Span(number()));
            } else if WALL.contains(&key) {
                let at: Timestamp = string.parse().expect("a time");
                let since = at.as_nanosecond() - i128::from(zero.boot_wall_ns + zero.begin_ns);
                to.push(Piece::Wall(i64::try_from(since).expect("near")));
            } else {
                named(string, names, to);
            }
            to.push(text("\""));
        }
        Value::Number(_) if key == "seq" => to.push(Piece::Seq),
        Value::Null | Value::Bool(_) | Value::Number(_) => to.push(Piece::Text(value.to_string())),
    }
}

/// Splits a string into its names and the parts between them.
fn named(string: &str, names: &[String], to: &mut Vec<Piece>) {
    let first =
        names.iter().enumerate().filter_map(|(which, name)| Some((string.find(name.as_str())?, which)));
    let longest = |(at, which): &(usize, usize)| (*at, usize::MAX - names[*which].len());
    let escaped = |text: &str| {
        let quoted = Value::from(text).to_string();
        quoted[1..quoted.len() - 1].to_owned()
    };
    match first.min_by_key(longest) {
        None => to.push(Piece::Text(escaped(string))),
        Some((at, which)) => {
            to.push(Piece::Text(escaped(&string[..at])));
            to.push(Piece::Name(which));
            named(&string[at + names[which].len()..], names, to);
        }
    }
}

/// Joins adjacent strings.
fn join(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut joined: Vec<Piece> = Vec::new();
    for piece in pieces {
        match (joined.last_mut(), piece) {
            (Some(Piece::Text(last)), Piece::Text(text)) => last.push_str(&text),
            (_, piece) => joined.push(piece),
        }
    }
    joined
}
