//! The chart's values. The schema refuses wrong ones, and the README has each with its default and purpose.

use std::fs;

use anyhow::{Result, ensure};
use tests::golden;

use crate::render;

#[test]
fn a_mistyped_value_is_refused() -> Result<()> {
    let wrong = [
        "hostnetwork=true",
        "server.mode=open",
        "server.tokn=x",
        "server.metricLabels={uid}",
        "server.port=0",
        "capabilities={cap_bpf}",
        "hostPaths={etc}",
        "image.digest=latest",
        "podMonitor.interval=often",
        "logFile.path=events.json",
        "logFile.path=/events.json",
        "logFile.size=10MB",
        "kubernetes.ipam=whereabouts",
        "otlp.endpoint=collector:4317",
        "otlp.endpoint=http://user:password@collector",
        "otlp.protocol=http/json",
        "otlp.signals={metrics}",
        "otlp.headers=x",
    ];
    for set in wrong {
        ensure!(render::template(&[set]).is_err(), "{set} was accepted");
    }
    Ok(())
}

/// A value with the comment above it and its default as in the file.
struct Row {
    path: String,
    default: String,
    comment: String,
}

/// Returns the values of the chart's own file. Its form is simple: two levels of values, and everything below
/// belongs to a default.
fn rows(yaml: &str) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    let mut section: Option<(&str, String)> = None;
    for line in yaml.lines() {
        let (bare, inside) = (line.trim(), line.starts_with("  "));
        if let Some(text) = bare.strip_prefix('#') {
            comment.push(text.trim());
        } else if bare.is_empty() {
            comment.clear();
        } else if let Some((key, value)) = bare.split_once(':').filter(|(key, _)| !key.starts_with("- ")) {
            let (value, above) = (value.trim(), comment.join(" "));
            comment.clear();
            match (&section, inside) {
                (Some((name, about)), true) if line.starts_with("  ") && !line.starts_with("   ") => {
                    let comment = if above.is_empty() { about.clone() } else { above };
                    rows.push(Row { path: format!("{name}.{key}"), default: value.to_owned(), comment });
                    section = Some((name, String::new()));
                }
                (_, true) => {}
                (_, false) if value.is_empty() => section = Some((key, above)),
                (_, false) => {
                    section = None;
                    rows.push(Row { path: key.to_owned(), default: value.to_owned(), comment: above });
                }
            }
        }
    }
    rows
}

#[test]
fn the_readme_has_every_value() -> Result<()> {
    const MARK: &str = "<!-- values -->\n";
    let file = render::chart().join("README.md");
    let readme = fs::read_to_string(&file)?;
    let top = readme.split(MARK).next().unwrap_or_default();
    let mut text = format!("{top}{MARK}| value | default | |\n|---|---|---|\n");
    for Row { path, default, comment } in rows(&fs::read_to_string(render::chart().join("values.yaml"))?) {
        let default = if default.is_empty() { "see values.yaml".to_owned() } else { format!("`{default}`") };
        text += &format!("| `{path}` | {default} | {} |\n", comment.replace('|', "\\|"));
    }
    golden::expect(&file, &text);
    Ok(())
}
