//! The lines about modules: fields apart by tabs, the first saying what the line is.

use super::{GoBuild, Module, linked, plain};

pub(super) fn parse(lines: &str) -> GoBuild {
    let mut build = GoBuild::default();
    // Whether a line that replaces a module is about the main one.
    let mut is_main = false;
    for line in lines.lines() {
        let mut fields = line.split('\t');
        let (kind, first) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        let given = fields.next().and_then(version);
        match kind {
            "path" => build.package = plain(first),
            "mod" => {
                build.module = plain(first).map(|path| Module { path, version: given });
                is_main = true;
            }
            "dep" => is_main = false,
            "=>" if is_main => {
                if let Some(module) = &mut build.module {
                    module.version = given;
                }
            }
            "build" => {
                if let Some((_, value)) = setting(line).filter(|(key, _)| key == "-ldflags") {
                    build.linked = linked::strings(&value);
                }
            }
            // Other modules, and what a later Go adds.
            _ => {}
        }
    }
    build
}

/// A module in a working tree has none.
fn version(text: &str) -> Option<String> {
    plain(text).filter(|text| text != "(devel)")
}

/// `build\tKEY=VALUE`, each quoted as in Go's source where it must be.
fn setting(line: &str) -> Option<(String, String)> {
    let text = line.strip_prefix("build\t")?;
    let (key, value) = match quoted(text) {
        Some((key, rest)) => (key, rest.strip_prefix('=')?),
        None => text.split_once('=').map(|(key, value)| (key.to_owned(), value))?,
    };
    let is_quoted = value.starts_with(['"', '`']);
    Some((key, if is_quoted { quoted(value)?.0 } else { value.to_owned() }))
}

/// A string in quotes, and what follows it. What `strconv.Quote` has no letter for stays away from flags and versions.
fn quoted(text: &str) -> Option<(String, &str)> {
    if let Some(raw) = text.strip_prefix('`') {
        return raw.split_once('`').map(|(word, rest)| (word.to_owned(), rest));
    }
    let text = text.strip_prefix('"')?;
    let mut word = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((word, &text[at + 1..])),
            '\\' => word.push(match chars.next()?.1 {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                c @ ('"' | '\\' | '\'') => c,
                _ => return None,
            }),
            c => word.push(c),
        }
    }
    None
}
