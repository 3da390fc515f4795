//! Answers for an engine that looks once: no agent is there to carry its questions.

use crate::{
    engine::Engine,
    model::{
        change::{Output, Question},
        fact::{Observation, Origin},
    },
    source::{
        answer::Answerer,
        clock,
        host::{HostRoot, skipped::Skipped},
    },
};

/// Answers what the engine asks of containers and pods, until it asks no more.
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
