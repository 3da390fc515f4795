//! Several measurements of one thing: their median and quartiles.

use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl Spread {
    /// `None`: there are no values.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let last = values.len().checked_sub(1)?;
        // The nearest rank.
        let at = |quarters: usize| values[(last * quarters + 2) / 4];
        Some(Self { low: at(1), median: at(2), high: at(3) })
    }

    pub(crate) fn json(self) -> Value {
        json!({ "low": self.low, "median": self.median, "high": self.high })
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn quartiles_are_values_that_were_measured() {
        let of = |values: &[f64]| Spread::of(values.to_vec()).map(|it| [it.low, it.median, it.high]);
        assert_eq!(of(&[5.0, 1.0, 4.0, 2.0, 3.0]), Some([2.0, 3.0, 4.0]));
        assert_eq!(of(&[7.0]), Some([7.0; 3]));
        assert_eq!(of(&[]), None);
    }
}
