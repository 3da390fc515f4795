//! Finds when containerd had fetched the last layer of an image: the date of the layer's file in the content
//! store. The store's `Commit` sets the date with `os.Chtimes` when the layer is complete. containerd keeps
//! the files, unless `discard_unpacked_layers` is set.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::source::host::{FILE, Folder, HostRoot};

const STORE: &str = "io.containerd.content.v1.content/blobs/sha256";
/// The most manifests of an index that are read, and the most layers that an image may have.
const MAX_ITEMS: usize = 256;

/// An index of manifests, or a manifest with its layers.
#[derive(Debug, Default, Deserialize)]
struct Descriptors {
    #[serde(default)]
    manifests: Vec<Descriptor>,
    #[serde(default)]
    layers: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
struct Descriptor {
    digest: String,
}

/// Returns when the image's last layer was fetched: wall clock, ns since the epoch. `None` if no store has
/// all layers of the image.
pub(super) fn fetched(root: &HostRoot, roots: &[PathBuf], manifest: &str) -> Option<i64> {
    roots.iter().filter_map(|path| root.folder(Path::new(path).join(STORE)).ok()).find_map(|store| {
        let top = read(&store, manifest)?;
        // An index has a manifest for each platform; only this platform's manifest was fetched.
        let below = top.manifests.iter().take(MAX_ITEMS).filter_map(|it| read(&store, &it.digest));
        let layers: Vec<Descriptor> = top.layers.into_iter().chain(below.flat_map(|it| it.layers)).collect();
        if layers.len() > MAX_ITEMS {
            return None;
        }
        let dates: Option<Vec<i64>> = layers.iter().map(|it| date(&store, &it.digest)).collect();
        dates?.into_iter().max()
    })
}

fn read(store: &Folder, digest: &str) -> Option<Descriptors> {
    serde_json::from_slice(&store.read(hex(digest)?, FILE).ok()?).ok()
}

fn date(store: &Folder, digest: &str) -> Option<i64> {
    let written = store.plain(hex(digest)?).ok()?.metadata().ok()?.modified().ok()?;
    i64::try_from(written.duration_since(std::time::UNIX_EPOCH).ok()?.as_nanos()).ok()
}

fn hex(digest: &str) -> Option<&str> {
    let hex = digest.strip_prefix("sha256:")?;
    (hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(hex)
}
