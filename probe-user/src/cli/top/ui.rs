//! What the keys have done: which pane is in focus, which row of it is selected, and which overlay lies above
//! it.
//!
//! **Invariant:** keys change only this, and nothing of the agent.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{
    layout::Layout,
    query::{Pane, Query},
    table::{Row, Tables},
};

/// The longest filter, characters.
const MAX_FILTER_CHARS: usize = 64;

#[derive(Debug)]
pub(super) struct Ui {
    pub(super) query: Query,
    pub(super) focus: Pane,
    /// Whether the focused pane has the whole screen.
    pub(super) is_zoomed: bool,
    pub(super) is_paused: bool,
    /// The filter before, while another one is being typed.
    pub(super) typing: Option<String>,
    pub(super) overlay: Option<Overlay>,
    cursors: [Cursor; Pane::COUNT],
    /// The rows on a page of the focused pane, or of the overlay.
    page: usize,
}

/// What lies above the panes.
#[derive(Debug)]
pub(super) enum Overlay {
    Help {
        top: usize,
    },
    /// The row of this id, explained.
    Detail {
        pane: Pane,
        id: String,
        top: usize,
    },
}

/// The selected row of a pane, and the first one that is shown.
#[derive(Clone, Debug, Default)]
struct Cursor {
    id: Option<String>,
    place: usize,
    top: usize,
}

/// What must be done besides drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Nothing,
    Leave,
    /// Ask the agent at once.
    Refresh,
    Pause,
    /// Draw everything anew, on a terminal that others may have changed.
    Redraw,
    /// Stop the process, as ctrl-Z does.
    Suspend,
}

impl Default for Ui {
    fn default() -> Self {
        Self {
            query: Query::default(),
            focus: Pane::Findings,
            is_zoomed: false,
            is_paused: false,
            typing: None,
            overlay: None,
            cursors: Default::default(),
            page: 1,
        }
    }
}

impl Ui {
    /// Handles a key. `tables` makes the tables of a query, which few keys need.
    pub(super) fn key<'a>(&mut self, key: KeyEvent, tables: impl FnOnce(&Query) -> &'a Tables) -> Act {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => return Act::Leave,
                KeyCode::Char('l') => return Act::Redraw,
                KeyCode::Char('z') => return Act::Suspend,
                _ => {}
            }
        }
        if self.typing.is_some() {
            self.typed(key);
            return Act::Nothing;
        }
        if self.overlay.is_some() {
            return self.key_of_overlay(key);
        }
        match key.code {
            KeyCode::Char('q') => return Act::Leave,
            KeyCode::Char('r') | KeyCode::F(5) => {
                self.is_paused = false;
                return Act::Refresh;
            }
            KeyCode::Char('p' | ' ') => {
                self.is_paused = !self.is_paused;
                return if self.is_paused { Act::Pause } else { Act::Refresh };
            }
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.overlay = Some(Overlay::Help { top: 0 }),
            KeyCode::Char('/') => self.typing = Some(self.query.filter.clone()),
            KeyCode::Char('s') => self.query.next_order(self.focus),
            KeyCode::Char('a') => self.query.closed = !self.query.closed,
            KeyCode::Char('z') => self.is_zoomed = !self.is_zoomed,
            KeyCode::Tab => self.focus = self.focus.after(1),
            KeyCode::BackTab => self.focus = self.focus.after(Pane::COUNT - 1),
            KeyCode::Char(digit @ '1'..='9') => self.digit(digit),
            KeyCode::Enter => self.open(tables(&self.query)),
            // What was chosen last is undone first.
            KeyCode::Esc if !self.query.filter.is_empty() => self.query.filter.clear(),
            KeyCode::Esc => self.is_zoomed = false,
            code if is_step(code) => self.step(code, tables(&self.query)),
            _ => {}
        }
        Act::Nothing
    }

    /// Shows the pane with this number. The number of the focused pane switches its zoom.
    fn digit(&mut self, digit: char) {
        let pane = Pane::ALL.iter().zip('1'..).find(|(_, number)| *number == digit);
        let Some((&pane, _)) = pane else { return };
        self.is_zoomed ^= self.focus == pane;
        self.focus = pane;
    }

    fn open(&mut self, tables: &Tables) {
        if let Some(row) = self.selected(tables) {
            self.overlay = Some(Overlay::Detail { pane: self.focus, id: row.id.clone(), top: 0 });
        }
    }

    fn step(&mut self, code: KeyCode, tables: &Tables) {
        let rows = &tables[self.focus.place()].rows;
        let page = self.page;
        let cursor = &mut self.cursors[self.focus.place()];
        if let Some(place) = stepped(code, cursor.place, rows.len(), page) {
            cursor.place = place;
            cursor.id = rows.get(place).map(|row| row.id.clone());
        }
    }

    fn key_of_overlay(&mut self, key: KeyEvent) -> Act {
        let page = self.page;
        let Some(Overlay::Help { top } | Overlay::Detail { top, .. }) = &mut self.overlay else {
            return Act::Nothing;
        };
        match key.code {
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q' | '?') => self.overlay = None,
            // The view knows how many lines there are, and goes back to the last ones.
            code => *top = stepped(code, *top, usize::MAX, page).unwrap_or(*top),
        }
        Act::Nothing
    }

    fn typed(&mut self, key: KeyEvent) {
        let filter = &mut self.query.filter;
        let is_plain = key.modifiers.difference(KeyModifiers::SHIFT).is_empty();
        match key.code {
            KeyCode::Enter => self.typing = None,
            KeyCode::Esc => *filter = self.typing.take().unwrap_or_default(),
            KeyCode::Backspace if key.modifiers.is_empty() => _ = filter.pop(),
            KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => filter.clear(),
            KeyCode::Char(c) if is_plain && filter.chars().count() < MAX_FILTER_CHARS => filter.push(c),
            _ => {}
        }
    }

    pub(super) fn selected<'a>(&self, tables: &'a Tables) -> Option<&'a Row> {
        tables[self.focus.place()].rows.get(self.cursors[self.focus.place()].place)
    }

    /// Returns the place of the selected row, and of the first row that is shown.
    pub(super) fn cursor(&self, pane: Pane) -> (usize, usize) {
        let Cursor { place, top, .. } = &self.cursors[pane.place()];
        (*place, *top)
    }

    /// Finds the selected rows in new tables, and scrolls so that each is shown.
    pub(super) fn settle(&mut self, tables: &Tables, layout: &Layout) {
        for (pane, cursor) in Pane::ALL.into_iter().zip(&mut self.cursors) {
            let rows = &tables[pane.place()].rows;
            let height = layout.rows(pane);
            let again = cursor.id.as_ref().and_then(|id| rows.iter().position(|row| row.id == *id));
            // If a row is gone, its place stays selected.
            cursor.place = again.unwrap_or(cursor.place).min(rows.len().saturating_sub(1));
            // The first row is selected until another one is: it shows what is worst now.
            if cursor.id.is_some() {
                cursor.id = rows.get(cursor.place).map(|row| row.id.clone());
            }
            cursor.top = cursor.top.min(cursor.place).min(rows.len().saturating_sub(height));
            cursor.top = cursor.top.max((cursor.place + 1).saturating_sub(height));
        }
        self.page = match self.overlay {
            Some(_) => layout.overlay_rows(),
            None => layout.rows(self.focus).max(1),
        };
    }

    /// Keeps the overlay from being scrolled beyond its lines.
    pub(super) fn settle_overlay(&mut self, lines: usize) {
        let last = lines.saturating_sub(self.page);
        if let Some(Overlay::Help { top } | Overlay::Detail { top, .. }) = &mut self.overlay {
            *top = last.min(*top);
        }
    }
}

/// Whether this key selects another row.
fn is_step(code: KeyCode) -> bool {
    stepped(code, 0, 0, 0).is_some()
}

/// Returns where a key leads to; `None` if it leads nowhere.
fn stepped(code: KeyCode, place: usize, count: usize, page: usize) -> Option<usize> {
    let last = count.saturating_sub(1);
    let place = match code {
        KeyCode::Up | KeyCode::Char('k') => place.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => place.saturating_add(1),
        KeyCode::PageUp => place.saturating_sub(page),
        KeyCode::PageDown => place.saturating_add(page),
        KeyCode::Home | KeyCode::Char('g') => 0,
        KeyCode::End | KeyCode::Char('G') => last,
        _ => return None,
    };
    Some(place.min(last))
}
