//! The content of a picture, whatever draws it: rows, each with a time span and bars in it.
//!
//! **Invariant:** names and sentences may hold text from outside; the code that draws them escapes it.

pub mod boot;
pub mod pod;

use std::time::Duration;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chart {
    pub title: &'static str,
    /// The kind of the rows: `pod`, `boot`.
    pub noun: &'static str,
    /// Facts about the whole picture: a name and a word each.
    pub about: Vec<(&'static str, String)>,
    pub tables: Vec<Table>,
    pub rows: Vec<Row>,
    /// Notes about what the rows do not show, a sentence each.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub title: &'static str,
    pub headings: Vec<&'static str>,
    /// Each row has as many cells as there are headings. The first cell is the row's name.
    pub rows: Vec<Vec<String>>,
}

/// A row: a pod's start or a boot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    pub name: String,
    /// Why the row is incomplete, a word each.
    pub marks: Vec<&'static str>,
    pub facts: Vec<(&'static str, String)>,
    /// Notes, a sentence each.
    pub notes: Vec<String>,
    /// The beginning of the row in a trace, which has one time axis for all rows.
    pub begin: Duration,
    /// The sum of the parts.
    pub took: Duration,
    pub bars: Vec<Bar>,
    /// The row's details are shown without a click.
    pub is_open: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bar {
    /// The thing that the bar is about. Bars of one lane never overlap.
    pub lane: String,
    pub name: String,
    pub tone: Series,
    /// Since the beginning of the row.
    pub at: Duration,
    /// `None` for a single moment.
    pub took: Option<Duration>,
    /// Whether it is one of the parts that add up to the row.
    pub is_part: bool,
    pub marks: Vec<&'static str>,
    pub notes: Vec<String>,
}

/// The subject of a bar, which gives its color.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Series {
    Prepare,
    Retry,
    Netns,
    Cni,
    Between,
    Pause,
    Image,
    Runtime,
    Cgroup,
    Init,
    Listening,
    First,
    Second,
    Third,
    Fourth,
    Down,
    Lost,
    Failed,
    Done,
    Moment,
}

impl Row {
    /// The latest end of a bar.
    #[must_use]
    pub(crate) fn span(&self) -> Duration {
        let ends = self.bars.iter().map(|bar| bar.at.saturating_add(bar.took.unwrap_or_default()));
        ends.max().unwrap_or_default().max(self.took)
    }

    pub fn parts(&self) -> impl Iterator<Item = &Bar> {
        self.bars.iter().filter(|bar| bar.is_part)
    }

    /// The first of the longest parts.
    #[must_use]
    pub(crate) fn slowest(&self) -> Option<&Bar> {
        self.bars.iter().rev().filter(|bar| bar.is_part).max_by_key(|bar| bar.took)
    }
}

impl Series {
    /// Its meaning.
    #[must_use]
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Self::Prepare => "prepare: the pod's cgroup is there, no sandbox yet",
            Self::Retry => "retry: sandboxes that came to nothing",
            Self::Netns => "netns: no plugin was called yet",
            Self::Cni => "cni: a plugin's ADD, retries included",
            Self::Between => "between two plugins",
            Self::Pause => "pause: the network is there, the sandbox's own program does not run",
            Self::Image => "image: nothing of the next container is there",
            Self::Runtime => "runtime: the container's runtime runs",
            Self::Cgroup => "cgroup: the container's cgroup is there, its program does not run",
            Self::Init => "init, post_start: an init container or a postStart hook runs (inferred)",
            Self::Listening => {
                "listening: the container's program runs, no socket of it listens; beyond the start"
            }
            Self::First => "period 1: to the kubelet",
            Self::Second => "period 2: to the first static pod",
            Self::Third => "period 3: to the first service pod",
            Self::Fourth => "period 4: to the last service pod",
            Self::Down => "from the order of the restart to the kernel's start",
            Self::Lost => "lost to a network that was not there",
            Self::Failed => "an ADD that failed",
            Self::Done => "an ADD that did not fail",
            Self::Moment => "a moment",
        }
    }
}
