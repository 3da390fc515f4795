//! The keys: a line of the usual ones, and all of them.

use ratatui::{buffer::Buffer, layout::Rect};

use super::Theme;
use crate::{
    cli::top::ui::{Overlay, Ui},
    sink::{escape::escaped, text::cut},
};

pub(super) const HELP: &str = "\
Panes
  1 2 3 4, Tab     look at a pane: findings, starts, pools of addresses, signals
  the same again   give the pane the whole screen, as z does; Esc goes back
  arrows, j k      select a row; PgUp, PgDn, Home, End too
  Enter            explain the row: a finding as sandprobe explain does, a start phase by phase
Rows
  /                show only rows that contain what is typed; Enter keeps it, Esc clears it
  s                sort the pane in another way
  a                list closed findings too
The view
  p, Space         pause, and go on
  r                ask the agent at once
  ctrl-L           draw everything anew
  q, ctrl-C        leave
Findings
  Each effect is indented below its cause. \"warning?\" may yet come right by itself.
Starts
  \"now\" in ENDED: the start goes on, PHASE is the present one. Otherwise PHASE is the slowest one.
Pools
  CLEANUP: the sandbox has ended, its runtime has it on record. LEAK?: perhaps leaked.
Header
  lost: records that were lost since the agent began; in red while it grows.
";

pub(super) fn keys(theme: Theme, ui: &Ui, area: Rect, buffer: &mut Buffer) {
    let width = usize::from(area.width);
    let filter = &ui.query.filter;
    let text = if ui.typing.is_some() {
        format!("/{}_  Enter keeps the filter, Esc undoes it", escaped(filter))
    } else {
        match &ui.overlay {
            Some(Overlay::Help { .. } | Overlay::Detail { .. }) => "Esc back  arrows PgUp PgDn scroll".to_owned(),
            None => {
                let filter = if filter.is_empty() { "filter".to_owned() } else { format!("{}  Esc all", escaped(filter)) };
                let order = ui.query.order(ui.focus);
                let pause = if ui.is_paused { "go on" } else { "pause" };
                format!("q quit  ? help  Tab pane  z zoom  Enter explain  s by {order}  p {pause}  / {filter}")
            }
        }
    };
    buffer.set_stringn(area.x, area.y, cut(&text, width), width, theme.heading());
}
