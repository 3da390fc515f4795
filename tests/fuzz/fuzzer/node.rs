//! Files of a node with any content. The readers get a folder with only these files as the root of a node.
//! An input has the files one after the other: a line `== PATH` or `== PATH -> TARGET`, for a link, and then
//! the content.

pub mod bundle;
pub mod cni;
mod frozen;
pub mod ipam;
pub mod journal;
pub mod log;
pub mod proc;

use std::{
    fs,
    os::unix::{ffi::OsStrExt as _, fs::symlink},
    path::{Component, Path},
};

use probe_user::{
    model::{
        fact::{Fact, Observation},
        id::ContainerId,
        time::Timestamp,
    },
    source::{
        backfill::{Closed, Node, store::Declared},
        files::answer::Answerer,
        host::{HostRoot, skipped::Skipped},
        node::cgroup::{Hierarchy, Layout},
    },
};
use tempfile::TempDir;

use super::player::Player;

/// The maximum number of files of a node, and their maximum length.
const FILES: usize = 40;
const FILE: usize = 8 << 10;
/// The maximum number of parts of a path.
const DEPTH: usize = 10;

const NOW: Timestamp = Timestamp(3_600_000_000_000);

/// A directory that the configuration names.
const DECLARED: &str = "/var/lib/own-ipam";

/// Makes a folder, in memory if the machine has such a place.
fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("a folder")
}

/// A function that reads a part of a node.
type Lists = fn(Node<'_>, &mut dyn FnMut(Vec<Observation>) -> Result<(), Closed>) -> Result<Skipped, Closed>;

/// Reads the node twice, and passes the facts to an engine.
fn read(bytes: &[u8], lists: Lists) {
    let root = folder();
    lay_out(root.path(), bytes);
    let host = HostRoot::open(root.path()).expect("a root");
    let seen = facts(&host, lists);
    assert_eq!(facts(&host, lists), seen, "the same files tell something else");
    let mut player = Player::new();
    let ids: Vec<ContainerId> = seen.iter().filter_map(|seen| container(&seen.fact)).take(4).collect();
    for Observation { origin, fact, .. } in seen {
        player.observe(player.now(), origin, fact);
    }
    let mut answerer = Answerer::new(&host);
    for id in ids {
        let fact = answerer.container(&id);
        player.observe(player.now(), probe_user::model::fact::Origin::Listed, fact);
    }
    player.end();
}

fn facts(root: &HostRoot, lists: Lists) -> Vec<Observation> {
    let layout = Layout::read(root).unwrap_or_default();
    let usual = || Hierarchy { id: 0, controllers: Vec::new(), mount: "/sys/fs/cgroup".to_owned() };
    let hierarchy = layout.hierarchies.first().cloned().unwrap_or_else(usual);
    let stores: Vec<Declared> = Declared::new(DECLARED, None).into_iter().collect();
    let node = Node { root, hierarchy: &hierarchy, clock: &|| NOW, boot_wall_ns: 0, stores: &stores };
    let mut facts = Vec::new();
    let skipped = lists(node, &mut |batch| {
        let (first, last) = (batch.first().map(|it| &it.fact), batch.last().map(|it| &it.fact));
        let (Some(Fact::ListBegun(begun)), Some(Fact::ListEnded { list, complete: _ })) = (first, last)
        else {
            panic!("no list: {batch:?}")
        };
        assert_eq!(begun, list);
        facts.extend(batch);
        Ok(())
    });
    skipped.expect("nothing stops the reading");
    facts
}

/// Returns a container that a fact names.
fn container(fact: &Fact) -> Option<ContainerId> {
    match fact {
        Fact::ContainerFound(found) => Some(found.id.clone()),
        Fact::CacheFound(found) => Some(found.container.clone()),
        Fact::StoreRead(read) => {
            read.reservations.iter().find_map(|it| Some(it.holder.as_ref()?.container.clone()))
        }
        _ => None,
    }
}

/// Makes the files that the bytes encode. Leaves out what no file system accepts.
fn lay_out(root: &Path, bytes: &[u8]) {
    let mut rest = bytes.strip_prefix(b"== ").unwrap_or(bytes);
    for _ in 0..FILES {
        let end = rest.windows(4).position(|window| window == b"\n== ");
        let (file, next) = end.map_or((rest, &b""[..]), |end| (&rest[..=end], &rest[end + 4..]));
        make(root, file);
        rest = next;
        if rest.is_empty() {
            return;
        }
    }
}

fn make(root: &Path, file: &[u8]) -> Option<()> {
    let line = file.iter().position(|byte| *byte == b'\n')?;
    let (name, content) = (&file[..line], &file[line + 1..]);
    let arrow = name.windows(4).position(|window| window == b" -> ");
    let path = Path::new(std::ffi::OsStr::from_bytes(&name[..arrow.unwrap_or(name.len())]));
    let is_below = path.components().all(|part| matches!(part, Component::Normal(_)));
    if !is_below || path.components().count() > DEPTH {
        return None;
    }
    let parent = path.parent()?;
    // A link in the path may lead out of the root. Only files that are really below it are written.
    let mut folder = root.to_owned();
    for part in parent.components() {
        folder.push(part);
        if fs::symlink_metadata(&folder).is_ok_and(|it| !it.is_dir()) {
            return None;
        }
    }
    fs::create_dir_all(&folder).ok()?;
    let path = folder.join(path.file_name()?);
    if fs::symlink_metadata(&path).is_ok() {
        return None;
    }
    match arrow {
        Some(arrow) => symlink(std::ffi::OsStr::from_bytes(&name[arrow + 4..]), path).ok(),
        None => fs::write(path, &content[..content.len().min(FILE)]).ok(),
    }
}
