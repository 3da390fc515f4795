//! What is shown: the panes, their order, and the filter.

/// A part of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pane {
    Findings,
    Starts,
    Addresses,
    Signals,
}

impl Pane {
    pub(super) const COUNT: usize = 4;
    pub(super) const ALL: [Self; Self::COUNT] =
        [Self::Findings, Self::Starts, Self::Addresses, Self::Signals];

    pub(super) fn place(self) -> usize {
        self as usize
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Findings => "FINDINGS",
            Self::Starts => "STARTS",
            Self::Addresses => "POOLS",
            Self::Signals => "SIGNALS",
        }
    }

    /// Returns the orders of its rows, the usual one first.
    pub(super) fn orders(self) -> &'static [&'static str] {
        match self {
            Self::Findings => &["severity", "newest", "pod"],
            Self::Starts => &["slowest", "newest", "pod"],
            Self::Addresses => &["use", "network"],
            Self::Signals => &["worst", "name"],
        }
    }

    pub(super) fn after(self, steps: usize) -> Self {
        Self::ALL[(self.place() + steps) % Self::COUNT]
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) filter: String,
    /// Whether findings that have come right are listed too.
    pub(super) closed: bool,
    /// The place of each pane's order among its orders.
    orders: [usize; Pane::COUNT],
}

impl Query {
    pub(super) fn order(&self, pane: Pane) -> &'static str {
        let orders = pane.orders();
        orders[self.orders[pane.place()] % orders.len()]
    }

    pub(super) fn next_order(&mut self, pane: Pane) {
        self.orders[pane.place()] += 1;
    }

    /// Whether one of the texts contains the filter, in capital or small letters.
    pub(super) fn matches<'a>(&self, texts: impl IntoIterator<Item = &'a str>) -> bool {
        let wanted = self.filter.to_lowercase();
        wanted.is_empty() || texts.into_iter().any(|text| text.to_lowercase().contains(&wanted))
    }
}
