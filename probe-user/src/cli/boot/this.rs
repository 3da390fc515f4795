//! The current boot: from the agent's records, or from the node's files if there is no agent.

use anyhow::anyhow;
use clap::Args;

use super::{Asked, Row};
use crate::{
    cli::{
        args::StateArgs,
        client::{AgentArgs, HISTORY},
        on_node::node::{
            args::NodeArgs,
            boot, identity,
            place::Place,
            scan::{is_whole, scan},
        },
        say,
        snapshot::instead,
    },
    engine::{Engine, Settings},
    model::{
        fact::{Fact, Observation, Origin},
        recovery::{Recovery, RunningPods},
    },
    recording::history::{Heartbeat, History},
    sink::state::history::SavedHistory,
    source::{backfill::Node, host::HostRoot, node::clock},
};

/// How long to wait for pods' names before the pods are read.
const SETTLED: std::time::Duration = std::time::Duration::from_secs(2);
/// An agent that has not written for this long has ended.
const SILENT: std::time::Duration = std::time::Duration::from_secs(30);

/// Where the current boot is read from: the agent or the node's files.
#[derive(Debug, Args)]
pub(super) struct HereArgs {
    #[command(flatten)]
    agent: AgentArgs,

    #[command(flatten)]
    node: NodeArgs,
}

/// Reads the agent's answer at [`HISTORY`], which has at least the agent's own boot.
pub(in crate::cli) fn answered(agent: &AgentArgs, answer: &[u8]) -> anyhow::Result<History> {
    let history = History::read(answer);
    if let Some((line, why)) = history.skipped.first() {
        return Err(anyhow!("{}: line {line} {why}", agent.answer_at(HISTORY)));
    }
    if history.records.is_empty() {
        return Err(anyhow!("{}: no boot, not even its own", agent.answer_at(HISTORY)));
    }
    Ok(history)
}

impl HereArgs {
    pub(super) fn rules(&self) -> anyhow::Result<Asked> {
        let (config, _) = self.node.config.load()?;
        Ok(Asked { quiet: config.boot_quiet, recovered: config.boot_recovered, target: config.boot_target })
    }

    /// Returns the agent's own records, if one answers and no state directory was typed instead. An answer
    /// that cannot be read is an error: files would show less than the agent knows.
    pub(super) fn agent_history(&self, state: &StateArgs) -> anyhow::Result<Option<SavedHistory>> {
        if state.is_typed() && !self.agent.is_typed() {
            return Ok(None);
        }
        let answer = match self.agent.ask_or_why(HISTORY) {
            Ok(answer) => answer,
            Err(why) => {
                why.why().iter().for_each(|why| say(&instead(why)));
                return Ok(None);
            }
        };
        let history = answered(&self.agent, &answer)?;
        // Its answer shows that it is alive.
        let boot = history.records.last().and_then(|record| record.recovery.boot.as_ref());
        let Some(boot) = boot else { return Ok(None) };
        let heartbeat = Heartbeat {
            boot_id: boot.boot_id.clone(),
            boot_wall_ns: boot.boot_wall_ns,
            at: clock::now(),
            ended: false,
            running: RunningPods::default(),
        };
        Ok(Some(SavedHistory { history, heartbeat: Some(heartbeat), problems: Vec::new() }))
    }

    /// Returns the row of the current boot, and whether everything that it is made of could be read. The
    /// history's row of this boot is current only while an agent lives. A boot that no agent has watched has
    /// only its recovery.
    pub(super) fn row(
        &self,
        past: &SavedHistory,
        is_for_restarts: bool,
    ) -> anyhow::Result<Option<(Row, bool)>> {
        let (config, stores) = self.node.config.load()?;
        let settings = Settings { boot: config.boot(), ..Settings::default() };
        let header = identity::header(None, settings.clone());
        let now = clock::now();
        if let Some(record) = past.history.of(&header.boot_id) {
            let beat = past.heartbeat.as_ref().filter(|beat| beat.boot_id == header.boot_id);
            if beat.is_none_or(|beat| beat.ended || now.since(beat.at) > SILENT) {
                say("no agent runs in this boot any more: what is shown of it ends with the last one");
            }
            return Ok(Some((Row::new(record.node.clone(), record.recovery.clone(), now), true)));
        }
        if is_for_restarts {
            say("no agent has kept anything of this boot: its restarts are not known");
            return Ok(Some((Row::of_recording(header, Recovery::default(), now), true)));
        }
        say("no agent has kept anything of this boot: its times are those of /proc and of files");
        let place = Place::find(HostRoot::open(&self.node.host.host_root)?)?;
        let mut engine = Engine::new(settings);
        let fact = Fact::BootRead(Box::new(boot::read(&header, &place.root, past, &config.boot_labels)));
        engine.observe(Observation { at: now, origin: Origin::Agent, fact });
        let node = Node {
            root: &place.root,
            hierarchy: &place.hierarchy,
            clock: &clock::now,
            boot_wall_ns: header.boot_wall_ns,
            stores: &stores,
        };
        let is_whole = is_whole(&scan(&mut engine, node), "what is shown of this boot may be incomplete");
        let now = clock::now() + SETTLED;
        engine.advance(now);
        Ok(Some((Row::new(header.node, engine.recovery().clone(), now), is_whole)))
    }
}
