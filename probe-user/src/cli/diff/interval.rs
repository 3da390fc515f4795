//! How far two samples are apart, and how sure that is: an interval by bootstrap.
//!
//! **Invariant:** the same samples give the same interval.

/// How often both samples are drawn anew.
const RESAMPLES: usize = 5000;
/// At least this often, however large the samples are.
const MIN_RESAMPLES: usize = 200;
/// At most this many values are drawn, unless that were fewer than [`MIN_RESAMPLES`].
const MAX_DRAWS: usize = 20_000_000;

/// What stands for a sample. It may reorder the values.
pub(super) type Statistic = fn(&mut [f64]) -> f64;

/// The difference lies within.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interval {
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Interval {
    /// Returns the interval of the negated difference.
    pub(super) fn negated(self) -> Self {
        Self { low: -self.high, high: -self.low }
    }
}

/// Returns the interval of the statistic of `b` less that of `a`: the middle of what samples would give that
/// are drawn from the two with replacement (Efron's percentile bootstrap). Outside are 5 %, divided by the
/// `rows` that are compared, so that in 95 of 100 cases all of them are right (Bonferroni's correction).
pub(super) fn difference(a: &[f64], b: &[f64], of: Statistic, rows: usize) -> Interval {
    let drawn = a.len().saturating_add(b.len()).max(1);
    let rounds = (MAX_DRAWS / drawn).clamp(MIN_RESAMPLES, RESAMPLES);
    let mut random = Random(0);
    let mut sample = Vec::new();
    let mut found: Vec<f64> = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let before = random.resampled(a, &mut sample, of);
        found.push(random.resampled(b, &mut sample, of) - before);
    }
    found.sort_unstable_by(f64::total_cmp);
    let outside = rounds / 40 / rows.max(1);
    let low = found.get(outside).copied().unwrap_or_default();
    let high = found.get(rounds - 1 - outside).copied().unwrap_or_default();
    Interval { low, high }
}

/// Returns the median, by nearest rank as in `pods --phases`. 0 for no values.
pub(super) fn median(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let middle = (values.len() - 1) / 2;
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

/// Returns the mean. 0 for no values.
pub(super) fn mean(values: &mut [f64]) -> f64 {
    let count = u32::try_from(values.len()).unwrap_or(u32::MAX).max(1);
    values.iter().sum::<f64>() / f64::from(count)
}

/// The SplitMix64 generator (Sebastiano Vigna).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut it = self.0;
        it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        it ^ (it >> 31)
    }

    /// Draws as many values as there are, and returns their statistic.
    fn resampled(&mut self, values: &[f64], sample: &mut Vec<f64>, of: Statistic) -> f64 {
        let count = u64::try_from(values.len()).unwrap_or(u64::MAX).max(1);
        sample.clear();
        for _ in values {
            let place = usize::try_from(self.next() % count).unwrap_or_default();
            sample.extend(values.get(place));
        }
        of(sample)
    }
}

#[cfg(test)]
mod tests {
    use super::{Random, difference, mean, median};

    /// Values around `middle`, evenly spread over `width`.
    fn around(middle: f64, width: f64, count: u32) -> Vec<f64> {
        let place = |n: u32| middle + width * (f64::from(n) / f64::from(count - 1) - 0.5);
        (0..count).map(place).collect()
    }

    #[test]
    fn a_difference_that_is_larger_than_the_spread_is_sure() {
        let before = around(1.0, 0.2, 30);
        let slower = difference(&before, &around(1.3, 0.2, 30), median, 1);
        assert!(slower.low > 0.2 && slower.high < 0.4 && slower.low < 0.3 && slower.high > 0.3, "{slower:?}");
        let faster = difference(&before, &around(0.7, 0.2, 30), median, 1);
        assert!(faster.high < -0.2, "{faster:?}");
        let nothing = difference(&before, &around(1.02, 0.6, 30), median, 1);
        assert!(nothing.low < 0.0 && nothing.high > 0.0, "{nothing:?}");
    }

    #[test]
    fn the_same_samples_give_the_same_interval() {
        let (a, b) = (around(1.0, 1.0, 12), around(1.5, 2.0, 17));
        assert_eq!(difference(&a, &b, mean, 1), difference(&a, &b, mean, 1));
        let of_itself = difference(&a, &a, median, 1);
        assert!(of_itself.low <= 0.0 && of_itself.high >= 0.0, "{of_itself:?}");
        let without_spread = difference(&[2.0; 10], &[2.0; 10], mean, 1);
        assert_eq!([without_spread.low, without_spread.high], [0.0; 2]);
    }

    /// About 5 in 100 intervals leave 0 out if both samples have the same distribution, and hardly any if it
    /// is one of 20.
    #[test]
    fn an_interval_is_right_about_as_often_as_it_says() {
        let mut random = Random(7);
        let mut wrong = [0; 2];
        for _ in 0..60 {
            let mut draw = || -> Vec<f64> {
                let half = || u32::try_from(random.next() >> 33).map_or(0.0, f64::from);
                std::iter::repeat_with(half).take(20).collect()
            };
            let (a, b) = (draw(), draw());
            for (wrong, rows) in wrong.iter_mut().zip([1, 20]) {
                let found = difference(&a, &b, mean, rows);
                *wrong += u32::from(found.low > 0.0 || found.high < 0.0);
            }
        }
        assert!((1..=9).contains(&wrong[0]) && wrong[1] < wrong[0], "{wrong:?} of 60");
    }

    #[test]
    fn the_statistics_of_nothing_are_zero() {
        assert_eq!([median(&mut []), mean(&mut [])], [0.0; 2]);
        assert_eq!(median(&mut [3.0, 1.0, 2.0, 4.0]), 2.0);
        assert_eq!(mean(&mut [3.0, 1.0]), 2.0);
        let nothing = difference(&[], &[1.0], mean, 1);
        assert_eq!([nothing.low, nothing.high], [1.0; 2]);
    }
}
