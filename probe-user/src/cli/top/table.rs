//! A pane as a table of text: what is in each pane, before the width of the terminal is known.

pub(super) mod addresses;
mod findings;
pub(super) mod signals;
mod starts;

use std::time::Duration;

use super::{
    model::Data,
    query::{Pane, Query},
};
use crate::sink::{escape::escaped, span::span};

/// What a cell means, from which its color follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tone {
    #[default]
    Plain,
    Faint,
    Good,
    Warning,
    Bad,
    /// It is going on right now.
    Live,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) tone: Tone,
}

/// A column. On a narrow terminal, a column of words gives up what it has beyond `least`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) kind: ColumnKind,
    pub(super) least: usize,
    pub(super) most: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnKind {
    Words,
    /// Names of pods: their last characters tell replicas apart.
    Names,
    /// They are aligned to the right, and are never cut.
    Numbers,
}

pub(super) struct Row {
    /// Identifies the row after a refresh.
    pub(super) id: String,
    pub(super) cells: Vec<Cell>,
    /// All of it in one sentence, for the line below the panes.
    pub(super) said: String,
}

pub(super) struct Table {
    /// How many rows there are, next to the pane's name.
    pub(super) count: String,
    /// The last column takes the width that is left.
    pub(super) columns: &'static [Column],
    pub(super) rows: Vec<Row>,
    /// The text that is shown instead of rows.
    pub(super) empty: String,
}

/// The panes in their order.
pub(super) type Tables = [Table; Pane::COUNT];

/// The tables of the latest data. They are made again only when their data or the query changes: a held key
/// must cost nothing, however many rows there are.
#[derive(Default)]
pub(super) struct KeptTables(Option<(Query, Tables)>);

impl KeptTables {
    pub(super) fn of(&mut self, data: Option<&Data>, query: &Query) -> &Tables {
        let kept = self.0.take().filter(|(of, _)| of == query);
        let kept = kept.unwrap_or_else(|| (query.clone(), tables(data, query)));
        &self.0.insert(kept).1
    }

    /// Forgets the tables because there is other data.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }
}

pub(super) fn tables(data: Option<&Data>, query: &Query) -> Tables {
    Pane::ALL.map(|pane| {
        let mut table = match (data, pane) {
            (None, _) => Table {
                count: String::new(),
                columns: &[],
                rows: Vec::new(),
                empty: "waiting for the agent".to_owned(),
            },
            (Some(data), Pane::Findings) => findings::table(data, query),
            (Some(data), Pane::Starts) => starts::table(data, query),
            (Some(data), Pane::Addresses) => addresses::table(data, query),
            (Some(data), Pane::Signals) => signals::table(data, query),
        };
        if table.rows.is_empty() && data.is_some() && !query.filter.is_empty() {
            table.empty = format!("none matches {}", escaped(&query.filter));
        }
        if data.is_some() && !query.filter.is_empty() {
            table.count = format!("{} of {}", table.rows.len(), table.count);
        }
        table
    })
}

const fn words(title: &'static str, least: usize, most: usize) -> Column {
    Column { title, kind: ColumnKind::Words, least, most }
}

const fn names(title: &'static str, least: usize, most: usize) -> Column {
    Column { title, kind: ColumnKind::Names, least, most }
}

const fn numbers(title: &'static str, least: usize) -> Column {
    Column { title, kind: ColumnKind::Numbers, least, most: usize::MAX }
}

/// Formats how long ago something was. A second is exact enough.
pub(super) fn age(time: Duration) -> String {
    if time < Duration::from_secs(60) { format!("{} s", time.as_secs()) } else { span(time) }
}

/// Makes a cell. Text from the node may have any characters.
fn cell(text: impl AsRef<str>, tone: Tone) -> Cell {
    Cell { text: escaped(text.as_ref()).into_owned(), tone }
}

impl Row {
    fn new(id: impl Into<String>, cells: impl IntoIterator<Item = Cell>, said: impl AsRef<str>) -> Self {
        Self { id: id.into(), cells: cells.into_iter().collect(), said: escaped(said.as_ref()).into_owned() }
    }

    fn matches(&self, query: &Query) -> bool {
        query.matches(self.cells.iter().map(|cell| cell.text.as_str()).chain([self.said.as_str()]))
    }
}
