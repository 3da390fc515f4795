//! The state that an agent kept for the next one: rows of another engine, perhaps damaged, and later events.

use probe_user::engine::world::CheckpointEntry;

use super::{
    cursor::Cursor,
    history::play,
    material::{STATES, spliced},
    player::Player,
};

/// The maximum number of damaged rows in a state.
const DAMAGED: usize = 8;

pub fn seeds() -> Vec<Vec<u8>> {
    let states = (0..STATES.len()).map(|state| u8::try_from(state).expect("few states"));
    let after = [7, 10, 8, 8, 0, 2, 0, 60, 7, 9, 10, 9, 8, 9];
    // Three versions: whole, with a missing row, and with a row of another state.
    states
        .flat_map(|state| [vec![state, 0], vec![state, 1, 0, 0, 3], vec![state, 1, 1, 0, 3, 5, 0, 7]])
        .map(|damage| [&damage[..], &after].concat())
        .collect()
}

pub fn run(bytes: &[u8]) {
    let mut bytes = Cursor::new(bytes);
    let mut entries = state(&mut bytes).clone();
    for _ in 0..bytes.below(DAMAGED + 1) {
        damage(&mut entries, &mut bytes);
    }
    let mut player = Player::resumed(entries);
    play(&mut player, &mut bytes);
    player.end();
}

fn state(bytes: &mut Cursor<'_>) -> &'static Vec<CheckpointEntry> {
    &STATES[bytes.below(STATES.len())]
}

fn damage(entries: &mut Vec<CheckpointEntry>, bytes: &mut Cursor<'_>) {
    let kind = bytes.below(3);
    let row = bytes.below(entries.len().max(1));
    let Some(entry) = entries.get_mut(row) else { return };
    match kind {
        0 => {
            entries.remove(row);
        }
        1 => {
            let others = state(bytes);
            let other = &others[bytes.below(others.len())];
            // The engine's own entry exists once, before all others.
            if !matches!(other, CheckpointEntry::Engine(_)) {
                entries.push(other.clone());
            }
        }
        _ => {
            let others = state(bytes);
            let other = &others[bytes.below(others.len())];
            if let Some(mixed) = spliced(entry, other, bytes) {
                *entry = mixed;
            }
        }
    }
}
