//! The table of the restarts of a runtime or of the kubelet alone: a row for each, then the mean and the ranks of each
//! program.

use super::{
    Row,
    table::{CELLS, line},
};
use crate::{
    cli::table::aligned,
    engine::boot::restart::{RestartReport, statistics},
    sink::{
        escape::escaped,
        recovery::restart::{self, Placed},
    },
};

const HEADINGS: [&str; CELLS] =
    ["RESTART (UTC)", "PROGRAM", "STARTED", "READY", "FIRST POD", "AS BEFORE", "1", "2", "3", "4", "WHOLE"];
const CAPTION: &str = "ms from the end of the program (* from its start, the end was not seen; ~ not exact), and the periods \
                       between, s";

pub(super) fn text(rows: &[Row]) -> String {
    let all = restart::all(rows.iter().map(|row| (row.node.as_str(), &row.recovery)));
    if all.is_empty() {
        return "no restart of a runtime or of the kubelet alone was seen\n".to_owned();
    }
    let mut cells: Vec<[String; CELLS]> = all.iter().map(cells).collect();
    let below =
        restart::rows(&all).into_iter().map(|(name, numbers)| line(escaped(&name).into_owned(), numbers));
    cells.extend(below);
    let mut text = format!("{CAPTION}\n{}", aligned(HEADINGS, &cells));
    let statistics = statistics(all.iter().map(|it| it.restart));
    let mut notes: Vec<String> = statistics.iter().filter_map(restart::composition).collect();
    notes.extend(rows.iter().filter_map(|row| left_out(row)));
    if !notes.is_empty() {
        text += &format!("\n{}\n", escaped(&notes.join("\n")));
    }
    for it in &all {
        let marks: String = restart::marks(it.restart).iter().map(|mark| format!(" ({mark})")).collect();
        text += &format!("\n{} {} {}{marks}\n", it.title(), escaped(it.node), escaped(&it.restart.comm));
        for line in restart::notes(it.restart) {
            text += &format!("  {}\n", escaped(&line));
        }
    }
    text
}

fn cells(it: &Placed<'_>) -> [String; CELLS] {
    let mut cells = line(it.title(), restart::cells(&RestartReport::of(it.restart)));
    cells[1] = escaped(&it.restart.comm).into_owned();
    cells
}

/// The restarts of a boot that are not kept any more.
fn left_out(row: &Row) -> Option<String> {
    let left_out = &row.recovery.restarts.left_out;
    let each: Vec<String> = left_out.iter().map(|(comm, count)| format!("{count} of {comm}")).collect();
    let began = crate::sink::recovery::began(&row.recovery);
    (!each.is_empty()).then(|| format!("of the boot {began} older ones are not kept: {}", each.join(", ")))
}
