//! `sandprobe pods`: the pods of this node, once, from its files alone.

mod table;

use clap::Args;

use super::{
    Done,
    args::{ConfigArgs, Form, HostArgs, warn_of_absent},
    live::{answer::answer, place::Place},
    output, say,
};
use crate::{
    engine::{Engine, Settings},
    source::{
        backfill::{self, Node},
        clock,
        host::HostRoot,
    },
};

#[derive(Debug, Args)]
pub(super) struct Pods {
    /// The form of the output
    #[arg(short, long, value_name = "FORM", default_value = "text")]
    output: Form,

    #[command(flatten)]
    host: HostArgs,

    #[command(flatten)]
    config: ConfigArgs,
}

impl Pods {
    pub(super) fn run(&self) -> anyhow::Result<Done> {
        let (_, stores) = self.config.load()?;
        let place = Place::find(HostRoot::open(&self.host.host_root)?)?;
        warn_of_absent(&stores, &place.root);
        let mut engine = Engine::new(Settings::default());
        let node = Node {
            root: &place.root,
            hierarchy: &place.hierarchy,
            clock: &clock::now,
            boot_wall_ns: clock::boot_wall_ns(),
            stores: &stores,
        };
        let mut skipped = backfill::read(node, &mut |batch| {
            batch.into_iter().for_each(|seen| engine.observe(seen));
            Ok(())
        })
        .unwrap_or_default();
        skipped.append(answer(&mut engine, &place.root));

        let now = clock::now();
        let pods = engine.pods();
        let mut text = match self.output {
            Form::Text => table::text(&pods, now),
            Form::Json => table::json(&pods)?,
        };
        output::write(&mut text)?;
        match skipped.first {
            None => Ok(Done::Whole),
            Some((path, why)) => {
                say(&format!(
                    "{} of the node's files could not be read, the list may lack something: first {}: {why}",
                    skipped.count,
                    path.display()
                ));
                Ok(Done::Part)
            }
        }
    }
}
