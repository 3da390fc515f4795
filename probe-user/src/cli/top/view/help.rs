//! The keys: a line of the usual ones, and all of them.

use ratatui::{buffer::Buffer, layout::Rect};

use super::Theme;
use crate::{
    cli::top::ui::{Overlay, Ui},
    sink::{escape::escaped, render::text::cut},
};

pub(super) const HELP: &str = "\
1 2 3 4, Tab   choose a pane; its number again, or z, gives it the whole screen
arrows, j k    select a row; PgUp, PgDn, Home and End too
Enter          explain the row, as sandprobe explain does; Esc goes back
/              show only rows that contain what is typed; Esc shows all again
s              sort the pane in another way
a              list closed findings too, or no more
p, Space       pause, and go on
r              ask the agent at once; ctrl-L draws the screen anew
q, ctrl-C      leave

Findings  An effect is indented below its cause. \"warning?\" may yet come right.
Starts    PHASE is the present one if ENDED says \"now\", else the slowest one.
          FOR is how long that took, WHY what is known of why.
Pools     CLEANUP: the sandbox has ended, and its runtime has it on record.
          LEAK?: may be leaked, or may still be freed.
Signals   the best mechanism that this kernel allows; Enter says why no better.
Header    lost: records lost since the agent began; in red while it grows
";

pub(super) fn keys(theme: Theme, ui: &Ui, area: Rect, buffer: &mut Buffer) {
    let width = usize::from(area.width);
    let filter = &ui.query.filter;
    let text = if ui.typing.is_some() {
        format!("/{}_  Enter keeps the filter, Esc undoes it", escaped(filter))
    } else {
        match &ui.overlay {
            Some(Overlay::Help { .. } | Overlay::Detail { .. }) => {
                "Esc back  arrows PgUp PgDn scroll".to_owned()
            }
            None => {
                let order = ui.query.order(ui.focus);
                let pause = if ui.is_paused { "go on" } else { "pause" };
                let keys =
                    format!("? help Tab pane z zoom Enter explain p {pause} s order: {order} / filter");
                if filter.is_empty() {
                    format!("q quit {keys}")
                } else {
                    format!("/{}  Esc shows all  {keys}", escaped(filter))
                }
            }
        }
    };
    buffer.set_stringn(area.x, area.y, cut(&text, width), width, theme.heading());
}
