//! The documentation pages that alerts and findings link to. They are rendered when the program is built, and
//! are compressed in it, because the program would otherwise be larger by the size of all pages.
//!
//! **Invariant:** the pages have no data of the node, so they need no token.

use http::{Response, StatusCode};

use super::reply::{ApiError, Reply, whole};

/// A page, and its place in the decompressed text of all pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Page {
    /// The path after `/docs/`; empty for the list of all pages.
    path: &'static str,
    title: &'static str,
    begin: usize,
    end: usize,
}

mod made {
    use super::Page;

    include!(concat!(env!("OUT_DIR"), "/docs.rs"));
}

const PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/docs.lz4"));
const HTML: &str = "text/html; charset=utf-8";
pub(super) const DOCS: &str = "/docs";

/// The part of the path after `/docs/`; `None` for another path.
pub(super) fn within(path: &str) -> Option<&str> {
    let rest = path.strip_prefix(DOCS)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}

/// The page at this path.
pub(super) fn response(path: &str) -> Result<Response<Reply>, ApiError> {
    let wanted = within(path).ok_or(ApiError::NotFound)?;
    let page = made::PAGES.iter().find(|page| page.path == wanted).ok_or(ApiError::NotFound)?;
    let unpacked = lz4_flex::block::decompress(PACKED, made::SIZE).unwrap_or_default();
    let body = unpacked.get(page.begin..page.end).unwrap_or_default();
    let head = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{} - sandprobe</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n<link rel=\"stylesheet\" href=\"/style.css\">\n</head>\n\
         <body class=\"doc\">\n<nav><a href=\"/\">This node</a> <a href=\"/docs/\">Documentation</a></nav>\n<main>\n",
        page.title
    );
    let html = [head.as_bytes(), body, b"</main>\n</body>\n</html>\n"].concat();
    Ok(whole(StatusCode::OK, HTML, html))
}

#[cfg(test)]
mod tests;
