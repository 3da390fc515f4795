//! The execs that the agent examines as possible CNI calls, besides those of the known runtimes: an exec with
//! the form of a call anywhere, and any exec while a call of the node's runtime is open. It searches no other
//! environment.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use probe_user::model::fact::Origin;
use tempfile::TempDir;
use tests::program;

use super::{
    call,
    call::{Environment, STATUS},
    observe,
};
use crate::container::{Container, actor, new_id};

/// A program that the agent does not know as a plugin.
struct Unknown {
    folder: TempDir,
    path: PathBuf,
}

impl Unknown {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = program::alias("actor", folder.path(), "unheard-of")?;
        Ok(Self { folder, path })
    }

    fn script() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("unheard-of.sh");
        fs::write(&path, "#!/bin/sh\nexit 1\n")?;
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
        Ok(Self { folder, path })
    }

    /// Returns the command that executes it with this environment.
    fn words(&self, environment: &Environment, arguments: &[&str]) -> Result<Vec<String>> {
        let file = self.folder.path().join("environment");
        environment.save(&file)?;
        let text = |path: PathBuf| path.into_os_string().into_string().ok().context("the path is not UTF-8");
        let mut words = vec![actor()?, "become".to_owned(), text(file)?, text(self.path.clone())?];
        words.extend(arguments.iter().map(|&word| word.to_owned()));
        Ok(words)
    }

    /// Executes it from this test, which the agent does not know as a runtime.
    fn execute(&self, id: &str, through: &[String], arguments: &[&str], input: Stdio) -> Result<()> {
        let mut words = through.to_owned();
        words.extend(self.words(&Environment::of_add(id), arguments)?);
        let mut command = Command::new(&words[0]);
        // The program is an actor without a role, which prints an error and fails.
        let status = command.args(&words[1..]).stdin(input).stderr(Stdio::null()).status()?;
        ensure!(status.code().is_some(), "{words:?} ended with {status}");
        Ok(())
    }
}

#[test]
fn a_call_is_known_by_its_form_wherever_it_runs() -> Result<()> {
    let reported = [(); 4].map(|()| new_id()).into_iter().collect::<Result<Vec<_>>>()?;
    let unreported = [(); 3].map(|()| new_id()).into_iter().collect::<Result<Vec<_>>>()?;
    let seen = observe(|live, _| {
        let container = Container::create(live.hierarchy())?;
        let inside = container.enter()?;
        let (program, script) = (Unknown::new()?, Unknown::script()?);
        let file = || -> Result<Stdio> { Ok(File::open(std::env::current_exe()?)?.into()) };
        program.execute(&reported[0], &inside, &[], Stdio::piped())?;
        program.execute(&reported[1], &[], &[], Stdio::piped())?;
        program.execute(&reported[2], &inside, &[], file()?)?;
        script.execute(&reported[3], &inside, &[], Stdio::piped())?;
        // One without a configuration on its input, one with arguments, and a script with more arguments than
        // its interpreter line.
        program.execute(&unreported[0], &inside, &[], Stdio::null())?;
        program.execute(&unreported[1], &inside, &["exit"], Stdio::piped())?;
        script.execute(&unreported[2], &inside, &["one", "two", "three"], Stdio::piped())
    })?;
    for (i, id) in reported.iter().enumerate() {
        let (origin, reported) = call(&seen, id).with_context(|| format!("call {i} is not reported"))?;
        ensure!(!reported.host && origin == Origin::Delegated, "{reported:?}");
    }
    for (i, id) in unreported.iter().enumerate() {
        ensure!(call(&seen, id).is_none(), "an exec that is no call is reported: {i}");
    }
    Ok(())
}

#[test]
fn while_a_runtimes_call_is_open_any_exec_may_be_its_delegate() -> Result<()> {
    let [of_runtime, before, meanwhile, after] = [new_id()?, new_id()?, new_id()?, new_id()?];
    let exit = ["exit", &STATUS.to_string()];
    let seen = observe(|live, runtime| {
        let container = Container::create(live.hierarchy())?;
        let inside = container.enter()?;
        let program = Unknown::new()?;
        program.execute(&before, &inside, &exit, Stdio::null())?;
        let mut plugin_does = vec!["run".to_owned()];
        plugin_does.extend(inside.iter().cloned());
        plugin_does.extend(program.words(&Environment::of_add(&meanwhile), &exit)?);
        runtime.call_to(&Environment::of_add(&of_runtime), &[], &plugin_does)?;
        program.execute(&after, &inside, &exit, Stdio::null())
    })?;
    for (id, is_host) in [(&of_runtime, true), (&meanwhile, false)] {
        let (_, reported) = call(&seen, id).context("a call is not reported")?;
        ensure!(reported.host == is_host, "{reported:?}");
    }
    ensure!(
        call(&seen, &before).is_none() && call(&seen, &after).is_none(),
        "an exec that is no call is reported"
    );
    Ok(())
}
