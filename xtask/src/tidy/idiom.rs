//! Limits how often the product has each idiom that docs/style.md advises against.

use crate::measure::IDIOMS;

// A ceiling only falls: a change that removes places lowers it to what is left.
const MAX_NAMED_CLOSURES: usize = 5;
const MAX_CONSTANT_FILTERS: usize = 0;
const MAX_TUPLES_OF_LETS: usize = 12;
const MAX_MATCHES_ON_BOOL: usize = 1;
/// In the order of [`IDIOMS`].
const CEILINGS: [usize; IDIOMS.len()] =
    [MAX_NAMED_CLOSURES, MAX_CONSTANT_FILTERS, MAX_TUPLES_OF_LETS, MAX_MATCHES_ON_BOOL];
/// How far a count may be below its ceiling.
const SLACK: usize = 10;

pub(super) fn problems(counts: [usize; IDIOMS.len()]) -> Vec<String> {
    beyond(counts, CEILINGS)
}

fn beyond(counts: [usize; IDIOMS.len()], ceilings: [usize; IDIOMS.len()]) -> Vec<String> {
    let mut found = Vec::new();
    for ((count, ceiling), idiom) in counts.into_iter().zip(ceilings).zip(&IDIOMS) {
        let title = idiom.title;
        if count > ceiling {
            found.push(format!(
                "{title}: {count} places, of which {ceiling} are allowed (docs/style.md); `cargo xtask measure --list` names them"
            ));
        }
        if count + SLACK < ceiling {
            found.push(format!(
                "{title}: {count} places are left: lower its ceiling of {ceiling} in xtask/src/tidy/idiom.rs to that"
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{IDIOMS, SLACK, beyond};

    #[test]
    fn counts_stay_at_their_ceilings_or_a_little_below() {
        assert_eq!(beyond([20, 20 - SLACK, 0, SLACK], [20, 20, 0, SLACK]), [""; 0]);
        let found = beyond([21, 20 - SLACK - 1, 1, 0], [20, 20, 0, SLACK]);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with(IDIOMS[0].title) && found[0].contains("20 are allowed"), "{found:?}");
        assert!(found[1].contains("lower its ceiling"), "{found:?}");
        assert!(found[2].contains("0 are allowed"), "{found:?}");
    }
}
