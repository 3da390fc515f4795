//! Asks for the message of a plugin whose call failed.

use std::collections::BTreeMap;

use crate::{
    engine::{
        timer,
        world::{
            EventContext, World,
            table::{attachment::tries::ASK_EVERY, call::Call},
        },
    },
    model::{change::Question, fact::CniCommand, id::ContainerId, time::Timestamp},
};

/// Asks for the plugin's message about a failed call. If it was asked for within `ASK_EVERY`, it is asked for
/// again when that time is over.
pub(crate) fn ask(
    world: &mut World,
    ctx: EventContext,
    call: &Call,
    command: CniCommand,
    key: (ContainerId, String),
) {
    let about = (call.call.plugin.clone(), command);
    match world.attachments.messages_asked.get(&about).map(|asked| *asked + ASK_EVERY) {
        Some(next) if ctx.at < next => world.timers.arm_earlier(timer::Name::Message, next),
        Some(_) | None => ask_message_of(world, ctx.at, about, key, call.at),
    }
}

/// Asks for each plugin's message about its last failed ADD and DEL, if it failed after the plugin was last
/// asked about.
pub(crate) fn ask_last(world: &mut World, now: Timestamp) {
    // By plugin and command: when its message was last asked for, and its last failed call.
    type Last<'a> = (Timestamp, (Timestamp, &'a (ContainerId, String)));
    let mut calls: BTreeMap<(&str, CniCommand), Last<'_>> = BTreeMap::new();
    for (key, row) in world.attachments.iter() {
        for (plugin, command, failures) in row.failures() {
            let asked = failures.asked_at.unwrap_or_default();
            let failed = (failures.last_at, key);
            let last = calls.entry((&plugin.name, command)).or_insert((asked, failed));
            *last = (last.0.max(asked), last.1.max(failed));
        }
    }
    let mut due = Vec::new();
    for ((name, command), (asked, (failed, key))) in
        calls.into_iter().filter(|(_, (asked, last))| last.0 > *asked)
    {
        if now < asked + ASK_EVERY {
            world.timers.arm_earlier(timer::Name::Message, asked + ASK_EVERY);
        } else {
            due.push(((name.to_owned(), command), key.clone(), failed.saturating_sub(ASK_EVERY)));
        }
    }
    for (about, key, since) in due {
        ask_message_of(world, now, about, key, since);
    }
}

/// Asks a new agent for the messages that the last one was asked for and did not find.
pub(crate) fn ask_again(world: &mut World, now: Timestamp) {
    let mut all = Vec::new();
    for (key, row) in world.attachments.iter() {
        let lost =
            row.failures().filter(|(_, _, failures)| failures.asked_at.is_some() && failures.said.is_none());
        let lost: Vec<_> = lost.map(|(plugin, command, _)| (plugin.name.clone(), command)).collect();
        if !lost.is_empty() {
            all.push((key.clone(), lost));
        }
    }
    for (key, lost) in &all {
        let Some(row) = world.attachments.rows.get_mut(key) else { continue };
        for about @ (name, command) in lost {
            let of_name = row.plugins.iter_mut().filter(|plugin| plugin.name == *name);
            of_name.for_each(|plugin| plugin.set_asked(*command, None));
            world.attachments.messages_asked.remove(about);
        }
    }
    if !all.is_empty() {
        ask_last(world, now);
    }
}

/// Asks for a message that was logged at `since` or later.
fn ask_message_of(
    world: &mut World,
    at: Timestamp,
    (name, command): (String, CniCommand),
    key: (ContainerId, String),
    since: Timestamp,
) {
    let row = world.attachments.rows.get_mut(&key);
    if let Some(plugin) = row.and_then(|row| row.plugins.iter_mut().find(|plugin| plugin.name == name)) {
        plugin.set_asked(command, Some(at));
        let asked = &mut world.attachments.messages_asked;
        asked.retain(|_, asked| at < *asked + ASK_EVERY);
        asked.insert((name, command), at);
        world.ask(Question::Message { container: key.0, command, since });
    }
}
