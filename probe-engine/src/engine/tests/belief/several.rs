//! Two runtimes on one node: reports of one runtime say nothing about the containers of the other.

use super::{BOTH, POD_NETNS, SECOND, SHIM, SOCKET, TOP, Who, dies, id, leaf, running, told};
use crate::{
    engine::tests::story::{Story, pod_name},
    model::fact::{
        Answer, Believed, EventStream, Fact, Origin, Role, RuntimeKind, RuntimeLink, RuntimeRead,
        RuntimeSandbox, RuntimeStatus,
    },
};

const OTHER: &str = "/run/crio/crio.sock";

impl Story {
    /// A runtime has these sandboxes on record.
    fn has_on_record(&mut self, socket: &str, kind: RuntimeKind, sandboxes: &[char]) -> &mut Self {
        let sandbox = |digit: &char| RuntimeSandbox { id: id(*digit), pod: Some(pod_name()) };
        self.listed(Fact::RuntimeRead(RuntimeRead {
            place: socket.to_owned(),
            kind: Some(kind),
            sandboxes: sandboxes.iter().map(sandbox).collect(),
            complete: true,
            unread: 0,
        }))
    }

    /// CRI-O answers too, and its list is empty.
    fn crio(&mut self) -> &mut Self {
        let (answer, events) = (Answer::Answers, EventStream::None);
        self.say(
            Origin::Cri,
            Fact::RuntimeLink(RuntimeLink { socket: OTHER.to_owned(), answer, events, since: None }),
        );
        let (whole, came, gone) = (true, Vec::new(), Vec::new());
        let it = RuntimeStatus { socket: OTHER.to_owned(), whole, came, gone };
        self.say(Origin::Cri, Fact::RuntimeStatus(it))
    }
}

/// A pod of containerd on a node that also runs CRI-O.
fn beside_crio(of_containerd: &[char]) -> Story {
    let mut story = running(EventStream::None);
    story.crio().has_on_record(OTHER, RuntimeKind::Crio, &[]);
    story.has_on_record(SOCKET, RuntimeKind::Containerd, of_containerd);
    story
}

/// A container ends before any list has named it: its sandbox shows which runtime must know.
#[test]
fn a_container_is_of_the_runtime_that_has_its_sandbox_on_record() {
    let second = Who::new(900, SHIM, "server").within(41, POD_NETNS);
    let asked = |of_containerd: &[char]| {
        let mut story = beside_crio(of_containerd);
        story.at(6 * SECOND).container('d', Role::Container, 'a', "second").mkdir(41, &leaf('d'));
        story.exec(second, TOP, "/bin/server");
        story.until(8 * SECOND).exit(second, TOP, 9).emptied(41, &leaf('d')).until(10 * SECOND).moment();
        told(&story)
    };
    assert_eq!(asked(&['a']), ["? statuses"]);
    assert_eq!(asked(&[]), [""; 0], "nothing tells whose it is");
}

#[test]
fn a_repair_asks_the_runtime_that_has_the_sandbox() {
    let sockets = |of_containerd: &[char]| {
        let mut story = beside_crio(of_containerd);
        dies(&mut story, 9);
        story.until(6_500).states(&BOTH).until(15_500).states(&BOTH).moment();
        let (_, engine) = story.judge(20 * SECOND);
        let stale = engine.findings().find(|it| it.key.as_str().starts_with("stale_runtime_status/"));
        stale.expect("the runtime says that it runs").runtimes.clone()
    };
    assert_eq!(sockets(&['a']), [SOCKET]);
    assert_eq!(sockets(&[]), [SOCKET, OTHER], "it is on no record");
}

/// A sandbox that is not on CRI-O's list is not gone from containerd's list.
#[test]
fn the_list_of_another_runtime_ends_nothing() {
    let mut story = beside_crio(&['a']);
    dies(&mut story, 9);
    story.until(6_500).crio().until(15_500).states(&[('a', Believed::Running), ('c', Believed::Running)]);
    story.until(20 * SECOND).crio().moment();
    let told = told(&story);
    let of_c = |line: &&String| line.contains("stale_runtime_status/c");
    assert_eq!(told.iter().filter(of_c).count(), 2, "opened and confirmed: {told:#?}");
}
