//! Checks of GitHub's workflows and issue forms that zizmor does not have: each job has its own time limit
//! and rights, only xtask builds anything, and forms have the parts that GitHub needs.

use std::{collections::BTreeSet, fs};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::render;

/// Returns the files of a folder below `.github`, by name.
fn files(folder: &str) -> Result<Vec<(String, Value)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(render::root().join(".github").join(folder))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let value = serde_yaml_ng::from_str(&fs::read_to_string(&path)?).with_context(|| name.clone())?;
        all.push((name, value));
    }
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(all)
}

fn steps(job: &Value) -> impl Iterator<Item = &Value> {
    job["steps"].as_array().into_iter().flatten()
}

/// Returns all jobs, named by their workflow and their own name.
fn jobs() -> Result<Vec<(String, Value)>> {
    let mut all = Vec::new();
    for (name, workflow) in files("workflows")? {
        ensure!(workflow["permissions"] == serde_json::json!({}), "{name} gives rights to all jobs");
        let jobs = workflow["jobs"].as_object().with_context(|| format!("{name} has no jobs"))?;
        all.extend(jobs.iter().map(|(job, value)| (format!("{name} {job}"), value.clone())));
    }
    ensure!(all.len() > 5, "there are only {} jobs", all.len());
    Ok(all)
}

#[test]
fn each_job_has_its_limit_and_its_rights() -> Result<()> {
    for (name, job) in jobs()? {
        ensure!(job["permissions"].is_object(), "{name} has no permissions of its own");
        ensure!(job["uses"].is_string() || job["timeout-minutes"].is_u64(), "{name} has no limit");
    }
    Ok(())
}

/// Each action is named by its commit, which nobody can move, with its version in a comment.
#[test]
fn actions_are_pinned_to_commits() -> Result<()> {
    let mut pinned = BTreeSet::new();
    for (_, job) in jobs()? {
        for used in steps(&job).filter_map(|step| step["uses"].as_str()) {
            let (action, commit) = used.split_once('@').with_context(|| used.to_owned())?;
            let is_commit = commit.len() == 40 && commit.chars().all(|it| it.is_ascii_hexdigit());
            ensure!(is_commit, "{used} is not pinned to a commit");
            pinned.insert((action.to_owned(), used.to_owned()));
        }
    }
    let actions: BTreeSet<&str> = pinned.iter().map(|(action, _)| action.as_str()).collect();
    ensure!(actions.len() == pinned.len(), "an action is used in two versions: {pinned:#?}");
    Ok(())
}

/// So a developer's machine makes the same files.
#[test]
fn everything_is_built_by_xtask() -> Result<()> {
    let mut verbs = BTreeSet::new();
    for (name, job) in jobs()? {
        for script in steps(&job).filter_map(|step| step["run"].as_str()) {
            for line in script.lines().map(str::trim).filter(|line| line.contains("cargo ")) {
                let is_told = line.contains("cargo pkgid ");
                ensure!(is_told || line.starts_with("cargo xtask "), "{name} runs {line:?}");
                verbs.extend(
                    line.strip_prefix("cargo xtask ")
                        .and_then(|line| line.split(' ').next())
                        .map(str::to_owned),
                );
            }
        }
    }
    ensure!(verbs == ["build", "dist", "setup", "test"].map(str::to_owned).into(), "{verbs:?}");
    Ok(())
}

#[test]
fn only_a_tag_of_a_version_releases() -> Result<()> {
    let all = files("workflows")?;
    let (_, release) = all.iter().find(|(name, _)| name == "release.yml").context("no release.yml")?;
    ensure!(release["on"] == serde_json::json!({ "push": { "tags": ["v*"] } }), "{}", release["on"]);
    let tag = &release["jobs"]["build"]["with"]["tag"];
    ensure!(tag == "${{ github.ref_name }}", "dist does not get the tag, but {tag}");
    ensure!(release["jobs"]["build"]["needs"] == "test", "files are made of what was not tested");
    let may_write = |job: &Value, what: &str| job["permissions"][what] == "write";
    let jobs = release["jobs"].as_object().context("no jobs")?;
    let writers: Vec<_> =
        jobs.iter().filter(|(_, job)| may_write(job, "contents")).map(|(name, _)| name).collect();
    ensure!(writers == ["files"], "these may change the repository: {writers:?}");
    Ok(())
}

/// The address does not contain this repository's name, so that it is right in a fork too.
#[test]
fn who_reports_a_weakness_is_led_away_from_issues() -> Result<()> {
    let all = files("ISSUE_TEMPLATE")?;
    let (_, config) = all.iter().find(|(name, _)| name == "config.yml").context("no config.yml")?;
    let links = config["contact_links"].as_array().context("config.yml has no links")?;
    let leads = |link: &Value| {
        let part = |name: &str| link[name].as_str().unwrap_or_default().to_owned();
        let named = part("about").contains("SECURITY.md") && part("about").contains("Report a vulnerability");
        named && !part("name").is_empty() && part("url").starts_with("https://docs.github.com/")
    };
    ensure!(links.iter().any(leads), "none of {links:?} leads to what SECURITY.md says");
    let policy = fs::read_to_string(render::root().join("SECURITY.md"))?;
    ensure!(policy.contains("**Report a vulnerability**"), "SECURITY.md names another way");
    Ok(())
}

#[test]
fn issue_forms_have_what_github_needs() -> Result<()> {
    let mut asked = Vec::new();
    for (name, form) in files("ISSUE_TEMPLATE")? {
        if name == "config.yml" {
            continue;
        }
        for part in ["name", "description"] {
            ensure!(form[part].as_str().is_some_and(|text| !text.is_empty()), "{name} has no {part}");
        }
        let fields = form["body"].as_array().with_context(|| format!("{name} has no body"))?;
        let mut ids = BTreeSet::new();
        for field in fields.iter().filter(|field| field["type"] != "markdown") {
            let kind = field["type"].as_str().unwrap_or_default();
            ensure!(["textarea", "input", "dropdown"].contains(&kind), "{name}: {kind} is no field");
            ensure!(field["attributes"]["label"].is_string(), "{name}: {field} has no label");
            let id = field["id"].as_str().with_context(|| format!("{name}: {field} has no id"))?;
            ensure!(ids.insert(id), "{name}: {id} is there twice");
        }
        asked.push((name, ids.contains("doctor"), ids.contains("recording")));
    }
    let asked: Vec<_> =
        asked.iter().map(|(name, doctor, recording)| (&**name, *doctor, *recording)).collect();
    ensure!(
        asked == [("bug.yml", true, true), ("feature.yml", false, false), ("finding.yml", true, true)],
        "{asked:?}"
    );
    Ok(())
}
