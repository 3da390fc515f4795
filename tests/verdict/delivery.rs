//! Alterations of the kernel's records on their way to the agent.

use probe_user::model::fact::{Fact, Loss, Observation, Origin};

/// Repeats some of the kernel's records, and reorders them within the limits of the watermark.
pub(crate) fn reordered(seed: u64) -> impl FnMut(Vec<Observation>) -> Vec<Observation> {
    let mut random = Random(seed);
    move |facts| {
        let mut all = Vec::new();
        for seen in facts {
            if seen.origin == Origin::Kernel && random.below(8) == 0 {
                all.push(seen.clone());
            }
            all.push(seen);
        }
        for place in (1..all.len()).rev() {
            all.swap(place, random.below(place + 1));
        }
        all
    }
}

/// Loses some records too, and reports the loss.
pub(crate) fn lossy(seed: u64) -> impl FnMut(Vec<Observation>) -> Vec<Observation> {
    let mut random = Random(seed ^ 1);
    let mut reorder = reordered(seed);
    move |facts| {
        let mut lost = None;
        let mut all = Vec::new();
        for seen in facts {
            if seen.origin == Origin::Kernel && random.below(16) == 0 {
                lost = Some(seen.at);
            } else {
                all.push(seen);
            }
        }
        let mut all = reorder(all);
        all.extend(lost.map(|at| Observation {
            at,
            origin: Origin::Agent,
            fact: Fact::Lost { what: Loss::LifecycleRing, count: 1, since: None },
        }));
        all
    }
}

/// The SplitMix64 generator.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((bits ^ (bits >> 31)) % bound as u64).expect("below a usize")
    }
}
