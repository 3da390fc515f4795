//! Which releases a node runs: of its kubelet, its container runtime, its CNI plugins, as a line for people.
//!
//! An executable's own word comes first. Distributions build without it (Debian's containerd records neither a module
//! nor what was set at link time), so where it says nothing the package that brought it is named, if one is known.
//!
//! **Invariant:** what is not known is said to be unknown; nothing is guessed from a path, and nothing is run.

mod package;

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
};

use super::{
    buildinfo::{GoBuild, Unknown},
    host::{HostRoot, Miss, skipped::Skipped},
};
use package::Package;

/// Digits of a commit that are enough to find it.
const COMMIT: usize = 12;

/// What an executable is to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Kubelet,
    Runtime,
    Plugin,
}

/// One executable and what is known of its release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    pub role: Role,
    pub path: PathBuf,
    /// What runs is no longer what stands at the path, and may be of another release.
    pub replaced: bool,
    pub build: Result<GoBuild, Unread>,
    pub package: Option<Package>,
}

/// Why an executable did not say what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    #[error(transparent)]
    File(#[from] Miss),
    #[error(transparent)]
    Build(#[from] Unknown),
}

impl Role {
    /// By the name of an executable that runs. The small distributions have all in one.
    fn of(program: &str) -> Option<Self> {
        match program {
            "kubelet" | "kubelite" | "k3s" | "rke2" | "k0s" => Some(Self::Kubelet),
            "containerd" | "crio" | "dockerd" | "cri-dockerd" => Some(Self::Runtime),
            _ => None,
        }
    }
}

impl Release {
    /// Of the executable at a path of the node, links followed.
    #[must_use]
    pub fn read(root: &HostRoot, role: Role, path: &Path) -> Self {
        let build = root.plain(path).map_err(Unread::from).and_then(|file| Ok(GoBuild::read(file)?));
        Self { role, path: path.to_owned(), replaced: false, build, package: package::owner(root, path) }
    }

    /// The version by its own word or by its package's.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        let own = self.build.as_ref().ok().and_then(GoBuild::version);
        own.or_else(|| self.package.as_ref().map(|package| package.version.as_str()))
    }
}

/// Those of the kubelets and runtimes that run now.
#[must_use]
pub fn running(root: &HostRoot, skipped: &mut Skipped) -> Vec<Release> {
    let proc = match root.folder("/proc").and_then(|proc| Ok((proc.entries()?, proc))) {
        Ok(proc) => proc,
        Err(why) => {
            skipped.add("/proc", why);
            return Vec::new();
        }
    };
    let (entries, proc) = proc;
    let mut found = BTreeSet::new();
    for entry in entries.entries.iter().filter(|entry| entry.name.bytes().all(|byte| byte.is_ascii_digit())) {
        match proc.folder(&entry.name).and_then(|process| process.link("exe")) {
            Ok(exe) => {
                // So the kernel marks one that was removed or replaced (proc_pid_exe(5)).
                let left = exe.strip_suffix(" (deleted)");
                let path = PathBuf::from(left.unwrap_or(&exe));
                let role = path.file_name().and_then(|name| Role::of(name.to_str()?));
                found.extend(role.map(|role| (role, path, left.is_some())));
            }
            Err(why) => skipped.add(Path::new("/proc").join(&entry.name).join("exe"), why),
        }
    }
    let read = |(role, path, replaced): (Role, PathBuf, bool)| Release {
        replaced,
        ..Release::read(root, role, &path)
    };
    found.into_iter().map(read).collect()
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy();
        write!(f, "{}", name.escape_debug())?;
        match self.version() {
            Some(version) => write!(f, " {version}")?,
            None => f.write_str(", version unknown")?,
        }
        let mut about = Vec::new();
        match (&self.build, &self.package) {
            (Ok(build), package) => {
                if build.version().is_none() {
                    about.extend(package.as_ref().map(|package| format!("package {}", package.name)));
                    about.extend(build.revision.as_ref().map(|revision| {
                        let changed = if revision.modified { ", changed" } else { "" };
                        format!("commit {:.COMMIT$}{changed}", revision.id)
                    }));
                }
                about.push(build.go.clone());
            }
            (Err(_), Some(package)) => about.push(format!("package {}", package.name)),
            (Err(why), None) => about.push(why.to_string()),
        }
        if self.replaced {
            about.push("replaced since it was started".to_owned());
        }
        write!(f, " ({})", about.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path};

    use super::{Release, Role, package::Package, running};
    use crate::source::{
        buildinfo::{GoBuild, Module, Revision, Unknown},
        host::{HostRoot, Miss, skipped::Skipped},
    };

    fn release(build: GoBuild, package: Option<&str>) -> Release {
        Release {
            role: Role::Plugin,
            path: "/opt/cni/bin/bridge".into(),
            replaced: false,
            build: Ok(GoBuild { go: "go1.19.8".to_owned(), ..build }),
            package: package
                .map(|version| Package { name: "plugins".to_owned(), version: version.to_owned() }),
        }
    }

    #[test]
    fn a_line_says_what_is_known() {
        let module = |version: Option<&str>| {
            Some(Module { path: "example.com/a".to_owned(), version: version.map(str::to_owned) })
        };
        let tagged = GoBuild { module: module(Some("v1.1.1")), ..GoBuild::default() };
        assert_eq!(release(tagged.clone(), None).to_string(), "bridge v1.1.1 (go1.19.8)");
        assert_eq!(release(tagged, Some("9")).to_string(), "bridge v1.1.1 (go1.19.8)");
        let none = GoBuild::default();
        assert_eq!(
            release(none.clone(), Some("1.1.1+ds1-3")).to_string(),
            "bridge 1.1.1+ds1-3 (package plugins, go1.19.8)"
        );
        assert_eq!(release(none, None).to_string(), "bridge, version unknown (go1.19.8)");
        let revision = Revision { id: "89a4ea3e1e4ddd7f7572".to_owned(), time: None, modified: true };
        let tree = GoBuild { module: module(None), revision: Some(revision), ..GoBuild::default() };
        assert_eq!(
            release(tree, None).to_string(),
            "bridge, version unknown (commit 89a4ea3e1e4d, changed, go1.19.8)"
        );
        let other = Release { build: Err(Unknown::NotElf.into()), ..release(GoBuild::default(), None) };
        assert_eq!(other.to_string(), "bridge, version unknown (not an ELF executable)");
        let gone = Release { build: Err(Miss::Absent.into()), ..release(GoBuild::default(), Some("2")) };
        assert_eq!(gone.to_string(), "bridge 2 (package plugins)");
    }

    #[test]
    fn what_runs_is_found_by_its_executable() {
        let root = tempfile::tempdir().expect("a directory");
        let at = |name: &str| root.path().join(name);
        let runs = |pid: &str, exe: Option<&str>| {
            fs::create_dir_all(at("proc").join(pid)).expect("a process");
            if let Some(exe) = exe {
                symlink(exe, at("proc").join(pid).join("exe")).expect("a link");
            }
        };
        for (pid, exe) in [
            ("1", Some("/usr/lib/systemd/systemd")),
            ("2", None),
            ("30", Some("/usr/bin/containerd")),
            ("31", Some("/usr/bin/containerd")),
            ("40", Some("/opt/bin/kubelet (deleted)")),
            ("self", Some("/usr/bin/crio")),
        ] {
            runs(pid, exe);
        }
        fs::create_dir_all(at("usr/bin")).expect("a directory");
        fs::write(at("usr/bin/containerd"), "#!/bin/sh\n").expect("a file");
        fs::create_dir_all(at("var/lib/dpkg/info")).expect("a directory");
        fs::write(at("var/lib/dpkg/info/containerd.list"), "/.\n/usr/bin\n/usr/bin/containerd\n")
            .expect("a file");
        let status = "Package: containerd\nStatus: install ok installed\nVersion: 1.6.20~ds1-1\n";
        fs::write(at("var/lib/dpkg/status"), status).expect("a file");

        let host = HostRoot::open(root.path()).expect("the root");
        let mut skipped = Skipped::default();
        let found = running(&host, &mut skipped);
        let lines: Vec<_> = found.iter().map(|release| (release.role, release.to_string())).collect();
        assert_eq!(
            lines,
            [
                (
                    Role::Kubelet,
                    "kubelet, version unknown (not there, replaced since it was started)".to_owned()
                ),
                (Role::Runtime, "containerd 1.6.20~ds1-1 (package containerd)".to_owned()),
            ]
        );
        assert!(skipped.is_none(), "{skipped:?}");
        // A node whose processes cannot be seen says so.
        fs::write(at("proc2"), "").expect("a file");
        fs::rename(at("proc"), at("proc3")).expect("renamed");
        fs::rename(at("proc2"), at("proc")).expect("renamed");
        assert!(running(&host, &mut skipped).is_empty());
        assert_eq!(
            skipped.first.map(|(path, why)| (path.display().to_string(), why)),
            Some(("/proc".to_owned(), Miss::NotPlain))
        );
    }

    #[test]
    fn a_name_cannot_break_the_line() {
        let mut odd = release(GoBuild::default(), None);
        odd.path = Path::new("/opt/cni/bin/a\nb").to_owned();
        assert_eq!(odd.to_string(), "a\\nb, version unknown (go1.19.8)");
    }
}
