//! The boot that is now: what an agent has kept of it, or with none what the node's files tell.

use super::{Boot, Row};
use crate::{
    cli::{
        live::{answer::answer, boot, identity, place::Place},
        say,
    },
    engine::{Engine, Settings},
    model::fact::{Fact, Observation, Origin},
    sink::history::Past,
    source::{
        backfill::{self, Node},
        clock,
        host::HostRoot,
    },
};

/// When names have come in, pods are looked at.
const SETTLED: std::time::Duration = std::time::Duration::from_secs(2);
/// An agent that has shown nothing for so long has ended.
const SILENT: std::time::Duration = std::time::Duration::from_secs(30);

impl Boot {
    /// The history's own row of it is right up to now only while an agent lives.
    pub(super) fn this(&self, past: &Past) -> anyhow::Result<Row> {
        let (config, stores) = self.config.load()?;
        let settings = Settings { boot: config.boot(), ..Settings::default() };
        let header = identity::header(None, settings.clone());
        let now = clock::now();
        if let Some(record) = past.history.of(&header.boot_id) {
            let beat = past.heartbeat.as_ref().filter(|beat| beat.boot_id == header.boot_id);
            if beat.is_none_or(|beat| beat.ended || now.since(beat.at) > SILENT) {
                say("no agent is at work in this boot any more: what is told of it ends with the last one");
            }
            return Ok(Row::new(record.node.clone(), record.recovery.clone(), now));
        }
        say("no agent has kept anything of this boot: its times are those of /proc and of files");
        let place = Place::find(HostRoot::open(&self.host.host_root)?)?;
        let mut engine = Engine::new(settings);
        let fact = Fact::BootRead(Box::new(boot::read(&header, &place.root, past)));
        engine.observe(Observation { at: now, origin: Origin::Agent, fact });
        let node = Node {
            root: &place.root,
            hierarchy: &place.hierarchy,
            clock: &clock::now,
            boot_wall_ns: header.boot_wall_ns,
            stores: &stores,
        };
        backfill::read(node, &mut |batch| {
            batch.into_iter().for_each(|seen| engine.observe(seen));
            Ok(())
        })
        .unwrap_or_default();
        answer(&mut engine, &place.root);
        let now = clock::now() + SETTLED;
        engine.advance(now);
        Ok(Row::new(header.node, engine.recovery().clone(), now))
    }
}
