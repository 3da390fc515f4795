//! The answers of a container runtime: its two lists, one after the other, and the engine's reaction to them.

use std::{collections::BTreeSet, time::Duration};

use probe_user::{
    model::fact::{Fact, Origin},
    source::cri::detached::DetachedRuntime,
};

use super::player::Player;

const BOOT_NS: i64 = 1_000;

pub fn seeds() -> Vec<Vec<u8>> {
    let field = |number: u8, text: &[u8]| {
        let len = u8::try_from(text.len()).expect("short");
        [&[number << 3 | 2, len], text].concat()
    };
    let metadata = [field(1, b"web-0"), field(2, b"u-1"), field(3, b"default")].concat();
    let sandbox = [field(1, b"s1"), field(2, &metadata), vec![3 << 3, 0, 4 << 3, 5]].concat();
    let container = [field(1, b"c1"), field(2, b"s1"), vec![6 << 3, 1, 7 << 3, 6]].concat();
    let (sandboxes, containers) = (field(1, &sandbox), field(1, &container));
    let both = |sandboxes: &[u8], containers: &[u8]| {
        let len = u16::try_from(sandboxes.len()).expect("short").to_be_bytes();
        [&len, sandboxes, containers].concat()
    };
    let twice = |list: &[u8]| [list, list].concat();
    vec![both(&sandboxes, &containers), both(&twice(&sandboxes), &twice(&containers)), both(&[], &containers)]
}

pub fn run(bytes: &[u8]) {
    let Some((len, lists)) = bytes.split_first_chunk() else { return };
    let (sandboxes, containers) = lists.split_at(usize::from(u16::from_be_bytes(*len)).min(lists.len()));
    let (mut runtime, mut player) = (DetachedRuntime::default(), Player::new());
    let mut known = BTreeSet::new();
    // The second time one list is empty, and the third time both are complete again.
    for (sandboxes, containers) in [(sandboxes, containers), (&[][..], containers), (sandboxes, containers)] {
        let Ok(told) = runtime.tell(sandboxes, containers, BOOT_NS) else { return };
        let told = told.expect("no input is so long");
        for gone in &told.gone {
            assert!(known.remove(gone), "{gone} was never told");
        }
        known.extend(told.came.iter().map(|it| it.id.clone()));
        player.observe(player.now(), Origin::Listed, Fact::RuntimeStatus(told));
        player.pass(Duration::from_secs(10));
        player.advance();
    }
    let again = runtime.tell(sandboxes, containers, BOOT_NS).expect("as before").expect("as before");
    assert!(again.came.is_empty() && again.gone.is_empty(), "the same list tells something: {again:?}");
    player.end();
}
