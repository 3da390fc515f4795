//! Histories for the engine: any facts of a node, in any order, at any time. Each byte decides something.

use probe_user::model::fact::Observation;

use super::{
    cursor::Cursor,
    material::{FACTS, spliced},
    player::Player,
};

pub fn seeds() -> Vec<Vec<u8>> {
    // Every step with every fact once, and a restart now and then.
    let facts = (0..FACTS.len()).map(|fact| u16::try_from(fact).expect("few facts").to_be_bytes());
    let told: Vec<[u8; 5]> = facts.map(|[high, low]| [0, 2, high, low, 7]).collect();
    told.chunks(60).map(|told| [&told.concat()[..], &[9, 0, 8, 0, 7, 9]].concat()).collect()
}

pub fn run(bytes: &[u8]) {
    let mut player = Player::new();
    play(&mut player, &mut Cursor::new(bytes));
    player.end();
}

/// Makes the calls that the bytes encode.
pub(super) fn play(player: &mut Player, bytes: &mut Cursor<'_>) {
    while !bytes.is_empty() && !player.is_full() {
        match bytes.below(12) {
            0..4 => {
                player.pass(bytes.span());
                let seen = fact(bytes);
                player.observe(player.now(), seen.origin, seen.fact.clone());
            }
            4 => {
                let late = player.now().saturating_sub(bytes.span());
                let seen = fact(bytes);
                player.observe(late, seen.origin, seen.fact.clone());
            }
            5 | 6 => {
                let (seen, other) = (fact(bytes), fact(bytes));
                if let Some(mixed) = spliced(seen, other, bytes) {
                    player.observe(player.now(), mixed.origin, mixed.fact);
                }
            }
            7 => player.watermark(),
            8 => player.advance(),
            9 => player.restart(),
            _ => player.pass(bytes.span()),
        }
    }
}

fn fact(bytes: &mut Cursor<'_>) -> &'static Observation {
    &FACTS[bytes.below(FACTS.len())]
}
