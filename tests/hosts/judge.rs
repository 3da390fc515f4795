//! What the engine makes of a frozen node that it is shown for a while, by the real clock's steps and the agent's own
//! readings.

use std::{cell::Cell, fs, os::unix::fs::symlink, path::Path, process::Command, time::Duration};

use probe_user::{
    engine::{Engine, Settings},
    model::{
        change::{Finding, Output, Question},
        fact::{Observation, Origin},
        finding::Stage,
        time::Timestamp,
    },
    source::{
        answer::Answerer,
        backfill::{self, Closed, Node},
        cgroup::Layout,
        host::HostRoot,
    },
};
use tempfile::TempDir;

/// By then every frozen node's daemons have been up for longer than they have to clean up.
const START: Timestamp = Timestamp(2 * 60 * 60 * 1_000_000_000);
const WATCHED: Duration = Duration::from_secs(20 * 60);
const STEP: Duration = Duration::from_secs(5);

/// The findings on a node that has stayed as it is for a while.
fn judge(root: &HostRoot) -> Vec<Finding> {
    let layout = Layout::read(root).expect("cgroups");
    let hierarchy =
        layout.choose(|hierarchy| backfill::has_container(root, hierarchy)).expect("one is mounted");
    let now = Cell::new(START);
    let clock = || now.get();
    let node = Node { root, hierarchy, clock: &clock, boot_wall_ns: 0, stores: &[] };
    let mut engine = Engine::new(Settings::default());
    let mut answerer = Answerer::new(root);
    tell(&mut engine, |told| backfill::read(node, told).map(|_skipped| ()));
    while now.get() < START + WATCHED {
        now.set(now.get() + STEP);
        engine.advance(now.get());
        let mut questions = Vec::new();
        while let Some(output) = engine.poll() {
            if let Output::Question(question) = output {
                questions.push(question);
            }
        }
        for question in questions {
            let fact = match question {
                Question::Relist => {
                    tell(&mut engine, |told| backfill::present(node, told).map(|_skipped| ()));
                    None
                }
                Question::Records => {
                    tell(&mut engine, |told| backfill::records(node, told).map(|_skipped| ()));
                    None
                }
                Question::Container { id } => Some(answerer.container(&id)),
                Question::Pod { uid } => answerer.pod(&uid),
                Question::Expected { uid } => answerer.expected(&uid, now.get()),
                Question::Watch { .. }
                | Question::Program { .. }
                | Question::Message { .. }
                | Question::Pressure { .. } => None,
            };
            if let Some(fact) = fact {
                engine.observe(Observation { at: now.get(), origin: Origin::Listed, fact });
            }
        }
    }
    engine.findings().cloned().collect()
}

type Told<'a> = &'a mut dyn FnMut(Vec<Observation>) -> Result<(), Closed>;

fn tell(engine: &mut Engine, pass: impl FnOnce(Told<'_>) -> Result<(), Closed>) {
    let all = pass(&mut |batch| {
        batch.into_iter().for_each(|seen| engine.observe(seen));
        Ok(())
    });
    assert_eq!(all, Ok(()), "nobody stops it");
}

/// The open findings, each with its stage.
fn told(findings: &[Finding]) -> Vec<(String, Stage)> {
    let open = findings.iter().filter(|it| it.stage != Stage::Closed);
    open.map(|it| (it.key.to_string(), it.stage)).collect()
}

/// A copy of a frozen node, to be changed.
fn copy(case: &str) -> TempDir {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/hosts").join(case);
    let to = tempfile::tempdir().expect("a directory");
    let copied = Command::new("cp").arg("-a").arg(from.join(".")).arg(to.path()).status();
    assert!(copied.is_ok_and(|status| status.success()), "{case} is copied");
    to
}

/// A sandbox of an earlier boot: nothing but an IPAM store knows of it.
const LOST: &str = "deadbeefdeadbeefdeadbeefdeadbeefdeadbeefdeadbeefdeadbeefdeadbeef";
const LEAK: &str =
    "leaked_address/crionet/10.79.0.99/deadbeefdeadbeefdeadbeefdeadbeefdeadbeefdeadbeefdeadbeefdeadbeef";
const STORAGE: &str = "var/lib/containers/storage";

fn crio() -> TempDir {
    let root = copy("crio-volatile");
    fs::write(root.path().join("var/lib/cni/networks/crionet/10.79.0.99"), format!("{LOST}\r\neth0"))
        .expect("a reservation");
    root
}

fn judged(root: &TempDir) -> Vec<(String, Stage)> {
    told(&judge(&HostRoot::open(root.path()).expect("the root")))
}

fn confirmed(key: &str) -> (String, Stage) {
    (key.to_owned(), Stage::Confirmed)
}

#[test]
fn a_leak_on_a_node_of_cri_o_is_confirmed() {
    assert_eq!(judged(&copy("crio-volatile")), []);
    assert_eq!(judged(&crio()), [confirmed(LEAK)]);
}

#[test]
fn a_transient_storage_of_cri_o_is_read_where_it_is() {
    let root = crio();
    let at = |path: &str| root.path().join(path);
    // The sandbox that lives stands in the file below the run root, and in no other.
    let below = "overlay-containers/volatile-containers.json";
    fs::rename(at(STORAGE).join(below), at("run/containers/storage").join(below)).expect("moved");
    assert_eq!(judged(&root), [confirmed(LEAK)]);
}

#[test]
fn a_storage_of_another_driver_elsewhere_is_found_by_its_configuration() {
    let root = crio();
    let at = |path: &str| root.path().join(path);
    fs::create_dir_all(at("etc/containers")).expect("a directory");
    fs::create_dir_all(at("etc/crio/crio.conf.d")).expect("a directory");
    fs::create_dir_all(at("data")).expect("a directory");
    fs::rename(at(STORAGE), at("data/crio")).expect("moved");
    fs::rename(at("data/crio/overlay-containers"), at("data/crio/vfs-containers")).expect("renamed");
    fs::write(at("etc/crio/crio.conf"), "[crio]\nroot = '/wrong'\n").expect("a file");
    fs::write(at("etc/crio/crio.conf.d/10-a.conf"), "[crio]\nroot = '/data/crio'\n").expect("a file");
    fs::write(at("etc/crio/crio.conf.d/20-b.conf"), "[crio]\nroot = ''\n").expect("a file");
    fs::write(at("etc/containers/storage.conf"), "[storage]\ngraphroot = '/other'\n").expect("a file");
    assert_eq!(judged(&root), [confirmed(LEAK)]);
    // Without CRI-O's own word the storage's counts.
    fs::remove_dir_all(at("etc/crio")).expect("removed");
    fs::write(at("etc/containers/storage.conf"), "[storage]\ngraphroot = '/data/crio'\n").expect("a file");
    assert_eq!(judged(&root), [confirmed(LEAK)]);
}

#[test]
fn what_cri_o_s_files_hide_is_named_and_nothing_is_confirmed() {
    let root = crio();
    let at = |path: &str| root.path().join(path);
    let volatile = at(STORAGE).join("overlay-containers/volatile-containers.json");
    let whole = fs::read(&volatile).expect("the file");
    fs::write(&volatile, &whole[..whole.len() / 2]).expect("torn");
    let spot = "blind_spot/runtime/:var:lib:containers:storage:overlay-containers:volatile-containers.json";
    assert!(judged(&root).contains(&confirmed(spot)), "{:?}", judged(&root));
    assert!(!judged(&root).contains(&confirmed(LEAK)));
    // A configuration that cannot be read is named itself; a folder that nobody spoke of is not.
    fs::remove_dir_all(at(STORAGE)).expect("removed");
    fs::create_dir_all(at("etc/crio")).expect("a directory");
    fs::write(at("etc/crio/crio.conf"), "[crio\n").expect("a file");
    let spots: Vec<_> = judged(&root).into_iter().filter(|(key, _)| key.starts_with("blind_spot")).collect();
    assert_eq!(spots, [confirmed("blind_spot/runtime/:etc:crio:crio.conf")]);
}

#[test]
fn a_cri_o_that_never_had_a_container_has_none() {
    let root = crio();
    let at = |path: &str| root.path().join(path);
    fs::remove_file(at(STORAGE).join("overlay-containers/volatile-containers.json")).expect("removed");
    fs::write(at(STORAGE).join("overlay-containers/containers.lock"), "").expect("a file");
    let told = judged(&root);
    assert!(told.iter().all(|(key, _)| !key.starts_with("blind_spot")), "{told:?}");
    assert!(told.contains(&confirmed(LEAK)), "{told:?}");
}

/// A containerd with a configuration that is nowhere usual, and a sandbox in its records.
fn containerd(cmdline: &str) -> TempDir {
    let root = copy("containerd-systemd");
    let at = |path: &str| root.path().join(path);
    let pid = pid_of(root.path(), "containerd");
    fs::write(at(&format!("proc/{pid}/cmdline")), cmdline.replace(' ', "\0") + "\0").expect("a file");
    fs::create_dir_all(at("srv")).expect("a directory");
    fs::rename(at("var/lib/containerd"), at("srv/containerd")).expect("moved");
    fs::create_dir_all(at("srv/containerd/io.containerd.metadata.v1.bolt")).expect("a directory");
    root
}

fn pid_of(root: &Path, comm: &str) -> String {
    let found = fs::read_dir(root.join("proc")).expect("processes").find_map(|entry| {
        let entry = entry.expect("an entry");
        let own = fs::read_to_string(entry.path().join("comm")).ok()?;
        (own.trim_end() == comm).then(|| entry.file_name().into_string().expect("a name"))
    });
    found.expect("the process")
}

fn spots(root: &TempDir) -> Vec<String> {
    let told = judged(root).into_iter().map(|(key, _)| key);
    told.filter(|key| key.starts_with("blind_spot")).collect()
}

#[test]
fn containerd_s_records_are_found_by_a_relative_path_or_what_it_has_open() {
    // By its configuration, which is told from where it stands.
    let root = containerd("/usr/bin/containerd -c conf/own.toml");
    let at = |path: &str| root.path().join(path);
    let process = format!("proc/{}", pid_of(root.path(), "containerd"));
    assert_eq!(spots(&root), ["blind_spot/runtime/conf:own.toml"]);
    symlink("/opt/own", at(&process).join("cwd")).expect("a link");
    assert_eq!(spots(&root), ["blind_spot/runtime/:opt:own:conf:own.toml"]);
    fs::create_dir_all(at("opt/own/conf")).expect("a directory");
    fs::write(at("opt/own/conf/own.toml"), "root = '/srv/containerd'\n").expect("a file");
    assert_eq!(spots(&root), [""; 0]);
    // By the database that it has open, whatever became of the file.
    fs::remove_dir_all(at("opt/own")).expect("removed");
    fs::create_dir(at(&process).join("fd")).expect("a directory");
    symlink("/srv/containerd/io.containerd.metadata.v1.bolt/meta.db", at(&process).join("fd/9"))
        .expect("a link");
    assert_eq!(spots(&root), [""; 0]);
}

#[test]
fn containerd_s_files_are_read_as_it_sees_them_itself() {
    let root = containerd("/usr/bin/containerd -c /srv/own.toml");
    let at = |path: &str| root.path().join(path);
    assert_eq!(spots(&root), ["blind_spot/runtime/:srv:own.toml"]);
    // In a mount namespace of its own, where another program sees nothing.
    let own = at(&format!("proc/{}/root", pid_of(root.path(), "containerd")));
    fs::create_dir_all(own.join("srv")).expect("a directory");
    fs::rename(at("srv/containerd"), own.join("srv/containerd")).expect("moved");
    fs::write(own.join("srv/own.toml"), "root = '/srv/containerd'\n").expect("a file");
    assert_eq!(spots(&root), [""; 0]);
}
