//! One scan of the node's files into an engine, for commands that look once.

use crate::{
    cli::say,
    engine::Engine,
    model::{
        change::{Output, Question},
        fact::{Fact, Observation, Origin},
    },
    source::{
        backfill::{self, Closed, Node},
        files::answer::Answerer,
        host::{HostRoot, skipped::Skipped},
        node::clock,
    },
};

type Batch = Vec<Observation>;

/// Reads the whole node, then answers what the engine asks.
pub(in crate::cli) fn scan(engine: &mut Engine, node: Node<'_>) -> Skipped {
    let mut skipped = observe(engine, node, backfill::read, |_| ());
    skipped.append(answer(engine, node.root));
    skipped
}

/// Whether nothing is missing of what the node's files show. Reports what could not be read, and what that
/// may do.
pub(in crate::cli) fn is_whole(skipped: &Skipped, so: &str) -> bool {
    let is_whole = skipped.missed.is_none();
    if let Some((path, why)) = skipped.missed.as_deref().or(skipped.first.as_deref()) {
        let so = if is_whole { "and what is in them is left out".to_owned() } else { format!("so {so}") };
        say(&format!(
            "{} of the node's files could not be read, {so}; the first: {}: {why}",
            skipped.count,
            path.display()
        ));
    }
    is_whole
}

/// Makes one `pass`, which reads all of a node or a part of it. `note` sees each fact before the engine does.
pub(in crate::cli) fn observe(
    engine: &mut Engine,
    node: Node<'_>,
    pass: impl FnOnce(Node<'_>, &mut dyn FnMut(Batch) -> Result<(), Closed>) -> Result<Skipped, Closed>,
    mut note: impl FnMut(&Fact),
) -> Skipped {
    let passed = pass(node, &mut |batch| {
        for seen in batch {
            note(&seen.fact);
            engine.observe(seen);
        }
        Ok(())
    });
    // A pass ends early only when its receiver refuses a batch, and the one above never does.
    passed.unwrap_or_default()
}

/// Answers what the engine asks about containers and pods, until it asks no more.
pub(in crate::cli) fn answer(engine: &mut Engine, root: &HostRoot) -> Skipped {
    let mut answerer = Answerer::new(root);
    let at = clock::now();
    while let Some(output) = engine.poll() {
        let fact = match output {
            Output::Question(Question::Container { id }) => Some(answerer.container(&id)),
            Output::Question(Question::Pod { uid }) => answerer.pod(&uid),
            Output::Question(_) | Output::Change(_) => None,
        };
        if let Some(fact) = fact {
            engine.observe(Observation { at, origin: Origin::Listed, fact });
        }
    }
    answerer.skipped
}
