//! Judges the CNI configuration as the runtime that serves pods does: which file it takes, whether libcni can
//! load that, and whether the executables of its plugins are in the folders in which this runtime looks.
//!
//! **Invariant:** a fault is reported only if everything on which it rests was read. A file that cannot be
//! read, or that goes while it is read, is no fault.

use std::path::Path;

use serde_json::{Map, Value};

use super::{MAX_FILES, Node, is_configuration};
use crate::{
    model::fact::{LOOPBACK, NetworkFault, NetworkFaultForm, NetworkLoading, RuntimeKind},
    source::{
        backfill::runtime::daemon::{Daemon, NetworkSettings, Strictness, settings},
        host::{HostRoot, ReadError},
    },
};

/// The end of the name of a list of plugins.
const LIST: &str = ".conflist";

/// A file cannot be read at the moment, so nothing is known.
#[derive(Debug)]
struct Unknown;

/// Returns how the node's runtime loads the network of pods, and the folders in which it looks for plugins.
/// Nothing if several runtimes could serve pods.
pub(super) fn read(node: Node<'_>, daemons: &[Daemon]) -> (Option<NetworkLoading>, Vec<String>) {
    let mut servers = daemons.iter().filter_map(|daemon| Some((daemon, server(daemon)?)));
    let (Some((daemon, runtime)), None) = (servers.next(), servers.next()) else { return Default::default() };
    let Some(network) = &daemon.loads else { return Default::default() };
    let mut fault = fault(daemon.files(node.root), network);
    // Something that is missing in this program's own view of the node may be there all the same.
    if !daemon.shows_its_files()
        && let Ok(Some(NetworkFault { how, .. })) = &fault
        && *how != NetworkFaultForm::BadConfiguration
    {
        fault = Err(Unknown);
    }
    let folder = network.folder.display().to_string();
    let plugins = network.plugins.iter().map(|path| path.display().to_string()).collect();
    (fault.ok().map(|fault| NetworkLoading { runtime, folder, fault }), plugins)
}

/// Returns the kind of a runtime that may serve pods. A containerd that serves none has its plugin for CRI
/// disabled.
fn server(daemon: &Daemon) -> Option<RuntimeKind> {
    let kind = daemon.kind.runtime()?;
    let serves = kind != RuntimeKind::Containerd || daemon.loads.is_some() || daemon.unread.is_some();
    serves.then_some(kind)
}

fn fault(files: &HostRoot, network: &NetworkSettings) -> Result<Option<NetworkFault>, Unknown> {
    let names = names(files, &network.folder)?;
    if names.is_empty() {
        let how = NetworkFaultForm::NoConfiguration;
        return Ok(Some(NetworkFault { how, file: None, error: None, plugin: None }));
    }
    let mut first = None;
    match network.strictness {
        Strictness::Stops { files: most, needs_loopback } => {
            for name in names.iter().take(most) {
                first = first.or(fault_of(files, network, name)?);
            }
            if first.is_none() && needs_loopback && is_missing(files, network, LOOPBACK)? {
                first = Some(missing(None, LOOPBACK.to_owned()));
            }
        }
        Strictness::PassesOver => {
            for name in &names {
                let Some(fault) = fault_of(files, network, name)? else { return Ok(None) };
                first.get_or_insert(fault);
            }
        }
    }
    Ok(first)
}

/// Returns the names of the configurations, in the order in which runtimes load them.
fn names(files: &HostRoot, folder: &Path) -> Result<Vec<String>, Unknown> {
    let entries = match files.folder(folder).and_then(|folder| folder.entries()) {
        Ok(entries) => entries,
        Err(ReadError::Absent) => return Ok(Vec::new()),
        Err(_) => return Err(Unknown),
    };
    if entries.left_out > 0 || entries.not_utf8.iter().any(|name| is_configuration(name)) {
        return Err(Unknown);
    }
    let mut names: Vec<String> =
        entries.entries.into_iter().map(|entry| entry.name).filter(|name| is_configuration(name)).collect();
    names.retain(|name| files.folder(folder.join(name)).is_err());
    if names.len() > MAX_FILES { Err(Unknown) } else { Ok(names) }
}

/// Returns why a network cannot be made with this file.
fn fault_of(
    files: &HostRoot,
    network: &NetworkSettings,
    name: &str,
) -> Result<Option<NetworkFault>, Unknown> {
    let path = network.folder.join(name);
    let bytes = settings::read(files, &path).map_err(|_unread| Unknown)?;
    let file = path.display().to_string();
    match load(&bytes, name.ends_with(LIST)) {
        Ok(conf) => {
            if conf.plugins.is_empty() {
                return inlined(files, &network.folder.join(&conf.name), file);
            }
            for plugin in conf.plugins {
                if is_missing(files, network, &plugin)? {
                    return Ok(Some(missing(Some(file), plugin)));
                }
            }
            Ok(None)
        }
        Err(error) => Ok(Some(bad(file, error))),
    }
}

/// Judges a list without plugins: since version 1.3, libcni reads them from a folder with the network's name.
fn inlined(files: &HostRoot, folder: &Path, file: String) -> Result<Option<NetworkFault>, Unknown> {
    match files.folder(folder) {
        Err(ReadError::Absent) => Ok(Some(bad(file, "it names no plugins".to_owned()))),
        Ok(_) | Err(_) => Err(Unknown),
    }
}

fn bad(file: String, error: String) -> NetworkFault {
    let how = NetworkFaultForm::BadConfiguration;
    NetworkFault { how, file: Some(file), error: Some(error), plugin: None }
}

fn missing(file: Option<String>, plugin: String) -> NetworkFault {
    NetworkFault { how: NetworkFaultForm::PluginMissing, file, error: None, plugin: Some(plugin) }
}

/// Returns whether the executable of a plugin is in none of the folders. libcni asks for a plain file.
fn is_missing(files: &HostRoot, network: &NetworkSettings, plugin: &str) -> Result<bool, Unknown> {
    if network.plugins.is_empty() || plugin.contains('/') {
        return Err(Unknown);
    }
    for folder in &network.plugins {
        match files.plain(folder.join(plugin)) {
            Ok(_) => return Ok(false),
            Err(ReadError::Absent) => {}
            Err(_) => return Err(Unknown),
        }
    }
    Ok(true)
}

/// A configuration that libcni can load.
#[derive(Debug, PartialEq, Eq)]
struct Loaded {
    name: String,
    /// The types of the plugins that the runtime calls.
    plugins: Vec<String>,
}

/// Loads a configuration as libcni does (`ConfListFromBytes`, `ConfFromBytes`). An error says why it cannot.
fn load(bytes: &[u8], is_list: bool) -> Result<Loaded, String> {
    if bytes.trim_ascii().is_empty() {
        return Err("it is empty".to_owned());
    }
    // Go decodes text that is not UTF-8 too.
    let value: Value =
        serde_json::from_str(&String::from_utf8_lossy(bytes)).map_err(|why| why.to_string())?;
    let conf = value.as_object().ok_or("it is no JSON object")?;
    let name = conf.get("name").map(|name| name.as_str().ok_or("its name is no string")).transpose()?;
    if conf.get("cniVersion").is_some_and(|version| !version.is_string()) {
        return Err("its cniVersion is no string".to_owned());
    }
    if !is_list {
        let Some(kind) = kind(conf) else {
            let is_list = conf.contains_key("plugins");
            let why =
                if is_list { "it is a list: its name must end with .conflist" } else { "it has no type" };
            return Err(why.to_owned());
        };
        return Ok(Loaded { name: name.unwrap_or_default().to_owned(), plugins: vec![kind] });
    }
    let name = name.ok_or("it has no name")?.to_owned();
    let plugins = match conf.get("plugins") {
        None => &Vec::new(),
        Some(plugins) => plugins.as_array().ok_or("its plugins are no list")?,
    };
    let mut kinds = Vec::new();
    for (place, plugin) in (1..).zip(plugins) {
        let kind = plugin.as_object().and_then(kind);
        kinds.push(kind.ok_or_else(|| format!("plugin {place} has no type"))?);
    }
    Ok(Loaded { name, plugins: kinds })
}

/// Returns the type of a plugin. Go takes the name of a member in any case.
fn kind(plugin: &Map<String, Value>) -> Option<String> {
    let (_, kind) = plugin.iter().find(|(key, _)| key.eq_ignore_ascii_case("type"))?;
    kind.as_str().filter(|kind| !kind.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt as _, symlink},
        path::PathBuf,
    };

    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::{HostRoot, NetworkSettings, Strictness, fault, load};

    const CONTAINERD: Strictness = Strictness::Stops { files: 1, needs_loopback: true };
    const GOOD: &str =
        r#"{"cniVersion":"1.0.0","name":"podnet","plugins":[{"type":"bridge"},{"type":"portmap"}]}"#;
    const OTHER: &str = r#"{"name":"other","plugins":[{"type":"weave"}]}"#;

    fn node(files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for folder in ["etc/cni/net.d", "opt/cni/bin", "usr/lib/cni"] {
            fs::create_dir_all(root.path().join(folder)).expect("a directory");
        }
        for (path, text) in files {
            fs::write(root.path().join(path), text).expect("a file");
        }
        root
    }

    /// Returns the fault in a line, as a runtime with these settings sees it.
    fn told(root: &TempDir, strictness: Strictness, plugins: &[&str]) -> String {
        let settings = NetworkSettings {
            folder: PathBuf::from("/etc/cni/net.d"),
            plugins: plugins.iter().map(PathBuf::from).collect(),
            strictness,
        };
        match fault(&HostRoot::open(root.path()).expect("the root"), &settings) {
            Ok(None) => "ready".to_owned(),
            Ok(Some(it)) => {
                let how: &str = it.how.into();
                let rest = [it.file, it.error, it.plugin].into_iter().flatten();
                rest.fold(how.to_owned(), |text, more| format!("{text} {more}"))
            }
            Err(_) => "unknown".to_owned(),
        }
    }

    fn of(files: &[(&str, &str)], strictness: Strictness) -> String {
        let mut all =
            vec![("opt/cni/bin/bridge", ""), ("usr/lib/cni/portmap", ""), ("opt/cni/bin/loopback", "")];
        all.extend(files);
        told(&node(&all), strictness, &["/opt/cni/bin", "/usr/lib/cni"])
    }

    #[test]
    fn containerd_stops_at_a_file_that_it_cannot_load() {
        let bad = "bad_configuration /etc/cni/net.d/05-a.conflist it is empty";
        for (files, expected) in [
            (&[("etc/cni/net.d/10-b.conflist", GOOD)][..], "ready"),
            (&[], "no_configuration"),
            (&[("etc/cni/net.d/README", "")], "no_configuration"),
            (&[("etc/cni/net.d/05-a.conflist", ""), ("etc/cni/net.d/10-b.conflist", GOOD)], bad),
            // It does not reach the second file, nor the plugin that this one names.
            (&[("etc/cni/net.d/10-b.conflist", GOOD), ("etc/cni/net.d/20-c.conflist", "{")], "ready"),
            (&[("etc/cni/net.d/10-b.conflist", GOOD), ("etc/cni/net.d/20-c.conflist", OTHER)], "ready"),
        ] {
            assert_eq!(of(files, CONTAINERD), expected, "{files:?}");
        }
        let both = Strictness::Stops { files: 2, needs_loopback: true };
        let files = [("etc/cni/net.d/10-b.conflist", GOOD), ("etc/cni/net.d/20-c.conflist", "{\n")];
        let expected =
            "bad_configuration /etc/cni/net.d/20-c.conflist EOF while parsing an object at line 2 column 0";
        assert_eq!(of(&files, both), expected);
    }

    #[test]
    fn cri_o_passes_over_a_file_that_it_cannot_load() {
        for (files, expected) in [
            (&[("etc/cni/net.d/05-a.conflist", ""), ("etc/cni/net.d/10-b.conflist", GOOD)][..], "ready"),
            (&[("etc/cni/net.d/05-a.conflist", OTHER), ("etc/cni/net.d/10-b.conflist", GOOD)], "ready"),
            (
                &[("etc/cni/net.d/05-a.conflist", ""), ("etc/cni/net.d/10-b.conflist", OTHER)],
                "bad_configuration /etc/cni/net.d/05-a.conflist it is empty",
            ),
            (&[], "no_configuration"),
        ] {
            assert_eq!(of(files, Strictness::PassesOver), expected, "{files:?}");
        }
    }

    #[test]
    fn a_plugin_is_looked_for_where_the_runtime_looks() {
        let files =
            [("etc/cni/net.d/10-b.conflist", GOOD), ("opt/cni/bin/bridge", ""), ("usr/lib/cni/portmap", "")];
        let root = node(&files);
        let both = ["/opt/cni/bin", "/usr/lib/cni"];
        let portmap = "plugin_missing /etc/cni/net.d/10-b.conflist portmap";
        assert_eq!(told(&root, CONTAINERD, &["/opt/cni/bin"]), portmap);
        assert_eq!(told(&root, CONTAINERD, &both), "plugin_missing loopback");
        let internal = Strictness::Stops { files: 1, needs_loopback: false };
        assert_eq!(told(&root, internal, &both), "ready");
        assert_eq!(told(&root, Strictness::PassesOver, &both), "ready");
        assert_eq!(told(&root, CONTAINERD, &[]), "unknown", "the folders are not known");
        // As with k3s: the plugins are links to one program, and the folder is a link too.
        symlink("bridge", root.path().join("opt/cni/bin/portmap")).expect("a link");
        symlink("bridge", root.path().join("opt/cni/bin/loopback")).expect("a link");
        symlink("cni/bin", root.path().join("opt/current")).expect("a link");
        assert_eq!(told(&root, CONTAINERD, &["/opt/current"]), "ready");
        // A link that leads nowhere.
        fs::remove_file(root.path().join("opt/cni/bin/bridge")).expect("removed");
        assert_eq!(told(&root, CONTAINERD, &both), "plugin_missing /etc/cni/net.d/10-b.conflist bridge");
    }

    #[test]
    fn what_cannot_be_read_is_no_fault() {
        let root = node(&[("etc/cni/net.d/10-b.conflist", GOOD)]);
        let at = |path: &str| root.path().join(path);
        symlink("gone", at("etc/cni/net.d/05-a.conflist")).expect("a link");
        assert_eq!(told(&root, CONTAINERD, &["/opt/cni/bin"]), "unknown");
        fs::remove_file(at("etc/cni/net.d/05-a.conflist")).expect("removed");
        fs::create_dir(at("etc/cni/net.d/06-d.conflist")).expect("a directory");
        assert!(
            told(&root, CONTAINERD, &["/opt/cni/bin"]).starts_with("plugin_missing"),
            "a folder is no file"
        );
        // A file where the folder should be.
        fs::write(at("opt/file"), "").expect("a file");
        assert_eq!(told(&root, CONTAINERD, &["/opt/file"]), "unknown");
        fs::set_permissions(at("etc/cni/net.d"), fs::Permissions::from_mode(0o000)).expect("a mode");
        let is_root = fs::read_dir(at("etc/cni/net.d")).is_ok();
        let expected = if is_root { "plugin_missing /etc/cni/net.d/10-b.conflist bridge" } else { "unknown" };
        assert_eq!(told(&root, CONTAINERD, &["/opt/cni/bin"]), expected);
        fs::set_permissions(at("etc/cni/net.d"), fs::Permissions::from_mode(0o755)).expect("a mode");
    }

    #[test]
    fn a_configuration_is_loaded_as_by_libcni() {
        let told = |text: &str, is_list: bool| match load(text.as_bytes(), is_list) {
            Ok(it) => format!("{} {}", it.name, it.plugins.join("+")),
            Err(why) => why,
        };
        for (text, list, single) in [
            ("", "it is empty", "it is empty"),
            (" \n", "it is empty", "it is empty"),
            (GOOD, "podnet bridge+portmap", "it is a list: its name must end with .conflist"),
            (r#"{"name":"n","type":"ptp"}"#, "n ", "n ptp"),
            (r#"{"name":"n","Type":"ptp","odd":[{}]}"#, "n ", "n ptp"),
            (
                r#"{"plugins":[{"type":"a"}]}"#,
                "it has no name",
                "it is a list: its name must end with .conflist",
            ),
            (
                r#"{"name":"n","plugins":[{"type":"a"},{}]}"#,
                "plugin 2 has no type",
                "it is a list: its name must end with .conflist",
            ),
            (
                r#"{"name":"n","cniVersion":1,"type":"a"}"#,
                "its cniVersion is no string",
                "its cniVersion is no string",
            ),
            ("[]", "it is no JSON object", "it is no JSON object"),
            ("{}x", "trailing characters at line 1 column 3", "trailing characters at line 1 column 3"),
        ] {
            assert_eq!((&*told(text, true), &*told(text, false)), (list, single), "{text}");
        }
        assert!(load(b"{\"name\":\"\xff\",\"type\":\"a\"}", false).is_ok());
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes: Vec<u8>, is_list: bool) {
            load(&bytes, is_list).ok();
        }
    }
}
