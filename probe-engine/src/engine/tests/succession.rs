//! A new agent goes on with the state of the last one.

use probe_common::event::class;

use super::story::{CONTAINERD, DAEMON, Story, UID, Who, address, call, id, leaf, ms, run::check_lines};
use crate::{
    engine::{Engine, Settings},
    model::{
        change::{Change, ChangeKind, Output, Question},
        fact::{
            Attached, CniCommand, Fact, List, Loss, Mechanism, MessageFound, Observation, Origin,
            ProgramFound, Role, Signal,
        },
        id::NetnsKey,
        time::Timestamp,
    },
};

const SECOND: u64 = 1000;

const ADMIN: Who = Who::new(900, 899, "ip");

/// A story that goes on with the state of this engine.
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
    story.at(21 * SECOND).say(Origin::Agent, Fact::AgentBegan { unheard_since: None });
    let (told, engine) = story.judge(30 * SECOND);
    assert!(told.contains("finding.closed blind_spot/file/:proc:7:cmdline"), "{told}");
    assert_eq!(engine.hanging(), []);
    // The new agent's reader hangs there as well.
    story.at(32 * SECOND).say(Origin::Agent, hangs(true));
    let (told, engine) = story.judge(40 * SECOND);
    assert!(told.ends_with("finding.confirmed blind_spot/file/:proc:7:cmdline Agent"), "{told}");
    assert_eq!(engine.hanging().len(), 1);
}

fn found(inode: u32) -> Fact {
    Fact::NetnsFound {
        netns: NetnsKey::new(inode, 0),
        mounts: vec![format!("/run/netns/{inode}")],
        vacant: true,
    }
}

/// The facts for an agent that goes on at ten seconds. The last one ran until eight.
fn next(engine: &Engine, is_whole: bool) -> Story {
    let mut story = after(engine);
    let unheard_since = is_whole.then(|| ms(8 * SECOND));
    story.at(10 * SECOND).say(Origin::Agent, Fact::AgentBegan { unheard_since });
    story
}

/// The stream and the questions.
fn told(story: &Story) -> String {
    story.run().into_iter().filter(|line| !line.contains(" finding.")).collect::<Vec<_>>().join("\n")
}

/// Hooks see the ends and rtnetlink the addresses, or rtnetlink both. It does not report what it was not
/// asked to watch.
#[test]
fn what_netlink_watched_for_the_last_agent_is_watched_again_and_the_time_between_is_a_gap() {
    for (ends, addresses) in
        [(Mechanism::RawTracepoint, Mechanism::Netlink), (Mechanism::Netlink, Mechanism::Fentry)]
    {
        let mut story = Story::new();
        story.attached(Signal::NetnsDropped, Some(ends)).attached(Signal::NetnsFreed, Some(ends));
        story.attached(Signal::AddressV4, Some(addresses)).attached(Signal::AddressV6, Some(addresses));
        story.at(20).listed(found(41)).listed(found(42)).netns(ADMIN, 43, 0);
        let (_, engine) = story.judge(5 * SECOND);
        let mut story = next(&engine, true);
        // The first of them ended while no agent ran, and no listing shows the third.
        story.at(10 * SECOND + 100).list(List::Netns, true, |story| {
            story.listed(found(42));
        });
        let origin = if addresses == Mechanism::Netlink { Origin::Netlink } else { Origin::Kernel };
        story.at(12 * SECOND).say(origin, Fact::AddressAdded(address(ADMIN, 42, "10.0.0.1/24", "eth0")));
        // What a hook says has its place in the order of the records, and comes before what is asked at that
        // time.
        let rest = if origin == Origin::Netlink {
            "? watch 43 ip\n12000 address.added 10.0.0.1/24 eth0 42 Netlink"
        } else {
            "12000 address.added 10.0.0.1/24 eth0 42\n? watch 43 ip"
        };
        check_lines(
            &told(&story),
            &format!("10000 gap NetlinkSocket 0 Agent\n? watch 42\n10102 netns.destroyed 41 Listed\n{rest}"),
        );
        // Then nothing was seen in that time by any mechanism.
        assert!(!told(&next(&engine, false)).contains("gap"), "AgentAway tells it");
    }
}

/// The last agent could no longer read notifications when it ended. What it missed until then belongs to that
/// time too.
#[test]
fn where_netlink_failed_when_the_last_agent_ended_there_is_a_gap_and_a_listing_shows_what_ended() {
    let mut story = Story::new();
    story.attached(Signal::NetnsDropped, Some(Mechanism::Netlink));
    story.at(20).listed(found(41)).listed(found(42));
    let missed = vec![(Mechanism::Netlink, "its notifications cannot be read: no memory".to_owned())];
    let unseen = Attached { signal: Signal::NetnsDropped, mechanism: None, note: String::new(), missed };
    story.at(4 * SECOND).say(Origin::Netlink, Fact::Attached(unseen));
    let (_, engine) = story.judge(5 * SECOND);
    let mut story = next(&engine, true);
    story.at(10 * SECOND + 50).attached(Signal::NetnsDropped, Some(Mechanism::Netlink));
    story.at(10 * SECOND + 100).list(List::Netns, true, |story| {
        story.listed(found(42));
    });
    check_lines(
        &told(&story),
        "10000 gap NetlinkSocket 0 Agent\n? watch 42\n10102 netns.destroyed 41 Listed",
    );
}

/// The hooks saw it begin, and report its end in their order. The kernel may take a while for that, and no
/// listing has it meanwhile.
#[test]
fn the_end_of_a_namespace_that_hooks_report_is_not_reported_by_a_listing_before_them() {
    let mut story = Story::new();
    for signal in [Signal::NetnsDropped, Signal::NetnsFreed] {
        story.attached(signal, Some(Mechanism::RawTracepoint));
    }
    story.attached(Signal::AddressV4, Some(Mechanism::Netlink));
    story.at(20).netns(ADMIN, 41, 7).listed(found(41));
    let mut story = next(&story.judge(5 * SECOND).1, true);
    story.at(10 * SECOND + 100).list(List::Netns, true, |_| {});
    story.at(10 * SECOND + 150).dropped(41, 7);
    let told = told(&story);
    assert!(told.lines().any(|line| line == "10150 netns.destroyed 41"), "{told}");
    assert_eq!(told.matches("destroyed").count(), 1, "{told}");
}

/// Records were lost while no agent ran: a namespace ended, and another one got its inode.
#[test]
fn a_namespace_with_the_inode_of_an_earlier_one_is_not_taken_for_it() {
    let mut story = Story::new();
    story.attached(Signal::NetnsDropped, Some(Mechanism::RawTracepoint));
    story.attached(Signal::AddressV4, Some(Mechanism::Netlink));
    story.at(20).netns(ADMIN, 41, 7).listed(found(41));
    let engine = story.judge(5 * SECOND).1;
    let mut story = next(&engine, false);
    story.lost();
    let mounts = vec!["/run/netns/other".to_owned()];
    let other = Fact::NetnsFound { netns: NetnsKey::new(41, 0), mounts, vacant: true };
    // A node with many processes is listed for a while.
    story.until(15 * SECOND).list(List::Netns, true, |story| {
        story.listed(other);
    });
    let told = told(&story);
    check_lines(
        &told,
        "
            ? relist
            10001 gap LifecycleRing 3 Agent
            ? watch 41
            15001 netns.destroyed 41 Listed
        ",
    );
}

/// Nothing was lost, but a record of the time between may come late: of a namespace that has the inode now.
#[test]
fn what_netlink_watched_for_the_last_agent_waits_for_the_listing_however_long_that_takes() {
    let mut story = Story::new();
    story.attached(Signal::NetnsDropped, Some(Mechanism::RawTracepoint));
    story.attached(Signal::AddressV4, Some(Mechanism::Netlink));
    story.at(20).listed(found(41));
    let mut story = next(&story.judge(5 * SECOND).1, true);
    let is_asked = |story: &Story| told(story).contains("? watch 41");
    // What netlink misses meanwhile changes nothing.
    story.say(Origin::Netlink, Fact::Lost { what: Loss::NetlinkSocket, count: 1, since: None });
    assert!(!is_asked(story.until(15 * SECOND)));
    story.list(List::Netns, true, |story| {
        story.listed(found(41));
    });
    assert!(is_asked(&story));
}

#[test]
fn where_hooks_see_all_a_succession_is_no_gap() {
    let mut story = Story::new();
    for signal in [Signal::NetnsDropped, Signal::AddressV4, Signal::AddressV6] {
        story.attached(signal, Some(Mechanism::Fentry));
    }
    story.at(20).listed(found(41));
    assert_eq!(told(&next(&story.judge(5 * SECOND).1, true)), "");
    // Except for the end of a namespace that the hooks have no room for.
    let end_unseen = Fact::NetnsCreated { netns: NetnsKey::new(42, 0), by: ADMIN.task(), end_unseen: true };
    story.at(30).kernel(end_unseen);
    let told = told(&next(&story.judge(5 * SECOND).1, true));
    check_lines(&told, "10000 gap NetlinkSocket 0 Agent\n? watch 42 ip");
}

/// The questions to a new agent's sources.
pub(super) fn asked_again(engine: &Engine) -> Vec<Question> {
    let mut next = Engine::new(Settings::default());
    engine.dump().into_iter().for_each(|entry| next.restore(entry));
    // The last agent's sources have the earlier questions.
    while next.poll().is_some() {}
    let fact = Fact::AgentBegan { unheard_since: None };
    next.observe(Observation { at: next.now(), origin: Origin::Agent, fact });
    let question = |output| match output {
        Output::Question(question) => Some(question),
        Output::Change(_) => None,
    };
    std::iter::from_fn(|| next.poll()).filter_map(question).collect()
}

#[test]
fn a_container_of_which_the_last_agent_was_asked_is_asked_for_again() {
    let mut story = Story::new();
    story.at(SECOND).mkdir(20, &format!("/kubepods/besteffort/pod{UID}")).mkdir(21, &leaf('a'));
    let (_, engine) = story.judge(2 * SECOND);
    assert_eq!(asked_again(&engine), [Question::Container { id: id('a') }]);
    // This holds however often an agent is killed before it has the answer.
    let mut last = engine;
    for _ in 0..5 {
        let story = next(&last, true);
        assert!(story.run().contains(&"? container a".to_owned()));
        last = story.judge(11 * SECOND).1;
    }
    // Answered questions are not asked again, and a container that no source knows is not asked about for
    // ever.
    story.container('a', Role::Sandbox, 'a', "");
    assert_eq!(asked_again(&story.judge(2 * SECOND).1), []);
    let mut unknown = next(&last, true);
    unknown.at(12 * SECOND).listed(Fact::ContainerUnknown(id('a')));
    assert_eq!(asked_again(&unknown.judge(13 * SECOND).1), []);
}

#[test]
fn versions_and_messages_that_the_last_agent_had_not_found_out_are_asked_for_again() {
    const BRIDGE: &str = "/usr/lib/cni/bridge";
    const CALICO: &str = "/usr/lib/cni/calico";
    let mut story = Story::new();
    story.at(100 * SECOND).exec(DAEMON, class::CALLER, "/usr/bin/containerd");
    story.cni_done(900, BRIDGE, "ADD", "/run/netns/x");
    story.kernel(Fact::CniCalled(call(901, CONTAINERD, CALICO, "ADD", "/run/netns/x", 'a')));
    story.exit(Who::new(901, CONTAINERD, "plugin"), class::CNI, 0x100);
    let asked = |story: &Story| {
        let mut asked = asked_again(&story.judge(103 * SECOND).1);
        asked.retain(|it| matches!(it, Question::Program { .. } | Question::Message { .. }));
        asked
    };
    let program = |path: &str| Question::Program { path: path.to_owned() };
    // Messages that were logged from half a minute before the failure on.
    let since = ms(70_004);
    let message = Question::Message { container: id('a'), command: CniCommand::Add, since };
    assert_eq!(asked(&story), [program("/usr/bin/containerd"), program(BRIDGE), message]);
    for path in ["/usr/bin/containerd", BRIDGE] {
        story.listed(Fact::ProgramFound(ProgramFound { path: path.to_owned(), version: None }));
    }
    story.listed(Fact::MessageFound(MessageFound {
        container: id('a'),
        command: CniCommand::Add,
        text: None,
        source: "journal".to_owned(),
    }));
    assert_eq!(asked(&story), []);
}

/// What an agent reports that arrived at `until`, reads all of `left` at once, and gets these answers a
/// second later.
fn told_at_once(left: &Story, until: u64, answers: &Story) -> Vec<Change> {
    let mut engine = Engine::new(Settings::default());
    let agent = |at, fact| Observation { at: ms(at), origin: Origin::Agent, fact };
    engine.observe(agent(until, Fact::AgentArrived));
    left.facts.iter().for_each(|seen| engine.observe(seen.clone()));
    engine.observe(agent(until, Fact::Watermark));
    answers.facts.iter().for_each(|seen| engine.observe(seen.clone()));
    engine.observe(agent(until + 20 * SECOND, Fact::Watermark));
    let mut told = Vec::new();
    while let Some(output) = engine.poll() {
        let Output::Change(change) = output else { continue };
        told.push(change);
    }
    told
}

/// A new agent reads at once what happened in the minutes before it. By then all that was over at their
/// beginning would be forgotten.
#[test]
fn what_happened_in_minutes_that_are_read_at_once_is_reported_with_all_that_is_known_of_it() {
    let path = |text: &str| Some(text.into());
    for is_silent_since in [true, false] {
        let mut story = Story::new();
        story.at(SECOND).mkdir(77, "/plain").at(2 * SECOND).rmdir(77, "/plain");
        let mut expected = vec![(ms(SECOND), path("/plain"), false), (ms(2 * SECOND), path("/plain"), false)];
        if !is_silent_since {
            story.at(1000 * SECOND).mkdir(78, "/other");
            expected.push((ms(1000 * SECOND), path("/other"), false));
        }
        let told = told_at_once(&story, 1001 * SECOND, &Story::new()).into_iter();
        let told: Vec<_> = told.map(|it| (it.at, it.context.cgroup.map(|it| it.path), it.late)).collect();
        assert_eq!(told, expected);
    }
}

/// Whether a container is a sandbox is known only when a file is read. All that came after it waits for that.
#[test]
fn what_ended_in_minutes_that_are_read_at_once_is_reported_with_the_pod_that_a_file_names() {
    let pod = format!("/kubepods/besteffort/pod{UID}");
    let mut story = Story::new();
    story.at(SECOND).mkdir(20, &pod).mkdir(21, &leaf('a')).mkdir(77, "/plain");
    story.at(20 * SECOND).rmdir(77, "/plain");
    story.at(30 * SECOND).rmdir(21, &leaf('a')).rmdir(20, &pod);
    story.at(1000 * SECOND).mkdir(78, "/other");
    let mut answers = Story::new();
    answers.at(1002 * SECOND).container('a', Role::Sandbox, 'a', "");
    let told = told_at_once(&story, 1001 * SECOND, &answers);
    let removed: Vec<_> = told
        .iter()
        .filter(|it| matches!(it.what, ChangeKind::CgroupRemoved { .. }))
        .map(|it| {
            let path = it.context.cgroup.as_ref().map(|it| it.path.to_string());
            (path, it.context.pod.as_ref().and_then(|it| it.name.clone()))
        })
        .collect();
    let named = Some("web-0".into());
    assert_eq!(
        removed,
        [(Some("/plain".to_owned()), None), (Some(leaf('a')), named.clone()), (Some(pod), named)]
    );
}
