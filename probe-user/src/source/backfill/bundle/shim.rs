//! Finds the folders of bundles from the runtimes' helper processes.
//!
//! The working directory of a containerd shim is the bundle of its sandbox. conmon gets its bundle as an
//! argument. So the folder is found without the runtime's configuration.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use probe_common::runtime::{Form, Helper};

use super::Bundles;
use crate::{
    model::id::ContainerId,
    source::{
        backfill::{proc, runtime::daemon},
        host::{Folder, HostRoot, ReadError},
    },
};

/// Returns the bundle folders of all helpers that run now.
pub(super) fn folders(root: &HostRoot) -> BTreeSet<Bundles> {
    daemon::processes(root).filter_map(|(comm, process)| bundles(&comm, &process).ok()?).collect()
}

fn bundles(comm: &[u8], process: &Folder) -> Result<Option<Bundles>, ReadError> {
    let form = str::from_utf8(comm).ok().and_then(Helper::of).and_then(|helper| helper.form);
    let found = match form {
        Some(Form::Shim) => of_shim(&process.link("cwd")?),
        Some(Form::Conmon) => of_conmon(&proc::arguments(&process.head("cmdline", 4096)?)),
        // Its bundle is in iSulad's root, which is searched anyway.
        Some(Form::Oci | Form::IsuladShim) | None => return Ok(None),
    };
    Ok(if daemon::is_of_node(process)? { found } else { None })
}

/// Parses `STATE/io.containerd.runtime.v2.task/NAMESPACE/ID`.
fn of_shim(cwd: &str) -> Option<Bundles> {
    Some(Bundles::Task(folder_of(Path::new(cwd))?))
}

/// Parses `-b ROOT/overlay-containers/ID/userdata`.
fn of_conmon(arguments: &[String]) -> Option<Bundles> {
    let bundle = Path::new(proc::option(arguments, &["-b", "--bundle"])?);
    if bundle.file_name()? != "userdata" {
        return None;
    }
    Some(Bundles::Storage(folder_of(bundle.parent()?)?))
}

/// Returns the parent folder of a bundle that is named by its container's id.
fn folder_of(bundle: &Path) -> Option<PathBuf> {
    ContainerId::parse(bundle.file_name()?.to_str()?)?;
    let folder = bundle.parent()?;
    folder.is_absolute().then(|| folder.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Bundles, of_conmon, of_shim};

    #[test]
    fn a_shim_stands_in_its_bundle() {
        let folder = "/run/own/io.containerd.runtime.v2.task/k8s.io";
        assert_eq!(of_shim(&format!("{folder}/0123abc")), Some(Bundles::Task(folder.into())));
        for other in ["/", "", "relative", "/run/own/0123abc (deleted)"] {
            assert_eq!(of_shim(other), None, "{other}");
        }
    }

    #[test]
    fn conmon_is_told_its_bundle() {
        let arguments = |bundle: &str| ["conmon", "-b", bundle, "-c", "0123abc"].map(str::to_owned);
        let folder = "/run/containers/storage/overlay-containers";
        let found = of_conmon(&arguments(&format!("{folder}/0123abc/userdata")));
        assert_eq!(found, Some(Bundles::Storage(folder.into())));
        assert_eq!(of_conmon(&arguments("/x/y")), None);
        assert_eq!(of_conmon(&[]), None);
    }

    proptest! {
        #[test]
        fn nothing_is_too_strange(text: String) {
            of_shim(&text);
            of_conmon(&["-b".to_owned(), text]);
        }
    }
}
