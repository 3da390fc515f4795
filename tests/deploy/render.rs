//! Calls the real helm and kubectl, which `cargo xtask test` fetches.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize as _;
use serde_json::Value;
use tests::command;

/// The Kubernetes version to render for, in place of helm's default.
const KUBERNETES: &str = "1.33.0";

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

pub(crate) fn chart() -> PathBuf {
    root().join("deploy/helm/sandprobe")
}

/// Returns the path of a tool: where `cargo xtask test` put it, or else its name for the PATH.
fn tool(name: &str) -> String {
    let tools = env::var_os("SANDPROBE_TOOLS").map(PathBuf::from);
    let tools = tools.unwrap_or_else(|| root().join("target/tools/helm-4.3.1"));
    let fetched = tools.join(name);
    if fetched.exists() { fetched.display().to_string() } else { name.to_owned() }
}

pub(crate) fn helm(arguments: &[&str]) -> Result<String> {
    command::output(&tool("helm"), arguments).context("cargo xtask test --fast fetches helm")
}

/// Returns the text of everything that the chart renders with these `--set` arguments, without what Helm runs
/// at an uninstall.
pub(crate) fn template(sets: &[&str]) -> Result<String> {
    template_for(KUBERNETES, sets)
}

pub(crate) fn template_for(kubernetes: &str, sets: &[&str]) -> Result<String> {
    render(kubernetes, sets, &["--no-hooks"])
}

/// Returns the text of everything that the chart renders, with what Helm runs at an uninstall.
pub(crate) fn with_hooks(sets: &[&str]) -> Result<String> {
    render(KUBERNETES, sets, &[])
}

/// Returns the objects that Helm makes at an uninstall.
pub(crate) fn at_uninstall(sets: &[&str]) -> Result<Vec<Value>> {
    let mut all = objects(&with_hooks(sets)?)?;
    all.retain(|object| object["metadata"]["annotations"]["helm.sh/hook"] == "post-delete");
    Ok(all)
}

fn render(kubernetes: &str, sets: &[&str], more: &[&str]) -> Result<String> {
    let chart = chart().display().to_string();
    let mut arguments = vec!["template", "sandprobe", &chart, "--namespace", "sandprobe"];
    arguments.extend(["--kube-version", kubernetes]);
    arguments.extend(sets.iter().flat_map(|set| ["--set", *set]));
    arguments.extend(more);
    helm(&arguments)
}

/// Returns the objects of a YAML text with several documents.
pub(crate) fn objects(yaml: &str) -> Result<Vec<Value>> {
    let documents = serde_yaml_ng::Deserializer::from_str(yaml);
    let objects = documents.map(|document| Ok(Value::deserialize(document)?));
    let objects: Vec<Value> = objects.collect::<Result<_>>().context("the rendered text is not YAML")?;
    Ok(objects.into_iter().filter(|object| !object.is_null()).collect())
}

pub(crate) fn rendered(sets: &[&str]) -> Result<Vec<Value>> {
    objects(&template(sets)?)
}

/// Returns the only object of a kind.
pub(crate) fn only<'a>(objects: &'a [Value], kind: &str) -> Result<&'a Value> {
    let found: Vec<_> = objects.iter().filter(|object| object["kind"] == kind).collect();
    match found[..] {
        [only] => Ok(only),
        _ => bail!("{} objects of kind {kind}", found.len()),
    }
}

pub(crate) fn kustomize(folder: &str) -> Result<String> {
    let folder = root().join(folder).display().to_string();
    command::output(&tool("kubectl"), &["kustomize", &folder])
        .context("cargo xtask test --fast fetches kubectl")
}

/// Copies the files of a folder, without those of folders in it.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        if path.is_file() {
            fs::copy(&path, to.join(path.file_name().context("a name")?))?;
        }
    }
    Ok(())
}
