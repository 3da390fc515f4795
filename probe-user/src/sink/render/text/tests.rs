//! The layout of lines; text from outside cannot break it.

use std::time::Duration;

use super::{Style, Text, detail::detail};
use crate::{
    model::{
        change::{Change, ChangeKind, CniCall, Context, End, PodRef, Process},
        fact::{Loss, Origin},
        id::{NetnsKey, PodUid, TaskKey},
        time::Timestamp,
    },
    sink::{Format, Label},
};

fn change(name: &str, what: ChangeKind) -> Change {
    let pod = PodRef {
        namespace: Some("default".to_owned()),
        name: Some(name.to_owned()),
        uid: PodUid::parse("11111111-2222-3333-4444-555555555555"),
        source: None,
    };
    let context =
        Context { pod: Some(pod), netns: Some(NetnsKey::new(4_026_532_301, 0)), ..Context::default() };
    let at = Timestamp(1_234_567_890);
    Change { seq: 1, at, origin: Origin::Kernel, late: false, context, what }
}

fn process(comm: &str) -> Process {
    Process { key: TaskKey::new(77, 1), comm: comm.to_owned(), ..Process::default() }
}

fn told(style: Style, changes: &[Change]) -> String {
    let label = Label { node: "n".to_owned(), boot_id: "b".to_owned(), boot_wall_ns: 0 };
    let (mut text, mut out) = (Text::new(style), Vec::new());
    for change in changes {
        text.write(change, &label, &mut out);
    }
    String::from_utf8(out).expect("text is UTF-8")
}

#[test]
fn columns_are_aligned_under_one_heading() {
    let call = CniCall {
        command: "ADD".to_owned(),
        plugin: "bridge".to_owned(),
        netns: Some("/run/netns/cni-1".to_owned()),
        ifname: Some("eth0".to_owned()),
        process: process("bridge"),
        called_by: None,
        delegated: false,
        trace: None,
    };
    let ended = ChangeKind::CniFinished {
        call: call.into(),
        end: Some(End::default()),
        duration: Duration::from_micros(35_249),
    };
    let mut listed = change("a-name-that-is-longer-than-most", ChangeKind::PodFirstSeen);
    listed.origin = Origin::Listed;
    listed.late = true;
    let mut nameless = change("", ChangeKind::NetnsCreated { by: process("containerd") });
    nameless.context.pod = None;
    let text = told(Style::default(), &[change("web-0", ended), listed, nameless]);
    assert_eq!(
        text,
        "\
TIME (UTC)       EVENT              POD                       DETAIL
00:00:01.234567  cni.finished       default/web-0             ADD bridge eth0 cni-1 exit 0 in 35.2 ms
00:00:01.234567  pod.first_seen     default/a-name-that-is-longer-than-most  uid 11111111-2222-3333-4444-555555555555 (late) [listed]
00:00:01.234567  netns.created      -                                        netns 4026532301 by containerd[77]
"
    );
}

#[test]
fn a_terminal_gets_colors_and_lines_that_fit() {
    let argv = vec!["sh".to_owned(), "x".repeat(200)];
    let exec = ChangeKind::ProcessExec {
        process: process("sh"),
        filename: "/bin/sh".to_owned(),
        argv,
        argv_cut: false,
    };
    let text = told(Style { color: false, width: Some(80) }, &[change("web-0", exec)]);
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(text.ends_with("…\n"));
    let bad = ChangeKind::ProcessExit { process: process("sh"), end: End { code: 1, ..End::default() } };
    assert!(
        told(Style { color: true, width: None }, &[change("web-0", bad)]).contains("\x1b[31mprocess.exit")
    );
}

#[test]
fn no_name_can_act_on_the_terminal() {
    let evil = "\x1b]0;owned\x07\r\n\u{202e}";
    let argv = vec![evil.to_owned(), evil.to_owned()];
    let exec =
        ChangeKind::ProcessExec { process: process(evil), filename: evil.to_owned(), argv, argv_cut: true };
    let text = told(Style::default(), &[change(evil, exec)]);
    assert_eq!(text.lines().count(), 2);
    assert!(text.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'), "{text:?}");
}

#[test]
fn a_gap_says_what_was_not_seen_and_how_long_or_how_much() {
    let said = |what, count, lasted| detail(&change("", ChangeKind::Gap { what, count, lasted }));
    let lasted = Some(Duration::from_secs(2));
    assert_eq!(said(Loss::NoAgent, 0, lasted), "no agent ran for 2.00 s");
    assert_eq!(said(Loss::NetlinkSocket, 0, lasted), "no agent heard netlink for 2.00 s");
    assert_eq!(said(Loss::NetlinkSocket, 3, None), "3 lost: netlink socket");
    assert_eq!(said(Loss::State, 0, lasted), "what the last agent kept of the last 2.00 s is lost");
    assert_eq!(said(Loss::State, 0, Some(Duration::ZERO)), "what the last agent kept is lost");
}
