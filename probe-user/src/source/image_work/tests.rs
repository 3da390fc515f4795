//! A node whose runtime logged what it did, as files.

use std::{
    fs::{self, File, FileTimes},
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use super::{Asked, find};
use crate::{
    model::{
        fact::{ImageWork, PodName, Pull, Span},
        id::ContainerId,
        time::Timestamp,
    },
    source::host::HostRoot,
};

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
        images: vec![image.to_owned()],
        pod: PodName { namespace: Some("default".to_owned()), name: Some("web-0".to_owned()), uid: None },
        name: Some(name.to_owned()),
        from: at(10),
        until: at(40),
    }
}

struct Node(tempfile::TempDir);

impl Node {
    /// `lines`: the second, and what was said in it, in a log to which nothing but runtimes write.
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

    /// A file of containerd's content store, written at a second.
    fn blob(&self, digest: &str, text: &str, second: u64) {
        let hex = digest.strip_prefix("sha256:").expect("a digest");
        let path =
            self.path(&format!("var/lib/containerd/io.containerd.content.v1.content/blobs/sha256/{hex}"));
        fs::write(&path, text).expect("a file");
        let modified = UNIX_EPOCH + Duration::from_secs(BOOT + second);
        File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_times(FileTimes::new().set_modified(modified)))
            .expect("a date");
    }

    fn find(&self, asked: &[Asked]) -> Vec<ImageWork> {
        let root = HostRoot::open(self.0.path()).expect("the root");
        find(&root, asked, BOOT_NS, || vec![Path::new("/var/lib/containerd").to_owned()])
    }
}

fn digest(letter: char) -> String {
    format!("sha256:{}", letter.to_string().repeat(64))
}

const BUSYBOX: &str = "docker.io/library/busybox:1";

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
        created: Some(span(36, 38)),
        other_creates: Vec::new(),
    };
    let found = node.find(&[own, asked("c2", "quay.io/x", "main")]);
    assert_eq!(found, std::slice::from_ref(&expected));
    // A layer was thrown away after it was unpacked.
    fs::remove_file(node.path(&format!(
        "var/lib/containerd/io.containerd.content.v1.content/blobs/sha256/{}",
        "d".repeat(64)
    )))
    .expect("a file");
    let unknown = Pull { fetched: None, ..expected.pulls[0] };
    let found = node.find(&[asked("c1", BUSYBOX, "main")]);
    assert_eq!(found, [ImageWork { pulls: vec![unknown], ..expected }]);
}

#[test]
fn of_several_pulls_of_one_image_each_has_one_owner() {
    let node = Node::new(&[
        (11, "msg=\"PullImage \\\"busybox:1\\\"\""),
        (12, "msg=\"PullImage \\\"busybox:1\\\" failed\" error=\"no route\""),
        (14, "msg=\"PullImage \\\"busybox:1\\\"\""),
        (18, "msg=\"PullImage \\\"busybox:1\\\" returns image reference \\\"sha256:cd\\\"\""),
        (20, "msg=\"PullImage \\\"busybox:1\\\"\""),
        (22, "msg=\"PullImage \\\"busybox:1\\\" returns image reference \\\"sha256:cd\\\"\""),
        (30, "msg=\"PullImage \\\"quay.io/long\\\"\""),
    ]);
    let found = node.find(&[asked("c1", BUSYBOX, "main")]);
    let failed = Pull { span: span(11, 12), failed: true, fetched: None };
    let own = Pull { span: span(20, 22), failed: false, fetched: None };
    let [work] = &found[..] else { panic!("{found:?}") };
    assert_eq!(work.pulls, [failed, own]);
    assert_eq!(work.other_pulls, [span(14, 18), span(30, 40)], "one of them is under way");
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
    let found = node.find(&[asked("c1", BUSYBOX, "main"), asked("c2", "quay.io/none", "side")]);
    let [main, side] = &found[..] else { panic!("{found:?}") };
    assert_eq!(main.pulls, [Pull { span: span(11, 15), failed: false, fetched: None }]);
    assert_eq!((main.created, &main.other_pulls[..]), (Some(span(16, 17)), &[span(13, 40)][..]));
    assert_eq!((&side.refused[..], side.pulls.len()), (&[at(18)][..], 0));
}

#[test]
fn a_node_without_logs_has_no_answer() {
    let node = Node::new(&[(11, "msg=\"containerd successfully booted in 0.1s\"")]);
    assert_eq!(node.find(&[asked("c1", BUSYBOX, "main")]), []);
    assert_eq!(node.find(&[]), []);
}
