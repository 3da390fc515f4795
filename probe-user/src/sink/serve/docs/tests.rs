//! Every runbook and page of findings is served, and each link in them leads to a page.

use std::{collections::BTreeSet, fs, path::Path};

use strum::VariantNames as _;

use super::{DOCS, made::PAGES, response, within};
use crate::{model::finding::Kind, sink::serve::reply::Reply};

fn html(path: &str) -> String {
    let response = response(path).unwrap_or_else(|error| panic!("{path}: {error:?}"));
    assert_eq!(response.headers()["content-type"], "text/html; charset=utf-8");
    let Reply::Whole(body) = response.into_body() else { panic!("{path} is a stream") };
    String::from_utf8(body.into_bytes().to_vec()).expect("text")
}

fn paths() -> BTreeSet<String> {
    PAGES.iter().map(|page| format!("{DOCS}/{}", page.path)).collect()
}

#[test]
fn every_runbook_and_every_kind_of_finding_has_its_page() {
    let paths = paths();
    for kind in Kind::VARIANTS {
        assert!(paths.contains(&format!("/docs/findings/{kind}.md")), "{kind}");
    }
    let runbooks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/runbooks");
    for entry in fs::read_dir(runbooks).expect("the runbooks") {
        let name = entry.expect("an entry").file_name().into_string().expect("text");
        let page = html(&format!("/docs/runbooks/{name}"));
        let title = name.trim_end_matches(".md");
        assert!(page.contains(&format!("<h1>{title}</h1>")) && page.ends_with("</html>\n"), "{page}");
        assert!(page.contains("$ kubectl "), "{page}");
    }
    assert_eq!(html("/docs"), html("/docs/"));
    assert!(html("/docs/findings.md").contains("<table>"));
}

#[test]
fn each_link_leads_to_a_page_that_is_served() {
    let paths = paths();
    for path in &paths {
        let page = html(path);
        assert!(!page.contains("<!--") && !page.contains("<script"), "{path}");
        for link in page.split(" href=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            if link.starts_with("https://")
                || link.starts_with('#')
                || ["data:,", "/", "/style.css"].contains(&link)
            {
                continue;
            }
            let mut parts: Vec<&str> = path.split('/').collect();
            parts.pop();
            if link.starts_with('/') {
                parts.clear();
            }
            for part in link.split('#').next().unwrap_or_default().split('/') {
                match part {
                    ".." => drop(parts.pop()),
                    part => parts.push(part),
                }
            }
            assert!(paths.contains(&parts.join("/")), "{path} has a link to {link}");
        }
    }
}

#[test]
fn nothing_else_is_served() {
    for path in
        ["/docs/none.md", "/docs/../README.md", "/docs/findings/", "/docs//", "/docs/findings/leaked_address"]
    {
        assert!(response(path).is_err(), "{path}");
    }
    assert_eq!(within("/docsx"), None);
    assert_eq!(within("/docs/a/b"), Some("a/b"));
}
