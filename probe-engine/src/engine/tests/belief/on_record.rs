//! Sandboxes that the runtime keeps on record although nothing of them is left.

use super::*;

/// The runtime keeps the sandbox on record as not ready, and its pod is deleted or not.
fn on_record(is_deleted: bool) -> Story {
    let mut story = running(EventStream::None);
    vanished(&mut story);
    story.rmdir(20, &format!("/kubepods/besteffort/pod{UID}"));
    for minute in 1..=6 {
        let described = Described { pod: Some(pod_name()), ..Described::default() };
        let not_ready = Stated { described, ..stated('a', Believed::Exited, None) };
        story.until(minute * 60 * SECOND).status(vec![not_ready]);
        story.listed(if is_deleted {
            Fact::PodUnknown(uid())
        } else {
            let (namespace, name) = ("default".to_owned(), "web-0".to_owned());
            Fact::PodFound { uid: uid(), namespace, name, source: NameSource::LogFolder }
        });
    }
    story.until(400 * SECOND);
    story
}

/// The pod is deleted, or has completed and is kept. The record goes at last.
fn kept_on_record(is_deleted: bool) -> Vec<String> {
    let mut story = on_record(is_deleted);
    story.states(&[]).until(405 * SECOND).moment();
    told(&story).into_iter().filter(|line| line != "? statuses").collect()
}

#[test]
fn sandboxes_on_record_of_pods_that_are_gone_are_reported_and_those_of_completed_pods_are_not() {
    assert_eq!(kept_on_record(false), [""; 0]);
    assert_eq!(
        kept_on_record(true),
        [
            "240001 finding.opened phantom_sandbox/left_on_record/:run:containerd:containerd.sock [a] Agent",
            "240001 finding.confirmed phantom_sandbox/left_on_record/:run:containerd:containerd.sock [a] Agent",
            "400099 finding.closed phantom_sandbox/left_on_record/:run:containerd:containerd.sock [a] Agent",
        ]
    );
}

/// Nothing is judged while nobody cleans up. The number stays the one that was found.
#[test]
fn sandboxes_left_on_record_keep_their_number_while_the_runtime_is_down() {
    let mut story = on_record(true);
    story.exit(Who::new(CONTAINERD, 1, "containerd"), class::RUNTIME, 9).until(420 * SECOND).moment();
    let (_, engine) = story.judge(430 * SECOND);
    let open = engine.findings().find(|it| it.closed_at.is_none() && it.kind.into_str() == "phantom_sandbox");
    let Some(Kind::PhantomSandbox(it)) = open.map(|it| &it.kind) else { panic!("it is closed") };
    assert_eq!(it.left_on_record, Some(1));
}
