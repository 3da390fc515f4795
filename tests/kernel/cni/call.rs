//! A runtime and a plugin that are no such things, but for what the kernel can see.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use tests::program;

use crate::container::actor;

/// The plugin's exit status.
pub(super) const STATUS: i32 = 5;

/// What no record may hold.
pub(crate) const SECRET: &str = "s3cr3t";

/// An environment, in order.
#[derive(Clone, Debug)]
pub(crate) struct Environment(Vec<(String, String)>);

impl Environment {
    pub(crate) fn of_add(id: &str) -> Self {
        let variables = [
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", id),
            ("CNI_NETNS", "/run/netns/cni-5d1cb95b"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0"),
        ];
        Self(variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec())
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.0.retain(|(own, _)| own != name);
        self
    }

    pub(crate) fn with(self, name: &str, value: &str) -> Self {
        let mut all = self.without(name);
        all.0.push((name.to_owned(), value.to_owned()));
        all
    }

    /// Scattered among `size` bytes of other variables, short and long.
    pub(crate) fn amid(self, size: usize) -> Self {
        let others = others(size, 700);
        let n = self.0.len();
        let mut all = Vec::new();
        let mut own = self.0.into_iter();
        for (i, other) in others.iter().enumerate() {
            // In no order of their own: the second half comes first.
            if i % (others.len() / n) == others.len() / n / 2 {
                all.extend(own.next_back());
            }
            all.push(other.clone());
        }
        all.extend(own);
        Self(all)
    }

    /// In front of `size` bytes of other variables of at most `longest` bytes.
    pub(crate) fn before(mut self, size: usize, longest: usize) -> Self {
        self.0.extend(others(size, longest));
        self
    }

    pub(crate) fn value(&self, name: &str) -> Option<String> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone())
    }

    /// Writes it as the kernel has it: strings with a NUL behind each.
    pub(super) fn save(&self, file: &Path) -> Result<()> {
        let text: String = self.0.iter().map(|(name, value)| format!("{name}={value}\0")).collect();
        fs::write(file, text).with_context(|| format!("write {}", file.display()))
    }
}

/// A few of them named like what is looked for, but for a letter.
fn others(size: usize, longest: usize) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut made = 0;
    for i in 0.. {
        if made >= size {
            break;
        }
        let name = match i % 9 {
            3 if i < 200 => format!("CNI_{SECRET}_{i}"),
            5 => format!("XCNI_COMMAND_{SECRET}_{i}"),
            _ => format!("NAME_{SECRET}_{i}"),
        };
        let value = format!("{SECRET} CNI_COMMAND=DEL ").repeat(longest);
        let value = &value[..(i * 37 % longest).max(1)];
        made += name.len() + value.len() + 2;
        all.push((name, value.to_owned()));
    }
    all
}

/// What is named like a runtime, and its plugin.
pub(crate) struct Runtime {
    folder: TempDir,
    /// What starts it, if not this test itself.
    by: Vec<String>,
    name: &'static str,
    /// What it does to call a plugin.
    role: &'static str,
}

/// Whose rights a runtime has that is started by a user who is not root.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    Own,
    /// Root's, which its file lends him.
    Lent,
    /// The same, and it takes them for good.
    Taken,
}

impl Runtime {
    pub(crate) fn start() -> Result<Self> {
        Self::start_as("containerd")
    }

    pub(crate) fn start_as(name: &'static str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        // Others than root are to start it too.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        program::alias("actor", folder.path(), name)?;
        program::alias("actor", folder.path(), "bridge")?;
        Ok(Self { folder, by: Vec::new(), name, role: "run" })
    }

    /// Started by a user of the node who is not root.
    pub(crate) fn start_by_user(rights: Rights) -> Result<Self> {
        let by = [&*actor()?, "as", "65534"].map(str::to_owned);
        let mut runtime = Self::start_by(&by)?;
        if rights == Rights::Taken {
            runtime.role = "take-root";
        }
        if rights != Rights::Own {
            let path = runtime.folder.path().join(runtime.name);
            fs::remove_file(&path)?;
            fs::copy(program::path("actor")?, &path)?;
            fs::set_permissions(&path, Permissions::from_mode(0o4755))?;
        }
        Ok(runtime)
    }

    /// Executed by another command, whose last words it is.
    pub(crate) fn start_by(command: &[String]) -> Result<Self> {
        Ok(Self { by: command.to_owned(), ..Self::start()? })
    }

    /// Has it call the plugin, through another command if one is given, until the plugin ends. Gives its pid.
    pub(crate) fn call(&mut self, environment: &Environment, through: &[String]) -> Result<u32> {
        self.call_to(environment, through, &["exit".to_owned(), STATUS.to_string()])
    }

    /// The same, of a plugin that does what is said: at last it must end as if told to exit.
    pub(super) fn call_to(
        &mut self,
        environment: &Environment,
        through: &[String],
        plugin_does: &[String],
    ) -> Result<u32> {
        let file = self.folder.path().join("environment");
        environment.save(&file)?;
        let text = |path: &Path| path.to_str().map(str::to_owned).context("the path is no text");
        let mut words = self.by.clone();
        words.extend([text(&self.folder.path().join(self.name))?, self.role.to_owned()]);
        words.extend(through.iter().cloned());
        words.extend([actor()?, "become".to_owned(), text(&file)?]);
        words.push(text(&self.folder.path().join("bridge"))?);
        words.extend(plugin_does.iter().cloned());
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .spawn()
            .with_context(|| format!("start {}", words[0]))?;
        let status = child.wait()?;
        ensure!(status.code() == Some(STATUS), "{words:?} ended with {status}");
        Ok(child.id())
    }
}
