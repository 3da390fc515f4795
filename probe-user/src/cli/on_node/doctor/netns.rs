//! The check of how many network namespaces there are: beyond the kernel's limit no pod gets one.

use serde::Deserialize;

use crate::sink::render::doctor::Check;

/// The network namespaces besides the node's own, as an agent counts them.
#[derive(Debug, Deserialize)]
pub(super) struct Namespaces {
    count: u64,
    limit: Option<u64>,
}

/// Above this part of the limit, in percent, a person should look. The alert has the same threshold.
const NEAR_PERCENT: u64 = 80;

/// Returns `None` if the limit is not known.
pub(super) fn check(it: &Namespaces) -> Option<Check> {
    const NAME: &str = "network namespaces";
    let limit = it.limit?;
    let found = format!("{} of the {limit} that each user may make", it.count);
    if it.count.saturating_mul(100) <= limit.saturating_mul(NEAR_PERCENT) {
        return Some(Check::full(NAME, found));
    }
    let advice = "see whether they are left over (sandprobe findings --kind orphan_netns), or raise user.max_net_namespaces";
    Some(Check::degraded(NAME, found, advice))
}

#[cfg(test)]
mod tests {
    use super::{Namespaces, check};
    use crate::sink::render::doctor::Grade;

    #[test]
    fn more_than_four_fifths_of_the_limit_are_near_it() {
        let grade = |count, limit| check(&Namespaces { count, limit }).map(|it| it.grade);
        assert_eq!(grade(80, Some(100)), Some(Grade::Full));
        assert_eq!(grade(81, Some(100)), Some(Grade::Degraded));
        // No namespace may be made at all, and there is none.
        assert_eq!(grade(0, Some(0)), Some(Grade::Full));
        assert_eq!(grade(1, Some(0)), Some(Grade::Degraded));
        assert_eq!(grade(80, None), None);
    }
}
