//! What a picture shows, whatever it is drawn as: rows, each of which is a time and the bars that lie in it.
//!
//! **Invariant:** names and sentences may have text from outside in them: who draws them makes them safe.

pub mod boot;
pub mod pod;

use std::time::Duration;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chart {
    pub title: &'static str,
    /// What the rows are: `pod`, `boot`.
    pub noun: &'static str,
    /// What is to be known of the whole, a name and a word each.
    pub about: Vec<(&'static str, String)>,
    pub tables: Vec<Table>,
    pub rows: Vec<Row>,
    /// What the rows do not tell, a sentence each.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub title: &'static str,
    pub headings: Vec<&'static str>,
    /// Of as many cells as there are headings; the first is the row's name.
    pub rows: Vec<Vec<String>>,
}

/// A pod's start, a boot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    pub name: String,
    /// What makes it less than whole, a word each.
    pub marks: Vec<&'static str>,
    pub facts: Vec<(&'static str, String)>,
    /// A sentence each.
    pub notes: Vec<String>,
    /// Where a trace, which has one time for all rows, has its beginning.
    pub begin: Duration,
    /// As long as the parts are together.
    pub took: Duration,
    pub bars: Vec<Bar>,
    /// It is shown at once with all that is in it.
    pub is_open: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bar {
    /// Whose it is: of bars in one lane no two are at the same time.
    pub lane: String,
    pub name: String,
    pub tone: Series,
    /// Since the row's beginning.
    pub at: Duration,
    /// None: a moment.
    pub took: Option<Duration>,
    /// One of those that together are the row's whole.
    pub is_part: bool,
    pub marks: Vec<&'static str>,
    pub notes: Vec<String>,
}

/// What a bar is about, by which it has its color.
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
    /// The end of what lies furthest.
    #[must_use]
    pub fn span(&self) -> Duration {
        let ends = self.bars.iter().map(|bar| bar.at.saturating_add(bar.took.unwrap_or_default()));
        ends.max().unwrap_or_default().max(self.took)
    }

    pub fn parts(&self) -> impl Iterator<Item = &Bar> {
        self.bars.iter().filter(|bar| bar.is_part)
    }

    /// The first of the longest parts.
    #[must_use]
    pub fn slowest(&self) -> Option<&Bar> {
        self.bars.iter().rev().filter(|bar| bar.is_part).max_by_key(|bar| bar.took)
    }
}

impl Series {
    /// What it means.
    #[must_use]
    pub fn meaning(self) -> &'static str {
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
