//! Tests with the files of a node whose runtime logged its work.

use std::{
    fs::{self, File, FileTimes},
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use probe_common::runtime::Kind;

use super::{Asked, Logged, MAX_STEPS, Search, find, log_line::Step, pull_history::PullHistory};
use crate::{
    model::{
        fact::{ImageWork, PodName, Pull, Span},
        id::ContainerId,
        time::Timestamp,
    },
    source::{host::HostRoot, logs::plugin_log::Place},
};

mod held;
mod journal;
mod several;
mod words;

/// The wall clock's time at boot: 2026-11-21T08:15:00Z.
const BOOT: u64 = 1_795_248_900;
const BOOT_NS: i64 = 1_795_248_900_000_000_000;

fn at(seconds: u64) -> Timestamp {
    Timestamp(seconds * 1_000_000_000)
}

fn span(began: u64, ended: u64) -> Span {
    Span { began: at(began), ended: at(ended) }
}

fn asked(container: &str, image: &str, name: &str) -> Asked {
    Asked {
        container: ContainerId::parse(container).expect("an id"),
        is_sandbox: false,
        images: vec![image.to_owned()],
        pod: PodName { namespace: Some("default".to_owned()), name: Some("web-0".to_owned()), uid: None },
        name: Some(name.to_owned()),
        from: at(10),
        until: at(40),
    }
}

struct Node(tempfile::TempDir);

impl Node {
    /// Makes a node. `lines`: the second and the message of each line, in a log to which only runtimes write.
    fn new(lines: &[(u64, &str)]) -> Self {
        let node = Self(tempfile::tempdir().expect("a directory"));
        let logged = lines.iter().map(|(second, message)| {
            format!("time=\"2026-11-21T08:15:{second:02}Z\" level=info {message}\n")
        });
        let log = node.path("var/log/containerd.log");
        fs::write(log, logged.collect::<String>()).expect("a log");
        node
    }

    fn path(&self, path: &str) -> PathBuf {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        path
    }

    /// Writes a file of containerd's content store, dated at a second.
    fn blob(&self, digest: &str, text: &str, second: u64) {
        let hex = digest.strip_prefix("sha256:").expect("a digest");
        let path =
            self.path(&format!("var/lib/containerd/io.containerd.content.v1.content/blobs/sha256/{hex}"));
        fs::write(&path, text).expect("a file");
        Self::dated(&path, second);
    }

    /// Gives a file the date of a second.
    fn dated(path: &Path, second: u64) {
        let modified = UNIX_EPOCH + Duration::from_secs(BOOT + second);
        File::options()
            .write(true)
            .open(path)
            .and_then(|file| file.set_times(FileTimes::new().set_modified(modified)))
            .expect("a date");
    }

    fn find<const N: usize>(&self, asked: [Asked; N]) -> Vec<ImageWork> {
        let root = HostRoot::open(self.0.path()).expect("the root");
        let search = Search { containers: asked.into(), ..Search::default() };
        let roots = || vec![Path::new("/var/lib/containerd").to_owned()];
        find(&root, &search, BOOT_NS, Timestamp(1), roots).images
    }
}

fn digest(letter: char) -> String {
    format!("sha256:{}", letter.to_string().repeat(64))
}

/// Returns the kubelet's message about a container that it could not start.
fn not_started(pod: &str, container: &str, error: &str) -> String {
    format!(
        "failed to \\\"StartContainer\\\" for \\\"{container}\\\" with {error}: \\\"no\\\"\" pod=\"default/{pod}\""
    )
}

const BUSYBOX: &str = "docker.io/library/busybox:1";

/// No runtime's log says for which pod it pulls. The kubelet's log says for which pod a pull failed.
#[test]
fn a_sandbox_may_wait_for_a_pull_that_is_under_way() {
    let sandbox = || Asked { is_sandbox: true, name: None, ..asked("aa", "registry.k8s.io/pause:3.9", "") };
    let pulling = (20, "msg=\"PullImage \\\"busybox:1\\\"\"");
    let found = Node::new(&[pulling]).find([sandbox()]);
    let own = |found: &[ImageWork]| found.iter().map(|it| it.other_pulls.clone()).collect::<Vec<_>>();
    assert_eq!(own(&found), [vec![span(20, 40)]]);
    assert_eq!(found[0].refused, []);
    let over = (30, "msg=\"PullImage \\\"busybox:1\\\" returns image reference \\\"sha256:cd\\\"\"");
    assert_eq!(Node::new(&[pulling, over]).find([sandbox()]), []);
    let failed = |pod: &str| {
        let said = not_started(pod, "main", "ErrImagePull");
        Node::new(&[pulling, (35, &said)]).find([sandbox()]).remove(0).refused
    };
    assert_eq!((failed("web-0"), failed("web-1")), (vec![at(35)], Vec::new()));
}

#[test]
fn a_pull_is_found_with_the_date_of_its_last_layer_and_the_pulls_before_it() {
    let pulled = format!(
        "msg=\"Pulled image \\\"busybox:1\\\" with image id \\\"sha256:cd\\\", repo tag \\\"{BUSYBOX}\\\", repo digest \
         \\\"docker.io/library/busybox@{}\\\", size \\\"2\\\" in 9s\"",
        digest('a')
    );
    let node = Node::new(&[
        (5, "msg=\"PullImage \\\"quay.io/a/b:1\\\"\""),
        (20, "msg=\"PullImage \\\"quay.io/a/b:1\\\" returns image reference \\\"sha256:ef\\\"\""),
        (20, "msg=\"PullImage \\\"busybox:1\\\"\""),
        (35, &pulled),
        (35, "msg=\"PullImage \\\"busybox:1\\\" returns image reference \\\"sha256:cd\\\"\""),
        (
            36,
            "msg=\"CreateContainer within sandbox \\\"aa\\\" for container &ContainerMetadata{Name:main,Attempt:0,}\"",
        ),
        (
            38,
            "msg=\"CreateContainer within sandbox \\\"aa\\\" for &ContainerMetadata{Name:main,Attempt:0,} returns container \
              id \\\"c1\\\"\"",
        ),
    ]);
    let index =
        format!("{{\"manifests\":[{{\"digest\":\"{}\"}},{{\"digest\":\"{}\"}}]}}", digest('b'), digest('f'));
    let manifest =
        format!("{{\"layers\":[{{\"digest\":\"{}\"}},{{\"digest\":\"{}\"}}]}}", digest('c'), digest('d'));
    node.blob(&digest('a'), &index, 21);
    node.blob(&digest('b'), &manifest, 21);
    node.blob(&digest('c'), "", 1);
    node.blob(&digest('d'), "", 30);
    let own = asked("c1", BUSYBOX, "main");
    let expected = ImageWork {
        container: own.container.clone(),
        pulls: vec![Pull { span: span(20, 35), failed: false, fetched: Some(at(30)) }],
        other_pulls: vec![span(5, 20)],
        refused: Vec::new(),
        services_unread: Vec::new(),
        created: Some(span(36, 38)),
        other_creates: Vec::new(),
    };
    let found = node.find([own, asked("c2", "quay.io/x", "main")]);
    assert_eq!(found, std::slice::from_ref(&expected));
    // A layer was deleted after it was unpacked.
    fs::remove_file(node.path(&format!(
        "var/lib/containerd/io.containerd.content.v1.content/blobs/sha256/{}",
        "d".repeat(64)
    )))
    .expect("a file");
    let unknown = Pull { fetched: None, ..expected.pulls[0] };
    let found = node.find([asked("c1", BUSYBOX, "main")]);
    assert_eq!(found, [ImageWork { pulls: vec![unknown], ..expected }]);
}

#[test]
fn a_container_may_wait_for_the_services() {
    let said = |words: &str| {
        let line =
            not_started("web-0", "main", "CreateContainerConfigError").replace("\"no", &format!("\"{words}"));
        Node::new(&[(12, &line)]).find([asked("c1", BUSYBOX, "main")])
    };
    let found = said("services have not yet been read at least once, cannot construct envvars");
    assert_eq!(found.iter().map(|it| it.services_unread.clone()).collect::<Vec<_>>(), [vec![at(12)]]);
    assert_eq!(said("secret db not found"), []);
}

#[test]
fn of_several_pulls_of_one_image_each_has_one_owner() {
    let node = Node::new(&[
        (11, "msg=\"PullImage \\\"busybox:1\\\"\""),
        (12, "msg=\"PullImage \\\"busybox:1\\\" failed\" error=\"no route\""),
        (12, &not_started("web-0", "main", "ErrImagePull")),
        // Another pod's try fails too.
        (13, "msg=\"PullImage \\\"busybox:1\\\"\""),
        (14, "msg=\"PullImage \\\"busybox:1\\\" failed\" error=\"no route\""),
        (14, &not_started("web-1", "main", "ErrImagePull")),
        (14, &not_started("web-0", "side", "ErrImagePull")),
        (15, "msg=\"PullImage \\\"busybox:1\\\"\""),
        (18, "msg=\"PullImage \\\"busybox:1\\\" returns image reference \\\"sha256:cd\\\"\""),
        (20, "msg=\"PullImage \\\"busybox:1\\\"\""),
        (22, "msg=\"PullImage \\\"busybox:1\\\" returns image reference \\\"sha256:cd\\\"\""),
        (30, "msg=\"PullImage \\\"quay.io/long\\\"\""),
    ]);
    let found = node.find([asked("c1", BUSYBOX, "main")]);
    let failed = Pull { span: span(11, 12), failed: true, fetched: None };
    let own = Pull { span: span(20, 22), failed: false, fetched: None };
    let [work] = &found[..] else { panic!("{found:?}") };
    assert_eq!(work.pulls, [failed, own]);
    assert_eq!(work.other_pulls, [span(13, 14), span(15, 18), span(30, 40)], "one of them is under way");
}

#[test]
fn cri_o_and_the_kubelet_are_read_too() {
    let node = Node::new(&[
        (11, "msg=\"Pulling image: busybox:1\" id=r1 name=/runtime.v1.ImageService/PullImage"),
        (13, "msg=\"Pulling image: quay.io/a\" id=r2 name=/runtime.v1.ImageService/PullImage"),
        (
            15,
            "msg=\"Pulled image: docker.io/library/busybox@sha256:ab\" id=r1 name=/runtime.v1.ImageService/PullImage",
        ),
        (
            16,
            "msg=\"Creating container: default/web-0/main\" id=r3 name=/runtime.v1.RuntimeService/CreateContainer",
        ),
        (
            17,
            "msg=\"Created container c1: default/web-0/main\" id=r3 name=/runtime.v1.RuntimeService/CreateContainer",
        ),
        (
            18,
            "msg=\"failed to \\\"StartContainer\\\" for \\\"side\\\" with ErrImagePull: \\\"pull QPS exceeded\\\"\" \
              pod=\"default/web-0\"",
        ),
    ]);
    let found = node.find([asked("c1", BUSYBOX, "main"), asked("c2", "quay.io/none", "side")]);
    let [main, side] = &found[..] else { panic!("{found:?}") };
    assert_eq!(main.pulls, [Pull { span: span(11, 15), failed: false, fetched: None }]);
    assert_eq!((main.created, &main.other_pulls[..]), (Some(span(16, 17)), &[span(13, 40)][..]));
    assert_eq!((&side.refused[..], side.pulls.len()), (&[at(18)][..], 0));
}

#[test]
fn a_node_without_logs_has_no_answer() {
    let node = Node::new(&[(11, "msg=\"containerd successfully booted in 0.1s\"")]);
    assert_eq!(node.find([asked("c1", BUSYBOX, "main")]), []);
    assert_eq!(node.find([]), []);
}

const ID: &str = "name=/runtime.v1.ImageService/PullImage";

#[test]
fn what_failed_with_cri_o_ends_when_the_kubelet_says_so() {
    let node = Node::new(&[
        (11, &format!("msg=\"Pulling image: quay.io/bad\" id=r1 {ID}")),
        (12, &format!("msg=\"Pulling image: busybox:1\" id=r2 {ID}")),
        (13, "\"PullImage from image service failed\" err=\"rpc error\" image=\"docker.io/busybox:1\""),
        (14, &not_started("web-0", "main", "ErrImagePull")),
        (15, "\"PullImage from image service failed\" err=\"rpc error\" image=\"quay.io/bad:latest\""),
        (15, "\"PullImage from image service failed\" err=\"rpc error\" image=\"quay.io/none\""),
        (20, &format!("msg=\"Pulling image: busybox:1\" id=r3 {ID}")),
        (22, &format!("msg=\"Pulled image: docker.io/library/busybox@sha256:ab\" id=r3 {ID}")),
        (23, "msg=\"Creating container: default/web-1/main\" id=r4 name=/x"),
        (24, &not_started("web-1", "main", "CreateContainerError")),
        (25, "msg=\"Creating container: default/web-0/main\" id=r5 name=/x"),
        (26, "msg=\"Created container c1: default/web-0/main\" id=r5 name=/x"),
    ]);
    let found = node.find([asked("c1", BUSYBOX, "main")]);
    let [work] = &found[..] else { panic!("{found:?}") };
    let failed = Pull { span: span(12, 13), failed: true, fetched: None };
    assert_eq!(work.pulls, [failed, Pull { span: span(20, 22), failed: false, fetched: None }]);
    assert_eq!(work.other_pulls, [span(11, 15)]);
    assert_eq!((work.created, &work.other_creates[..]), (Some(span(25, 26)), &[span(23, 24)][..]));
}

#[test]
fn the_kubelet_ends_no_pull_of_containerd() {
    let node = Node::new(&[
        (11, "msg=\"PullImage \\\"busybox:1\\\"\""),
        (12, "\"PullImage from image service failed\" err=\"rpc error\" image=\"busybox:1\""),
        (18, "msg=\"PullImage \\\"busybox:1\\\" returns image reference \\\"sha256:cd\\\"\""),
    ]);
    let found = node.find([asked("c1", BUSYBOX, "main")]);
    assert_eq!(found[0].pulls, [Pull { span: span(11, 18), failed: false, fetched: None }]);
}

#[test]
fn what_may_have_failed_unheard_holds_nobody_up() {
    let node = Node::new(&[
        (11, &format!("msg=\"Pulling image: quay.io/bad\" id=r1 {ID}")),
        (12, &format!("msg=\"Pulling image: quay.io/a\" id=r2 {ID}")),
        (14, &format!("msg=\"Pulled image: quay.io/a@sha256:cd\" id=r2 {ID}")),
        (14, "msg=\"Creating container: default/web-1/main\" id=r3 name=/x"),
        (15, &format!("msg=\"Pulling image: busybox:1\" id=r4 {ID}")),
        (18, &format!("msg=\"Pulled image: docker.io/library/busybox@sha256:ab\" id=r4 {ID}")),
        (19, "msg=\"Creating container: default/web-0/main\" id=r5 name=/x"),
        (20, "msg=\"Created container c1: default/web-0/main\" id=r5 name=/x"),
    ]);
    let found = node.find([asked("c1", BUSYBOX, "main")]);
    let [work] = &found[..] else { panic!("{found:?}") };
    assert_eq!((work.pulls.len(), work.created), (1, Some(span(19, 20))));
    assert_eq!((&work.other_pulls[..], &work.other_creates[..]), (&[][..], &[][..]));
}

#[test]
fn nothing_goes_on_when_a_runtime_begins() {
    let begun = "msg=\"PullImage \\\"busybox:1\\\"\"";
    let create = "msg=\"CreateContainer within sandbox \\\"aa\\\" for container &ContainerMetadata{Name:x,Attempt:0,}\"";
    let again = [
        (11, begun),
        (12, create),
        (14, begun),
        (18, "msg=\"PullImage \\\"busybox:1\\\" returns image reference \\\"sha256:cd\\\"\""),
    ];
    let own = [Pull { span: span(14, 18), failed: false, fetched: None }];
    let work = |lines: &[(u64, &str)]| {
        let found = Node::new(lines).find([asked("c1", BUSYBOX, "main")]);
        assert_eq!(found[0].pulls, own);
        (found[0].other_pulls.clone(), found[0].other_creates.clone())
    };
    // Even if the start of the runtime was not logged, the end belongs to the last pull.
    assert_eq!(work(&again), (vec![span(11, 40)], vec![span(12, 40)]));
    let restarted = |line| [&again[..], &[(13, line)]].concat();
    let containerd = restarted("msg=\"starting containerd\" revision=ab version=2.1.4");
    assert_eq!(work(&containerd), (vec![span(11, 13)], vec![span(12, 13)]));
    let other = restarted("msg=\"Starting CRI-O, version: 1.33.2, git: ab(clean)\"");
    assert_eq!(work(&other), (vec![span(11, 40)], vec![span(12, 40)]));
}

#[test]
fn what_began_before_the_logs_do_began_when_they_do() {
    let node = Node::new(&[
        (12, "msg=\"RemoveContainer for \\\"c0\\\"\""),
        (15, "msg=\"PullImage \\\"quay.io/bad\\\" failed\" error=\"no route\""),
        (18, "msg=\"PullImage \\\"busybox:1\\\" returns image reference \\\"sha256:cd\\\"\""),
    ]);
    let found = node.find([asked("c1", BUSYBOX, "main")]);
    let own = Pull { span: span(12, 18), failed: false, fetched: None };
    assert_eq!((&found[0].pulls[..], &found[0].other_pulls[..]), (&[own][..], &[][..]));
}

#[test]
fn of_too_much_the_newest_is_kept() {
    let mut heard = Logged::default();
    for at in (0..=MAX_STEPS as u64).rev() {
        heard.add(5 + at, Step::RuntimeBegan { by: Kind::Crio }, Place::File);
    }
    assert_eq!((heard.steps.len(), heard.cut), (MAX_STEPS, 5));
    assert_eq!(heard.steps.first().map(|(at, ..)| *at), Some(6));
    let mut told = PullHistory::default();
    let by = Kind::Crio;
    let time = |step: u64| Timestamp(at(11).0 + step * 1000);
    let began =
        |step: u64, image: &str| Step::PullBegan { by, key: step.to_string(), image: image.to_owned() };
    let ended =
        |step: u64| Step::PullEnded { by, key: step.to_string(), image: String::new(), failed: false };
    told.add(time(0), began(0, BUSYBOX), Place::File);
    for step in 1..=3000 {
        told.add(time(step), began(step, "quay.io/a"), Place::File);
        told.add(time(step), ended(step), Place::File);
    }
    told.add(at(30), ended(0), Place::File);
    let work = told.of(&asked("c1", BUSYBOX, "main"), &|_| None).expect("the newest");
    assert_eq!(work.pulls[0].span, span(11, 30), "what was under way is kept");
    assert_eq!(work.other_pulls.last(), Some(&Span { began: time(3000), ended: time(3000) }));
}
