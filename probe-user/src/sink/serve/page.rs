//! The live page's files, which are built into the program.
//!
//! **Invariant:** the files have no data of the node, so they need no token.

/// A file, and its content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct File {
    pub(super) kind: &'static str,
    pub(super) bytes: &'static [u8],
}

const INDEX: File = File { kind: "text/html; charset=utf-8", bytes: include_bytes!("page/index.html") };
/// The style sheet of the pictures and that of the live page, so that both look alike.
const STYLE: File = File {
    kind: "text/css; charset=utf-8",
    bytes: concat!(include_str!("../render/page/style.css"), include_str!("page/style.css")).as_bytes(),
};

const fn script(bytes: &'static [u8]) -> File {
    File { kind: "text/javascript; charset=utf-8", bytes }
}

/// Each file by its path.
pub(super) const FILES: [(&str, File); 15] = [
    ("/", INDEX),
    ("/index.html", INDEX),
    ("/style.css", STYLE),
    ("/app.js", script(include_bytes!("page/app.js"))),
    ("/boots.js", script(include_bytes!("page/boots.js"))),
    ("/dom.js", script(include_bytes!("page/dom.js"))),
    ("/events.js", script(include_bytes!("page/events.js"))),
    ("/feed.js", script(include_bytes!("page/feed.js"))),
    ("/findings.js", script(include_bytes!("page/findings.js"))),
    ("/health.js", script(include_bytes!("page/health.js"))),
    ("/pods.js", script(include_bytes!("page/pods.js"))),
    ("/pools.js", script(include_bytes!("page/pools.js"))),
    ("/server.js", script(include_bytes!("page/server.js"))),
    ("/waterfall.js", script(include_bytes!("page/waterfall.js"))),
    ("/words.js", script(include_bytes!("page/words.js"))),
];

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::FILES;

    #[test]
    fn every_file_of_the_page_is_served() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sink/serve/page");
        for entry in fs::read_dir(folder).expect("the page's folder") {
            let path = format!("/{}", entry.expect("an entry").file_name().to_string_lossy());
            assert!(FILES.iter().any(|(known, _)| *known == path), "{path} is not");
        }
    }

    /// The scripts never make markup from text, and request nothing from another site.
    #[test]
    fn no_script_makes_markup_of_text() {
        const WORDS: [&str; 12] = [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "createContextualFragment",
            "setHTML",
            "document.write",
            "DOMParser",
            "eval(",
            "Function(",
            ".style",
            "localStorage",
            "sessionStorage",
        ];
        const NAMESPACE: &str = "http://www.w3.org/2000/svg";
        for (path, file) in FILES {
            let text = String::from_utf8_lossy(file.bytes);
            for word in WORDS {
                assert!(!text.contains(word), "{path} has {word}");
            }
            assert!(!text.replace(NAMESPACE, "").contains("://"), "{path} names another site");
        }
    }
}
