//! A new agent goes on with the state of the last one.

use super::story::Story;
use crate::{
    engine::Engine,
    model::{
        fact::{Fact, Origin},
        time::Timestamp,
    },
};

const SECOND: u64 = 1000;

/// A story that goes on with what this engine believes.
fn after(engine: &Engine) -> Story {
    let mut story = Story::new();
    story.restored = engine.dump();
    story
}

#[test]
fn a_file_that_hung_for_the_last_agent_hangs_no_more_until_the_new_one_says_so() {
    let hangs = |hangs| Fact::FileHangs {
        path: "/proc/7/cmdline".to_owned(),
        since: Timestamp(SECOND * 1_000_000),
        hangs,
    };
    let mut story = Story::new();
    story.at(11 * SECOND).say(Origin::Agent, hangs(true));
    let (told, engine) = story.judge(20 * SECOND);
    assert!(told.contains("finding.confirmed blind_spot/file/:proc:7:cmdline"), "{told}");
    let mut story = after(&engine);
    story.at(21 * SECOND).say(Origin::Agent, Fact::AgentBegan);
    let (told, engine) = story.judge(30 * SECOND);
    assert!(told.contains("finding.closed blind_spot/file/:proc:7:cmdline"), "{told}");
    assert_eq!(engine.hanging(), []);
    // The new agent's reader hangs there as well.
    story.at(32 * SECOND).say(Origin::Agent, hangs(true));
    let (told, engine) = story.judge(40 * SECOND);
    assert!(told.ends_with("finding.confirmed blind_spot/file/:proc:7:cmdline Agent"), "{told}");
    assert_eq!(engine.hanging().len(), 1);
}
