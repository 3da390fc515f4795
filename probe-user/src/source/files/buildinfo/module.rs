//! Parses the lines about modules: the fields are separated by tabs, and the first field is the kind of the
//! line.

use super::{GoBuild, Module, linked, plain};

pub(super) fn parse(lines: &str) -> GoBuild {
    let mut build = GoBuild::default();
    // A replacement line (`=>`) is now about the main module.
    let mut is_main = false;
    for line in lines.lines() {
        let mut fields = line.split('\t');
        let kind = fields.next().unwrap_or_default();
        let first = fields.next().unwrap_or_default();
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
            // Other modules, and kinds of a later Go.
            _ => {}
        }
    }
    build
}

/// Parses a version. A module in a working tree has none.
fn version(text: &str) -> Option<String> {
    plain(text).filter(|text| text != "(devel)")
}

/// Parses `build\tKEY=VALUE`. Both may be quoted as in Go's source.
fn setting(line: &str) -> Option<(String, String)> {
    let text = line.strip_prefix("build\t")?;
    let (key, value) = match quoted(text) {
        Some((key, rest)) => (key, rest.strip_prefix('=')?),
        None => text.split_once('=').map(|(key, value)| (key.to_owned(), value))?,
    };
    let is_quoted = value.starts_with(['"', '`']);
    Some((key, if is_quoted { quoted(value)?.0 } else { value.to_owned() }))
}

/// Parses a quoted string. Returns it and the text after it. Escapes by number are not read: flags and
/// versions do not have them.
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
