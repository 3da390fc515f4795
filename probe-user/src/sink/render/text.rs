//! Aligned columns for people: time, event, pod, detail.
//!
//! **Invariant:** text from outside (names, arguments, paths) never reaches a terminal as control characters.

mod detail;

pub(crate) use detail::{detail, ended, named};

use super::wall_clock::TimeOfDay;
use crate::{
    model::change::{Change, ChangeKind, PodRef},
    sink::{
        Format, Label, Missing,
        escape::{brief, escaped},
    },
};

/// How the text is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    pub color: bool,
    /// The width of the terminal; longer lines are cut. `None` cuts nothing.
    pub width: Option<usize>,
}

#[derive(Debug)]
pub struct Text {
    style: Style,
    headed: bool,
    /// The width of the pod column. It grows with the longest name so far, so on most nodes it soon stays the
    /// same.
    pod_width: usize,
}

const EVENT_WIDTH: usize = "container.started".len();
const POD_WIDTH: usize = 24;
/// The widest pod column. A longer name (up to 253 characters) shifts only its own line.
const POD_WIDEST: usize = 56;

const DIM: &str = "\x1b[2m";
const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const RESET: &str = "\x1b[0m";

impl Text {
    #[must_use]
    pub fn new(style: Style) -> Self {
        Self { style, headed: false, pod_width: POD_WIDTH }
    }

    fn put(&self, out: &mut Vec<u8>, color: &str, text: &str) {
        if self.style.color && !color.is_empty() {
            for part in [color, text, RESET] {
                out.extend_from_slice(part.as_bytes());
            }
        } else {
            out.extend_from_slice(text.as_bytes());
        }
    }
}

impl Format for Text {
    fn write(&mut self, change: &Change, label: &Label, out: &mut Vec<u8>) {
        let pod = change.context.pod.as_ref().map_or_else(|| "-".to_owned(), pod_name);
        self.pod_width = self.pod_width.max(pod.chars().count().min(POD_WIDEST));
        let pod_width = self.pod_width;
        if !self.headed {
            self.headed = true;
            let head = format!("{:15}  {:EVENT_WIDTH$}  {:pod_width$}  DETAIL", "TIME (UTC)", "EVENT", "POD");
            self.put(out, DIM, &head);
            out.push(b'\n');
        }
        let time = TimeOfDay(label.wall_ns(change.at)).to_string();
        let used = time.len() + 2 + EVENT_WIDTH + 2 + pod_width.max(pod.chars().count()) + 2;
        let detail = brief(&detail(change));
        let detail = match self.style.width {
            Some(width) => cut(&detail, width.saturating_sub(used)),
            None => detail,
        };

        self.put(out, DIM, &time);
        out.extend_from_slice(b"  ");
        self.put(out, color(&change.what), &format!("{:EVENT_WIDTH$}", change.what.into_str()));
        out.extend_from_slice(b"  ");
        self.put(out, BOLD, &format!("{pod:pod_width$}"));
        out.extend_from_slice(b"  ");
        out.extend_from_slice(detail.as_bytes());
        while out.last() == Some(&b' ') {
            out.pop();
        }
        out.push(b'\n');
    }

    fn missed(&mut self, count: u64, why: Missing, _label: &Label, out: &mut Vec<u8>) {
        let why = match why {
            Missing::Unwritten => "nobody read them in time, or there was no room",
            Missing::Rate => "there were more than --event-rate allows",
        };
        self.put(out, RED, &format!("-- {count} events were not written here: {why}"));
        out.push(b'\n');
    }
}

/// `namespace/name`, as far as it is known.
fn pod_name(pod: &PodRef) -> String {
    match (&pod.namespace, &pod.name, &pod.uid) {
        (Some(namespace), Some(name), _) => format!("{}/{}", escaped(namespace), escaped(name)),
        (None, Some(name), _) => format!("?/{}", escaped(name)),
        (_, None, Some(uid)) => uid.to_string(),
        (Some(namespace), None, None) => format!("{}/?", escaped(namespace)),
        (None, None, None) => "-".to_owned(),
    }
}

/// The color of an event: red for trouble, yellow for an end, green for a beginning.
fn color(what: &ChangeKind) -> &'static str {
    match what {
        ChangeKind::Gap { .. } | ChangeKind::FindingConfirmed(_) => RED,
        ChangeKind::FindingOpened(_) => YELLOW,
        ChangeKind::FindingClosed(_) => GREEN,
        ChangeKind::ProcessExit { end, .. }
        | ChangeKind::ContainerExited { end, .. }
        | ChangeKind::CniFinished { end: Some(end), .. }
            if end.code != 0 =>
        {
            RED
        }
        ChangeKind::NetnsCreated { .. }
        | ChangeKind::CgroupCreated { .. }
        | ChangeKind::AddressAdded { .. }
        | ChangeKind::SandboxCreated
        | ChangeKind::SandboxReady { .. }
        | ChangeKind::ContainerStarted { .. }
        | ChangeKind::ContainerListening { .. }
        | ChangeKind::PodFirstSeen
        | ChangeKind::PodStarted(_) => GREEN,
        ChangeKind::NetnsDestroyed { .. }
        | ChangeKind::NetnsFreed { .. }
        | ChangeKind::CgroupEmptied
        | ChangeKind::CgroupRemoved { .. }
        | ChangeKind::AddressRemoved { .. }
        | ChangeKind::SandboxStopped { .. }
        | ChangeKind::ContainerExited { .. }
        | ChangeKind::PodGone { .. } => YELLOW,
        ChangeKind::ProcessExec { .. }
        | ChangeKind::ProcessExit { .. }
        | ChangeKind::CniStarted { .. }
        | ChangeKind::CniFinished { .. } => "",
    }
}

/// `text` in `width` columns, with a mark where it was cut.
#[must_use]
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    if width > 0 {
        cut.push('…');
    }
    cut
}

#[cfg(test)]
mod tests;
