//! Renders the pages of the documentation that the agent serves, and packs them.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd, html};

/// Relative to the documentation: what alerts and findings link to.
const FOLDERS: [&str; 2] = ["runbooks", "findings"];
const PAGES: [&str; 1] = ["findings.md"];

/// A page as it is served.
struct Page {
    /// Relative to the documentation; empty for the list of all pages.
    path: String,
    title: String,
    html: String,
}

/// Writes the pages as `docs.lz4` to `out`, and where each is in it as `docs.rs`.
pub(super) fn build(docs: &Path, out: &Path) -> Result<(), String> {
    for watched in FOLDERS.iter().chain(&PAGES) {
        println!("cargo::rerun-if-changed={}", docs.join(watched).display());
    }
    let paths = paths(docs).map_err(|error| format!("cannot list {}: {error}", docs.display()))?;
    let mut pages = Vec::new();
    for path in &paths {
        let file = docs.join(path);
        let text =
            fs::read_to_string(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        pages.push(page(path, &text, &paths));
    }
    pages.insert(0, contents(&pages));
    let mut whole = String::new();
    let mut table = format!("pub(super) const PAGES: [Page; {}] = [\n", pages.len());
    for Page { path, title, html } in &pages {
        let begin = whole.len();
        whole.push_str(html);
        let end = whole.len();
        writeln!(table, "    Page {{ path: {path:?}, title: {title:?}, begin: {begin}, end: {end} }},")
            .map_err(|error| error.to_string())?;
    }
    write!(table, "];\npub(super) const SIZE: usize = {};\n", whole.len())
        .map_err(|error| error.to_string())?;
    let packed = lz4_flex::block::compress(whole.as_bytes());
    for (name, bytes) in [("docs.rs", table.as_bytes()), ("docs.lz4", &packed)] {
        let to = out.join(name);
        fs::write(&to, bytes).map_err(|error| format!("cannot write {}: {error}", to.display()))?;
    }
    Ok(())
}

fn paths(docs: &Path) -> io::Result<BTreeSet<String>> {
    let mut paths: BTreeSet<String> = PAGES.map(str::to_owned).into();
    for folder in FOLDERS {
        for entry in fs::read_dir(docs.join(folder))? {
            let name = entry?.file_name();
            paths.extend(name.to_str().filter(|it| it.ends_with(".md")).map(|it| format!("{folder}/{it}")));
        }
    }
    Ok(paths)
}

fn page(path: &str, text: &str, paths: &BTreeSet<String>) -> Page {
    let mut dead = Vec::new();
    let events = Parser::new_ext(text, Options::ENABLE_TABLES).filter(|event| match event {
        // A link to a page that is not served becomes its text.
        Event::Start(Tag::Link { dest_url, .. }) => {
            let is_dead = !leads_somewhere(path, dest_url, paths);
            dead.push(is_dead);
            !is_dead
        }
        Event::End(TagEnd::Link) => !dead.pop().unwrap_or_default(),
        // Comments are for the tests.
        Event::Html(it) | Event::InlineHtml(it) => !it.starts_with("<!--"),
        _ => true,
    });
    let mut html = String::new();
    html::push_html(&mut html, events);
    let title = text.lines().next().unwrap_or_default().trim_start_matches("# ").to_owned();
    Page { path: path.to_owned(), title, html }
}

fn leads_somewhere(from: &str, link: &str, paths: &BTreeSet<String>) -> bool {
    if link.starts_with("https://") || link.starts_with('#') {
        return true;
    }
    let mut at = PathBuf::from(from);
    at.pop();
    let file = link.split('#').next().unwrap_or_default();
    for part in file.split('/') {
        match part {
            ".." => drop(at.pop()),
            part => at.push(part),
        }
    }
    at.to_str().is_some_and(|path| paths.contains(path))
}

fn contents(pages: &[Page]) -> Page {
    let mut html = "<h1>Documentation</h1>\n".to_owned();
    let (runbooks, others): (Vec<&Page>, Vec<&Page>) =
        pages.iter().partition(|page| page.path.starts_with("runbooks/"));
    list("Runbooks of alerts", &runbooks, &mut html);
    list("Findings", &others, &mut html);
    Page { path: String::new(), title: "Documentation".to_owned(), html }
}

fn list(heading: &str, pages: &[&Page], html: &mut String) {
    html.push_str(&format!("<h2>{heading}</h2>\n<ul>\n"));
    for Page { path, title, .. } in pages {
        html.push_str(&format!("<li><a href=\"/docs/{path}\">{title}</a></li>\n"));
    }
    html.push_str("</ul>\n");
}
