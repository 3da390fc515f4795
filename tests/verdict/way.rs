//! What becomes of the kernel's records on their way to the agent.

use probe_user::model::fact::{Fact, Loss, Observation, Origin};

/// The kernel's records on a bad day: some come twice, and in another order within what the watermark lets pass.
pub(crate) fn shaken(seed: u64) -> impl FnMut(Vec<Observation>) -> Vec<Observation> {
    let mut dice = Dice(seed);
    move |facts| {
        let mut all = Vec::new();
        for seen in facts {
            if seen.origin == Origin::Kernel && dice.below(8) == 0 {
                all.push(seen.clone());
            }
            all.push(seen);
        }
        for place in (1..all.len()).rev() {
            all.swap(place, dice.below(place + 1));
        }
        all
    }
}

/// Some of them are lost as well, and that is told.
pub(crate) fn torn(seed: u64) -> impl FnMut(Vec<Observation>) -> Vec<Observation> {
    let mut dice = Dice(seed ^ 1);
    let mut shake = shaken(seed);
    move |facts| {
        let mut lost = None;
        let mut all = Vec::new();
        for seen in facts {
            if seen.origin == Origin::Kernel && dice.below(16) == 0 {
                lost = Some(seen.at);
            } else {
                all.push(seen);
            }
        }
        let mut all = shake(all);
        all.extend(lost.map(|at| Observation {
            at,
            origin: Origin::Agent,
            fact: Fact::Lost { what: Loss::LifecycleRing, count: 1 },
        }));
        all
    }
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((bits ^ (bits >> 31)) % bound as u64).expect("below a usize")
    }
}
