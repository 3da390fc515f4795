//! Stand-ins for a runtime and a CNI plugin. The kernel sees them as the real ones.

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
pub(crate) const STATUS: i32 = 5;

/// No record may contain this text.
pub(crate) const SECRET: &str = "s3cr3t";

/// Environment variables in order.
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

    /// Puts its variables among `size` bytes of other variables, short and long.
    pub(crate) fn amid(self, size: usize) -> Self {
        let others = others(size, 700);
        let n = self.0.len();
        let mut all = Vec::new();
        let mut own = self.0.into_iter();
        for (i, other) in others.iter().enumerate() {
            // The second half comes first, so that the variables are not in their own order.
            if i % (others.len() / n) == others.len() / n / 2 {
                all.extend(own.next_back());
            }
            all.push(other.clone());
        }
        all.extend(own);
        Self(all)
    }

    /// Puts its variables in front of `size` bytes of other variables of at most `longest` bytes.
    pub(crate) fn before(mut self, size: usize, longest: usize) -> Self {
        self.0.extend(others(size, longest));
        self
    }

    pub(crate) fn value(&self, name: &str) -> Option<String> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Writes it in the kernel's form: strings with a NUL behind each.
    pub(super) fn save(&self, file: &Path) -> Result<()> {
        let text: String = self.0.iter().map(|(name, value)| format!("{name}={value}\0")).collect();
        fs::write(file, text).with_context(|| format!("write {}", file.display()))
    }
}

/// Other variables. Some names differ by a letter from one that counts.
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
            6 if i < 20 => format!("TRACEPARENT_{SECRET}_{i}"),
            7 => format!("BAGGAGE_{SECRET}_{i}"),
            _ => format!("NAME_{SECRET}_{i}"),
        };
        let value = format!("{SECRET} CNI_COMMAND=DEL ").repeat(longest);
        let value = &value[..(i * 37 % longest).max(1)];
        made += name.len() + value.len() + 2;
        all.push((name, value.to_owned()));
    }
    all
}

/// A program with the name of a runtime, and its plugin.
pub(crate) struct Runtime {
    folder: TempDir,
    /// The command that starts it. Empty: this test starts it.
    by: Vec<String>,
    name: &'static str,
    /// The actor's role for calling a plugin.
    role: &'static str,
    plugin: &'static str,
}

/// The rights of a runtime that a user other than root starts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    Own,
    /// Root's, from the set-user-ID bit of its file.
    Lent,
    /// Root's, and the process also makes them its real ones.
    Taken,
}

impl Runtime {
    pub(crate) fn start() -> Result<Self> {
        Self::start_as("containerd")
    }

    pub(crate) fn start_as(name: &'static str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        // Users other than root must be able to start it.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        program::alias("actor", folder.path(), name)?;
        Ok(Self { folder, by: Vec::new(), name, role: "run", plugin: "bridge" })
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

    /// Returns a runtime that another command executes. The runtime is the end of that command's arguments.
    pub(crate) fn start_by(command: &[String]) -> Result<Self> {
        Ok(Self { by: command.to_owned(), ..Self::start()? })
    }

    /// Calls a plugin of this name from now on.
    pub(crate) fn calling(self, plugin: &'static str) -> Self {
        Self { plugin, ..self }
    }

    /// Makes it call the plugin, through another command if one is given, and waits until the plugin ends.
    /// Returns the runtime's pid.
    pub(crate) fn call(&mut self, environment: &Environment, through: &[String]) -> Result<u32> {
        self.call_to(environment, through, &["exit".to_owned(), STATUS.to_string()])
    }

    /// Like `call`, with a plugin that does `plugin_does`. The plugin must end with `STATUS`.
    pub(crate) fn call_to(
        &mut self,
        environment: &Environment,
        through: &[String],
        plugin_does: &[String],
    ) -> Result<u32> {
        let mut command = self.command(environment, through, plugin_does)?;
        let mut child = command.spawn().with_context(|| format!("start {command:?}"))?;
        let status = child.wait()?;
        ensure!(status.code() == Some(STATUS), "{command:?} ended with {status}");
        Ok(child.id())
    }

    /// Returns the runtime's command for such a call.
    pub(crate) fn command(
        &self,
        environment: &Environment,
        through: &[String],
        plugin_does: &[String],
    ) -> Result<Command> {
        let mut words = self.by.clone();
        words.extend([text(&self.folder.path().join(self.name))?, self.role.to_owned()]);
        words.extend(through.iter().cloned());
        words.extend(self.plugin(self.plugin, environment)?);
        words.extend(plugin_does.iter().cloned());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        Ok(command)
    }

    /// Returns the directory of the plugins, as `CNI_PATH` has it.
    pub(crate) fn folder(&self) -> Result<String> {
        text(self.folder.path())
    }

    /// Returns the words that execute a plugin with this environment.
    pub(crate) fn plugin(&self, name: &str, environment: &Environment) -> Result<Vec<String>> {
        let folder = self.folder.path();
        let (file, path) = (folder.join(format!("environment of {name}")), folder.join(name));
        environment.save(&file)?;
        if !path.exists() {
            program::alias("actor", folder, name)?;
        }
        Ok(vec![actor()?, "become".to_owned(), text(&file)?, text(&path)?])
    }
}

fn text(path: &Path) -> Result<String> {
    path.to_str().map(str::to_owned).context("the path is not UTF-8")
}
