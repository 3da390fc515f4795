//! Draws the view. It depends only on its arguments, so that tests can look at it.

mod header;
mod help;
mod panes;
mod theme;
mod wrap;

use std::borrow::Cow;

use ratatui::{buffer::Buffer, layout::Rect, style::Style, text::Line};

pub(super) use self::theme::Theme;
use self::{help::HELP, wrap::wrapped};
use super::{
    detail,
    layout::{Layout, MIN_SIZE, layout},
    link::Connection,
    model::Data,
    query::Pane,
    table::{Tables, tables},
    ui::{Overlay, Ui},
};
use crate::sink::{escape::escaped, render::text::cut};

/// What is drawn.
pub(super) struct View<'a> {
    pub(super) data: Option<&'a Data>,
    pub(super) connection: Connection,
    pub(super) theme: Theme,
}

impl View<'_> {
    pub(super) fn tables(&self, ui: &Ui) -> Tables {
        tables(self.data, &ui.query)
    }

    /// Draws the tables of this data and of what the keys have chosen.
    pub(super) fn draw(&self, tables: &Tables, ui: &mut Ui, screen: Rect, buffer: &mut Buffer) {
        let wanted = Pane::ALL.map(|pane| tables[pane.place()].rows.len());
        let why = match &self.connection {
            Connection::Away { why, .. } => wrapped(&escaped(why), usize::from(screen.width)).len(),
            Connection::Well | Connection::Silent(_) => 0,
        };
        let Some(layout) = layout(screen, ui.focus, ui.is_zoomed, why, wanted) else {
            return too_small(screen, buffer);
        };
        ui.settle(tables, &layout);
        header::draw(self, ui, layout.header, buffer);
        if ui.overlay.is_some() {
            self.overlay(ui, &layout, buffer);
        } else {
            for pane in Pane::ALL {
                panes::draw(self.theme, ui, pane, &tables[pane.place()], layout.panes[pane.place()], buffer);
            }
            paragraph(&self.said(ui, tables), layout.said, buffer);
        }
        help::keys(self.theme, ui, layout.keys, buffer);
    }

    /// Returns the text about the selected row; while the agent is away, why it is: the header has no room
    /// for that.
    fn said<'t>(&'t self, ui: &Ui, tables: &'t Tables) -> Cow<'t, str> {
        match &self.connection {
            Connection::Away { why, .. } => escaped(why),
            Connection::Well | Connection::Silent(_) => {
                Cow::Borrowed(ui.selected(tables).map(|row| row.said.as_str()).unwrap_or_default())
            }
        }
    }

    /// Draws a heading, and below it as much of the text as there is room for.
    fn overlay(&self, ui: &mut Ui, layout: &Layout, buffer: &mut Buffer) {
        let (title, text) = match &ui.overlay {
            None => return,
            Some(Overlay::Help { .. }) => ("HELP".to_owned(), HELP.to_owned()),
            Some(Overlay::Detail { pane, id, .. }) => {
                let text = self.data.and_then(|data| detail::text(data, *pane, id));
                let text = text.unwrap_or_else(|| "It is gone: Esc goes back.\n".to_owned());
                (detail::title(*pane).to_owned(), text)
            }
        };
        let lines: Vec<String> = text
            .lines()
            .flat_map(|line| wrapped(&escaped(line), usize::from(layout.overlay.width)))
            .collect();
        ui.settle_overlay(lines.len());
        let Some(Overlay::Help { top } | Overlay::Detail { top, .. }) = ui.overlay else { return };
        let shown = layout.overlay_rows();
        let place = match lines.len() {
            all if all <= shown => String::new(),
            all => format!("lines {}-{} of {all}", top + 1, (top + shown).min(all)),
        };
        let heading = format!("{title}  {place}");
        bar(&heading, self.theme.focused(), Rect { height: 1, ..layout.overlay }, buffer);
        for (line, y) in lines.iter().skip(top).take(shown).zip(layout.overlay.y + 1..) {
            let style = if is_heading(line) { self.theme.heading() } else { self.theme.plain() };
            buffer.set_stringn(layout.overlay.x, y, line, usize::from(layout.overlay.width), style);
        }
    }
}

/// Whether the line is a heading: in an explanation only headings have no indent.
fn is_heading(line: &str) -> bool {
    line.starts_with(|c: char| c.is_alphanumeric())
}

/// Draws a line in one style over the whole width.
fn bar(text: &str, style: Style, area: Rect, buffer: &mut Buffer) {
    buffer.set_style(area, style);
    buffer.set_stringn(area.x, area.y, text, usize::from(area.width), style);
}

/// Draws as many lines of the text as fit; the last one is cut.
fn paragraph(text: &str, area: Rect, buffer: &mut Buffer) {
    let width = usize::from(area.width);
    let mut lines = wrapped(text, width);
    let height = usize::from(area.height);
    if lines.len() > height
        && let Some(last) = height.checked_sub(1)
    {
        let rest = lines.split_off(last);
        let rest: Vec<&str> = rest.iter().map(|line| line.trim()).collect();
        let rest = rest.join(" ");
        lines.push(cut(&rest, width));
    }
    for (line, y) in lines.iter().zip(area.y..area.bottom()) {
        buffer.set_line(area.x, y, &Line::raw(line.as_str()), area.width);
    }
}

/// Draws as much of the message as fits.
fn too_small(screen: Rect, buffer: &mut Buffer) {
    let text = format!(
        "too small: {}x{}; sandprobe top needs {}x{} (q leaves)",
        screen.width, screen.height, MIN_SIZE.0, MIN_SIZE.1
    );
    paragraph(&text, screen, buffer);
}
