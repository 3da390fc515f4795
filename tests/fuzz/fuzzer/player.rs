//! An engine that an input drives, and checks that must hold for any input.

use probe_user::{
    engine::{Call, Engine, Settings, world::CheckpointEntry},
    model::{
        change::Output,
        fact::{Fact, Observation, Origin},
        time::Timestamp,
    },
    recording::{Header, Reader, Writer},
};
use std::time::Duration;

/// The maximum number of calls, because a call can take time for each row of the engine.
const CALLS: usize = 400;

pub(super) struct Player {
    engine: Engine,
    /// An engine that was restored from the first one's dump. It must behave in the same way.
    twin: Option<Engine>,
    calls: Vec<Call>,
    outputs: Vec<Output>,
    now: Timestamp,
}

impl Player {
    /// Returns an engine of an agent that starts now.
    pub(super) fn new() -> Self {
        Self::resumed(Vec::new())
    }

    /// Returns an engine that continues with another one's state.
    pub(super) fn resumed(entries: Vec<CheckpointEntry>) -> Self {
        let engine = Engine::new(Settings::default());
        let now = Timestamp(1_000_000_000);
        let mut player = Self { engine, twin: None, calls: Vec::new(), outputs: Vec::new(), now };
        for entry in entries {
            if let CheckpointEntry::Engine(state) = &entry {
                player.now = player.now.max(state.now);
            }
            player.call(Call::Restore(Box::new(entry)));
        }
        player
    }

    pub(super) fn is_full(&self) -> bool {
        self.calls.len() >= CALLS
    }

    /// Lets time pass, up to the maximum of the clock.
    pub(super) fn pass(&mut self, span: Duration) {
        self.now = (self.now + span).min(Timestamp::LATEST);
    }

    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    pub(super) fn observe(&mut self, at: Timestamp, origin: Origin, fact: Fact) {
        self.call(Call::Observe(Observation { at: at.min(Timestamp::LATEST), origin, fact }));
    }

    /// Declares that everything until now was reported.
    pub(super) fn watermark(&mut self) {
        self.observe(self.now, Origin::Agent, Fact::Watermark);
        self.rests();
    }

    pub(super) fn advance(&mut self) {
        self.call(Call::Advance(self.now));
        self.rests();
    }

    /// From here on a restored engine runs beside the first one.
    pub(super) fn restart(&mut self) {
        let twin = restored(&self.engine);
        assert_eq!(twin.dump(), self.engine.dump(), "a restored engine has another state");
        assert_eq!(twin.deadline(), self.engine.deadline(), "a restored engine has another deadline");
        self.twin = Some(twin);
    }

    /// Ends the run, and checks what must hold for all of it.
    pub(super) fn end(mut self) {
        self.watermark();
        self.pass(self.engine.settings().hold);
        self.advance();
        self.same_calls_same_outputs();
        self.restart();
        if let Some(twin) = &self.twin {
            assert_eq!(twin.pods(), self.engine.pods());
            assert_eq!(twin.starts(), self.engine.starts());
            assert_eq!(twin.shares(), self.engine.shares());
            assert_eq!(twin.running_pods(), self.engine.running_pods());
        }
        // Both have just judged, so their counts are of the same time.
        for engine in self.twin.iter_mut().chain([&mut self.engine]) {
            assert_eq!(engine.differences(), Vec::<String>::new(), "a verdict was not judged again");
        }
        assert_eq!(self.twin.as_ref().map(Engine::pools), Some(self.engine.pools()));
        assert_eq!(self.twin.as_ref().map(Engine::many), Some(self.engine.many()));
    }

    pub(super) fn call(&mut self, call: Call) {
        self.engine.call(call.clone());
        let outputs = taken(&mut self.engine);
        if let Some(twin) = &mut self.twin {
            twin.call(call.clone());
            assert_eq!(taken(twin), outputs, "a restored engine says something else");
            assert_eq!(twin.deadline(), self.engine.deadline(), "a restored engine has another deadline");
        }
        self.calls.push(call);
        self.outputs.extend(outputs);
    }

    /// Checks that no deadline has passed.
    fn rests(&self) {
        let deadline = self.engine.deadline();
        assert!(
            self.now == Timestamp::LATEST || deadline.is_none_or(|deadline| deadline > self.now),
            "it would be woken for ever: {deadline:?} at {:?}",
            self.now
        );
    }

    /// Checks that the calls give the same outputs after a recording of them is written and read.
    fn same_calls_same_outputs(&self) {
        let mut writer = Writer::start(&header()).expect("a header");
        self.calls.iter().for_each(|call| writer.write(call).expect("a call has a line"));
        let file = writer.end().expect("an end");
        let mut reader = Reader::open(&*file).expect("a recording");
        let mut again = Engine::new(Settings::default());
        let mut outputs = Vec::new();
        while let Some(call) = reader.next_call().expect("what was written can be read") {
            again.call(call);
            outputs.extend(taken(&mut again));
        }
        assert_eq!(outputs, self.outputs, "the same calls give something else");
        assert_eq!(again.dump(), self.engine.dump(), "the same calls lead to something else");
    }
}

pub(super) fn header() -> Header {
    Header {
        made_by: "0".to_owned(),
        node: "node-1".to_owned(),
        boot_id: "9f3c6e1a-0000-4000-8000-000000000001".to_owned(),
        kernel: "6".to_owned(),
        boot_wall_ns: 1_795_000_000_000_000_000,
        settings: Settings::default(),
    }
}

fn restored(engine: &Engine) -> Engine {
    let mut fresh = Engine::new(engine.settings().clone());
    engine.dump().into_iter().for_each(|entry| fresh.restore(entry));
    fresh
}

pub(super) fn taken(engine: &mut Engine) -> Vec<Output> {
    std::iter::from_fn(|| engine.poll()).collect()
}
