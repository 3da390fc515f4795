//! The findings of the engine on a frozen node. The test advances a clock in the steps of the real one, and
//! answers the engine's questions with the agent's own readers.

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
        backfill::{self, Closed, Node},
        files::answer::Answerer,
        host::HostRoot,
        node::cgroup::Layout,
    },
};
use tempfile::TempDir;

/// A time by which every frozen node's daemons could have cleaned up.
const START: Timestamp = Timestamp(2 * 60 * 60 * 1_000_000_000);
const WATCHED: Duration = Duration::from_secs(20 * 60);
const STEP: Duration = Duration::from_secs(5);

/// Returns the findings on a node that does not change for a while.
fn judge(root: &HostRoot) -> Vec<Finding> {
    let layout = Layout::read(root).expect("cgroups");
    let hierarchy =
        layout.choose(|hierarchy| backfill::has_container(root, hierarchy), || ()).expect("one is mounted");
    let now = Cell::new(START);
    let clock = || now.get();
    let node = Node { root, hierarchy, clock: &clock, boot_wall_ns: 0, stores: &[] };
    let mut engine = Engine::new(Settings::default());
    let mut answerer = Answerer::new(root);
    pass_on(&mut engine, |open_findings| backfill::read(node, open_findings).map(|_skipped| ()));
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
                    pass_on(&mut engine, |open_findings| {
                        backfill::present(node, open_findings).map(|_skipped| ())
                    });
                    None
                }
                Question::Records => {
                    pass_on(&mut engine, |open_findings| {
                        backfill::records(node, open_findings).map(|_skipped| ())
                    });
                    None
                }
                Question::Container { id } => Some(answerer.container(&id)),
                Question::Pod { uid } => answerer.pod(&uid),
                Question::Expected { uid } => answerer.expected(&uid, now.get()),
                Question::Netns { path } => answerer.netns(&path),
                Question::ProcessNetns { pid } => answerer.process_netns(pid),
                Question::Watch { .. }
                | Question::Held { .. }
                | Question::Statuses
                | Question::Process { .. }
                | Question::Program { .. }
                | Question::Message { .. }
                | Question::Pressure { .. }
                | Question::ImageWork { .. }
                | Question::HeldRequests { .. }
                | Question::Words { .. }
                | Question::DaemonWords { .. } => None,
            };
            if let Some(fact) = fact {
                engine.observe(Observation { at: now.get(), origin: Origin::Listed, fact });
            }
        }
    }
    engine.findings().cloned().collect()
}

type Receiver<'a> = &'a mut dyn FnMut(Vec<Observation>) -> Result<(), Closed>;

fn pass_on(engine: &mut Engine, pass: impl FnOnce(Receiver<'_>) -> Result<(), Closed>) {
    let all = pass(&mut |batch| {
        batch.into_iter().for_each(|seen| engine.observe(seen));
        Ok(())
    });
    assert_eq!(all, Ok(()), "nothing stops the reading");
}

/// Returns the open findings, each with its stage.
fn open_findings(findings: &[Finding]) -> Vec<(String, Stage)> {
    let open = findings.iter().filter(|it| it.stage != Stage::Closed);
    open.map(|it| (it.key.to_string(), it.stage)).collect()
}

/// Returns a copy of a frozen node that the test can change.
fn copy(case: &str) -> TempDir {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/hosts").join(case);
    let to = tempfile::tempdir().expect("a directory");
    let copied = Command::new("cp").arg("-a").arg(from.join(".")).arg(to.path()).status();
    assert!(copied.is_ok_and(|status| status.success()), "{case} is copied");
    to
}

/// A sandbox of an earlier boot. Only an IPAM store names it.
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
    open_findings(&judge(&HostRoot::open(root.path()).expect("the root")))
}

fn confirmed(key: &str) -> (String, Stage) {
    (key.to_owned(), Stage::Confirmed)
}

#[test]
fn a_leak_on_a_cri_o_node_is_confirmed() {
    assert_eq!(judged(&copy("crio-volatile")), []);
    assert_eq!(judged(&crio()), [confirmed(LEAK)]);
}

#[test]
fn the_transient_storage_of_cri_o_is_read_below_the_run_root() {
    let root = crio();
    let at = |path: &str| root.path().join(path);
    // The live sandbox is only in the file below the run root.
    let below = "overlay-containers/volatile-containers.json";
    fs::rename(at(STORAGE).join(below), at("run/containers/storage").join(below)).expect("moved");
    assert_eq!(judged(&root), [confirmed(LEAK)]);
}

#[test]
fn a_storage_with_another_driver_and_root_is_found_by_its_configuration() {
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
    // Without CRI-O's own configuration the storage's configuration counts.
    fs::remove_dir_all(at("etc/crio")).expect("removed");
    fs::write(at("etc/containers/storage.conf"), "[storage]\ngraphroot = '/data/crio'\n").expect("a file");
    assert_eq!(judged(&root), [confirmed(LEAK)]);
}

#[test]
fn an_unreadable_cri_o_file_is_a_blind_spot_and_confirms_no_leak() {
    let root = crio();
    let at = |path: &str| root.path().join(path);
    let volatile = at(STORAGE).join("overlay-containers/volatile-containers.json");
    let whole = fs::read(&volatile).expect("the file");
    fs::write(&volatile, &whole[..whole.len() / 2]).expect("torn");
    let spot = "blind_spot/runtime/:var:lib:containers:storage:overlay-containers:volatile-containers.json";
    assert!(judged(&root).contains(&confirmed(spot)), "{:?}", judged(&root));
    assert!(!judged(&root).contains(&confirmed(LEAK)));
    // An unreadable configuration is named itself. A directory that no configuration names is not.
    fs::remove_dir_all(at(STORAGE)).expect("removed");
    fs::create_dir_all(at("etc/crio")).expect("a directory");
    fs::write(at("etc/crio/crio.conf"), "[crio\n").expect("a file");
    let spots: Vec<_> = judged(&root).into_iter().filter(|(key, _)| key.starts_with("blind_spot")).collect();
    assert_eq!(spots, [confirmed("blind_spot/runtime/:etc:crio:crio.conf")]);
}

#[test]
fn a_cri_o_without_containers_is_no_blind_spot() {
    let root = crio();
    let at = |path: &str| root.path().join(path);
    fs::remove_file(at(STORAGE).join("overlay-containers/volatile-containers.json")).expect("removed");
    fs::write(at(STORAGE).join("overlay-containers/containers.lock"), "").expect("a file");
    let open_findings = judged(&root);
    assert!(open_findings.iter().all(|(key, _)| !key.starts_with("blind_spot")), "{open_findings:?}");
    assert!(open_findings.contains(&confirmed(LEAK)), "{open_findings:?}");
}

/// Returns a containerd with its configuration in an unusual place, and a sandbox in its records.
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
    let open_findings = judged(root).into_iter().map(|(key, _)| key);
    open_findings.filter(|key| key.starts_with("blind_spot")).collect()
}

#[test]
fn containerd_s_records_are_found_by_a_relative_path_or_an_open_file() {
    // Found by its configuration, whose path is relative to containerd's working directory.
    let root = containerd("/usr/bin/containerd -c conf/own.toml");
    let at = |path: &str| root.path().join(path);
    let process = format!("proc/{}", pid_of(root.path(), "containerd"));
    assert_eq!(spots(&root), ["blind_spot/runtime/conf:own.toml"]);
    symlink("/opt/own", at(&process).join("cwd")).expect("a link");
    assert_eq!(spots(&root), ["blind_spot/runtime/:opt:own:conf:own.toml"]);
    fs::create_dir_all(at("opt/own/conf")).expect("a directory");
    fs::write(at("opt/own/conf/own.toml"), "root = '/srv/containerd'\n").expect("a file");
    assert_eq!(spots(&root), [""; 0]);
    // Found by its open database, without the configuration file.
    fs::remove_dir_all(at("opt/own")).expect("removed");
    fs::create_dir(at(&process).join("fd")).expect("a directory");
    symlink("/srv/containerd/io.containerd.metadata.v1.bolt/meta.db", at(&process).join("fd/9"))
        .expect("a link");
    assert_eq!(spots(&root), [""; 0]);
}

#[test]
fn containerd_s_files_are_read_in_its_mount_namespace() {
    let root = containerd("/usr/bin/containerd -c /srv/own.toml");
    let at = |path: &str| root.path().join(path);
    assert_eq!(spots(&root), ["blind_spot/runtime/:srv:own.toml"]);
    // The files are in containerd's own mount namespace, where other programs do not see them.
    let own = at(&format!("proc/{}/root", pid_of(root.path(), "containerd")));
    fs::create_dir_all(own.join("srv")).expect("a directory");
    fs::rename(at("srv/containerd"), own.join("srv/containerd")).expect("moved");
    fs::write(own.join("srv/own.toml"), "root = '/srv/containerd'\n").expect("a file");
    assert_eq!(spots(&root), [""; 0]);
}
