//! The pools of addresses, and how much of each is taken.

use std::cmp::Reverse;

use super::{Cell, Column, Row, Table, Tone, cell, numbers, words};
use crate::cli::top::{
    model::{Data, Pool},
    query::{Pane, Query},
};

const COLUMNS: &[Column] = &[
    words("NETWORK", 10, 32),
    words("SUBNET", 14, 32),
    numbers("IN USE", 6),
    numbers("CLEANUP", 7),
    numbers("LEAK?", 5),
    numbers("LEAKED", 6),
    numbers("FREE", 6),
    numbers("TAKEN", 5),
    words("", BAR + 2, BAR + 2),
];

/// The width of the bar.
const BAR: usize = 8;
/// From this percentage on, a pool is short of addresses.
const SHORT_PERCENT: u64 = 80;
const NEARLY_FULL_PERCENT: u64 = 95;

pub(super) fn table(data: &Data, query: &Query) -> Table {
    let mut pools: Vec<&Pool> = data.addresses.pools.iter().collect();
    match query.order(Pane::Addresses) {
        "network" => pools.sort_by_cached_key(|it| (it.network.clone(), it.subnet.clone())),
        _ => pools.sort_by_cached_key(|it| {
            (Reverse(it.percent()), Reverse(it.leaked), it.network.clone(), it.subnet.clone())
        }),
    }
    let rows = pools.iter().map(|it| row(it)).filter(|row| row.matches(query)).collect();
    let empty = "no pool of addresses is known".to_owned();
    Table { count: pools.len().to_string(), columns: COLUMNS, rows, empty }
}

/// Identifies a pool after a refresh.
pub(in crate::cli::top) fn id(it: &Pool) -> String {
    format!("{} {}", it.network, it.subnet)
}

fn row(it: &Pool) -> Row {
    let percent = it.percent();
    let taken = match percent {
        NEARLY_FULL_PERCENT.. => Tone::Bad,
        SHORT_PERCENT.. => Tone::Warning,
        _ => Tone::Good,
    };
    let cells = [
        cell(&it.network, Tone::Plain),
        cell(&it.subnet, Tone::Plain),
        count(it.in_use, Tone::Plain),
        count(it.pending_cleanup, Tone::Plain),
        count(it.leak_candidate, Tone::Warning),
        count(it.leaked, Tone::Bad),
        cell(it.free.to_string(), Tone::Plain),
        cell(format!("{percent}%"), taken),
        cell(bar(it), taken),
    ];
    let said = format!(
        "{} {}: {} of {} addresses are free; {} in use, {} to be cleaned up, {} perhaps leaked, {} leaked",
        it.network, it.subnet, it.free, it.size, it.in_use, it.pending_cleanup, it.leak_candidate, it.leaked
    );
    Row::new(id(it), cells, said)
}

fn count(n: u64, tone: Tone) -> Cell {
    cell(n.to_string(), if n == 0 { Tone::Faint } else { tone })
}

/// Draws how much is taken. If any address is taken, there is at least one mark.
fn bar(it: &Pool) -> String {
    let percent = usize::try_from(it.percent()).unwrap_or(100);
    let full = (percent * BAR / 100).max(usize::from(it.taken() > 0));
    format!("[{:BAR$}]", "|".repeat(full))
}

#[cfg(test)]
mod tests {
    use super::bar;
    use crate::cli::top::model::Pool;

    #[test]
    fn a_bar_is_empty_only_if_nothing_is_taken() {
        let of = |free| {
            let pool = serde_json::json!({
                "network": "n", "subnet": "s", "size": 1000, "in_use": 1000 - free, "pending_cleanup": 0,
                "leak_candidate": 0, "leaked": 0, "free": free,
            });
            bar(&serde_json::from_value::<Pool>(pool).expect("a pool"))
        };
        let bars = [1000, 999, 870, 500, 1, 0].map(of);
        assert_eq!(
            bars,
            ["[        ]", "[|       ]", "[|       ]", "[||||    ]", "[||||||| ]", "[||||||||]"]
        );
    }
}
