//! An agent that does not run for a while. What happened meanwhile is read afterwards, and time passes after
//! it.

use std::{io, thread, time::Duration};

use probe_common::event::class;
use tokio::{
    runtime,
    sync::oneshot,
    time::{self, Instant},
};

use super::{
    super::{Agent, Routes, Served, timer::Timer},
    header, outlets, session, session_of, stream_to,
};
use crate::{
    engine::{Call, Limits, Settings},
    model::{
        fact::{Caller, CniCalled, CniVariables, Exited, Fact, Observation, Origin, Task},
        id::{NetnsKey, TaskKey},
        time::Timestamp,
    },
    recording::Header,
    session::Session,
    source::{
        node::clock,
        task::{
            channel::{feed, stop},
            records_first::{RecordsFirst, Teller, records_first},
        },
    },
};

/// How long a call may take here.
const LIMIT: Duration = Duration::from_millis(300);
/// How long the call takes.
const CALL: Duration = Duration::from_millis(100);

fn plugin() -> Task {
    Task { key: TaskKey::new(11, 1), tid: 11, comm: "bridge".to_owned(), ..Task::default() }
}

fn begins(at: Timestamp) -> Observation {
    let variables = CniVariables {
        command: "ADD".to_owned(),
        container_id: Some("a".repeat(64)),
        ifname: Some("eth0".to_owned()),
        ..CniVariables::default()
    };
    let call = CniCalled {
        task: plugin(),
        filename: "/opt/cni/bin/bridge".to_owned(),
        caller: Some(Caller { key: TaskKey::new(10, 1), comm: "containerd".to_owned() }),
        host: true,
        variables,
        env_truncated: false,
    };
    Observation { at, origin: Origin::Kernel, fact: Fact::CniCalled(call) }
}

fn ends(at: Timestamp) -> Observation {
    let exited = Exited { task: plugin(), status: 0, class: class::CNI };
    Observation { at, origin: Origin::Kernel, fact: Fact::Exited(exited) }
}

fn watermark(at: Timestamp) -> Observation {
    Observation { at, origin: Origin::Agent, fact: Fact::Watermark }
}

/// Nothing of the agent runs for longer than a call may take, from shortly after its begin, and the call ends
/// meanwhile. Returns the keys of the findings.
fn found_after_a_stall(waits_for_records: bool) -> Vec<String> {
    let limits = Limits { cni_slow: LIMIT, ..Limits::default() };
    let settings = Settings { hold: Duration::from_millis(20), limits, ..Settings::default() };
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (session, result) = runtime.block_on(async {
        let (feed, batches) = feed();
        let (stopper, _stop) = stop();
        let (teller, told) = records_first(Duration::ZERO);
        let sources = if waits_for_records { vec![told] } else { Vec::new() };
        let agent = Agent {
            session: session_of(Header { settings, ..header() }),
            timer: Timer::new(sources),
            batches,
            stopper,
            routes: Routes::default(),
            outlets: outlets(stream_to(io::sink()), None),
            findings_file: None,
            history: None,
            otlp: None,
            served: Served::default(),
        };
        let (over, end) = oneshot::channel();
        tokio::spawn(async move {
            let begun = clock::now();
            feed.send(vec![begins(begun), watermark(begun)]).await.expect("the agent is there");
            teller.told(begun);
            // The engine waits for the limit now.
            time::sleep(CALL / 2).await;
            thread::sleep(LIMIT * 2);
            // Only the question wakes a reader without records.
            time::timeout(LIMIT, teller.wanted()).await.ok();
            let now = clock::now();
            feed.send(vec![ends(begun + CALL), watermark(now)]).await.expect("the agent is there");
            teller.told(now);
            over.send(()).expect("the agent is there");
        });
        agent.run(async { end.await.expect("told") }).await
    });
    result.expect("a run without fault");
    session.engine().findings().map(|it| it.key.as_str().to_owned()).collect()
}

#[test]
fn a_call_that_ended_while_the_agent_did_not_run_is_not_slow() {
    assert_eq!(found_after_a_stall(true), [""; 0]);
    assert_eq!(found_after_a_stall(false), ["cni_slow/bridge/ADD"], "it did not run for long enough");
}

/// A session whose engine wants to be called with the time at once.
fn session_that_waits() -> Session {
    let mut session = session();
    let fact = Fact::NetnsFreed { netns: NetnsKey::new(5, 5) };
    let seen = Observation { at: Timestamp(1), origin: Origin::Netlink, fact };
    session.call(Call::Observe(seen)).expect("recorded");
    session
}

/// How long the timer waits for the source that the test plays.
async fn waits_for(told: RecordsFirst) -> Duration {
    let begun = Instant::now();
    Timer::new(vec![told]).due(&session_that_waits()).await;
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn the_timer_waits_for_a_source_a_second_at_most() {
    let (teller, told) = records_first(Duration::ZERO);
    assert_eq!(waits_for(told.clone()).await, Duration::from_secs(1));
    teller.told(clock::now());
    assert_eq!(waits_for(told.clone()).await, Duration::ZERO, "it has told what counts");
    drop(teller);
    assert_eq!(waits_for(told).await, Duration::ZERO, "nobody is there to be waited for");
}

/// The source is stopped together with the agent.
async fn answers_after(stall: Duration, teller: Teller) -> Teller {
    teller.wanted().await;
    time::advance(stall).await;
    teller.wanted().await;
    teller.told(clock::now());
    teller
}

#[tokio::test(start_paused = true)]
async fn a_stall_while_the_timer_waits_is_no_answer() {
    let (teller, told) = records_first(Duration::ZERO);
    let answers = tokio::spawn(answers_after(Duration::from_secs(60), teller));
    waits_for(told.clone()).await;
    let teller = answers.await.expect("it was asked again");
    assert!(told.has_told(clock::now().saturating_sub(Duration::from_secs(1))));
    drop(teller);
}
