//! Where the parts of the view are on a screen of a given size.

use ratatui::layout::Rect;

use super::query::Pane;

/// The smallest screen on which anything can be read.
pub(super) const MIN_SIZE: (u16, u16) = (40, 8);
/// With fewer lines than this, only one pane is shown.
const ALL_PANES: u16 = 16;
/// From this height on there is a second line about the selected row.
const ROOMY: u16 = 24;
const HEADER: u16 = 3;
/// How many rows each pane gets before another one gets more.
const FIRST: [u16; Pane::COUNT] = [6, 4, 2, 2];

pub(super) struct Layout {
    pub(super) header: Rect,
    /// Each with its heading; empty if it is not shown.
    pub(super) panes: [Rect; Pane::COUNT],
    /// For an overlay: where the panes, and the text about a row, are.
    pub(super) overlay: Rect,
    /// For the text about the selected row, or about the agent.
    pub(super) said: Rect,
    /// For the keys.
    pub(super) keys: Rect,
}

/// Returns `None` if the screen is too small. `said` is how many lines the text about the agent takes;
/// `wanted` is how many rows each pane has.
pub(super) fn layout(
    screen: Rect,
    focus: Pane,
    is_zoomed: bool,
    said: usize,
    wanted: [usize; Pane::COUNT],
) -> Option<Layout> {
    if screen.width < MIN_SIZE.0 || screen.height < MIN_SIZE.1 {
        return None;
    }
    let is_one = is_zoomed || screen.height < ALL_PANES;
    // Each pane keeps its heading and a row.
    let least: u16 = Pane::ALL.iter().filter(|pane| !is_one || **pane == focus).map(|_| 2).sum();
    let most = screen.height - HEADER - 1 - least;
    let usual = if screen.height >= ROOMY { 2 } else { 1 };
    let said = u16::try_from(said).unwrap_or(most).max(usual).min(most);
    let body = lines(screen, HEADER, screen.height - HEADER - said - 1);
    let heights = if is_one {
        Pane::ALL.map(|pane| if pane == focus { body.height } else { 0 })
    } else {
        // What is left stays below the last pane.
        shared(body.height, wanted)
    };
    let mut y = body.y;
    let panes = heights.map(|height| {
        let pane = Rect { y, height, ..body };
        y += height;
        pane
    });
    Some(Layout {
        header: lines(screen, 0, HEADER),
        panes,
        overlay: lines(screen, HEADER, screen.height - HEADER - 1),
        said: lines(screen, screen.height - 1 - said, said),
        keys: lines(screen, screen.height - 1, 1),
    })
}

fn lines(screen: Rect, y: u16, height: u16) -> Rect {
    Rect { y: screen.y + y, height, ..screen }
}

/// Shares out the lines: each pane gets its heading and its first rows, then what is left goes to those that
/// have more, one after the other.
fn shared(height: u16, wanted: [usize; Pane::COUNT]) -> [u16; Pane::COUNT] {
    // A pane without rows says so in one.
    let wanted = wanted.map(|rows| u16::try_from(rows).unwrap_or(u16::MAX).max(1));
    let mut rows = [1_u16; Pane::COUNT];
    let mut left = height.saturating_sub(2 * rows.iter().sum::<u16>());
    for limits in [FIRST, [u16::MAX; Pane::COUNT]] {
        loop {
            let before = left;
            for ((rows, wanted), limit) in rows.iter_mut().zip(wanted).zip(limits) {
                if left > 0 && *rows < wanted.min(limit) {
                    *rows += 1;
                    left -= 1;
                }
            }
            if left == before {
                break;
            }
        }
    }
    rows.map(|rows| rows + 1)
}

impl Layout {
    /// How many rows of a pane are shown.
    pub(super) fn rows(&self, pane: Pane) -> usize {
        usize::from(self.panes[pane.place()].height.saturating_sub(1))
    }

    /// How many lines of an overlay are shown, below its heading.
    pub(super) fn overlay_rows(&self) -> usize {
        usize::from(self.overlay.height.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;

    use super::{MIN_SIZE, layout, shared};
    use crate::cli::top::query::Pane;

    #[test]
    fn lines_are_shared_by_need() {
        assert_eq!(shared(19, [300, 300, 300, 300]), [8, 5, 3, 3]);
        assert_eq!(shared(19, [0, 0, 0, 15]), [2, 2, 2, 13], "others need none");
        assert_eq!(shared(19, [300, 0, 0, 0]), [13, 2, 2, 2]);
        assert_eq!(shared(100, [1, 2, 3, 4]), [2, 3, 4, 5], "the rest stays empty");
    }

    #[test]
    fn every_size_has_its_parts_inside_or_is_too_small() {
        for (width, height) in (0..90).flat_map(|width| (0..60).map(move |height| (width, height))) {
            let screen = Rect::new(0, 0, width, height);
            for (is_zoomed, said) in [(false, 0), (true, 0), (false, 2), (true, 4), (false, 70_000)] {
                let Some(it) = layout(screen, Pane::Starts, is_zoomed, said, [9, 400, 2, 15]) else {
                    assert!(width < MIN_SIZE.0 || height < MIN_SIZE.1, "{width}x{height}");
                    continue;
                };
                let parts = it.panes.into_iter().chain([it.header, it.said, it.keys]);
                let parts: Vec<Rect> = parts.filter(|it| it.height > 0).collect();
                for (place, part) in parts.iter().enumerate() {
                    assert_eq!(part.intersection(screen), *part, "{width}x{height}");
                    let others = parts.iter().skip(place + 1);
                    assert!(others.into_iter().all(|it| !it.intersects(*part)), "{width}x{height}");
                }
                assert!(it.rows(Pane::Starts) > 0, "{width}x{height}");
            }
        }
    }
}
