//! A line of a repair. `{name}` stands for a part of the words, a member of the finding, or one
//! that the node gives.

use super::pattern::is_name;

/// The names that the node and the finding give.
pub(super) const OWN: [&str; 9] =
    ["crictl", "journal", "kubelet_dir", "conf_dir", "bin_dirs", "node", "namespace", "pod", "sandbox"];
/// The members of findings that repairs name.
pub(super) const MEMBERS: [&str; 3] = ["cache_file", "path", "id"];
pub(super) enum Token<'a> {
    Text(&'a str),
    Name(&'a str),
}

/// Takes a line apart. `{{` and `}}` are braces. `None`: a brace has no partner.
pub(super) fn tokens(line: &str) -> Option<Vec<Token<'_>>> {
    let mut tokens = Vec::new();
    let mut rest = line;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, brace) = rest.split_at(at);
        tokens.push(Token::Text(before));
        if brace.starts_with("{{") || brace.starts_with("}}") {
            tokens.push(Token::Text(&brace[..1]));
            rest = &brace[2..];
        } else {
            let (name, after) = brace.strip_prefix('{')?.split_once('}')?;
            if !is_name(name) {
                return None;
            }
            tokens.push(Token::Name(name));
            rest = after;
        }
    }
    tokens.push(Token::Text(rest));
    Some(tokens)
}

/// Returns the names in a line.
pub(super) fn names(line: &str) -> impl Iterator<Item = &str> {
    tokens(line).into_iter().flatten().filter_map(|token| match token {
        Token::Name(name) => Some(name),
        Token::Text(_) => None,
    })
}

/// Returns the first name that stands between quotes of the shell or behind a backslash. A value is quoted
/// itself, so there it would end the quotes.
pub(super) fn quoted_name(line: &str) -> Option<&str> {
    let mut quote = None;
    let mut is_escaped = false;
    for token in tokens(line)? {
        match token {
            Token::Name(name) if quote.is_some() || is_escaped => return Some(name),
            Token::Name(_) => {}
            Token::Text(text) => {
                for letter in text.chars() {
                    if is_escaped {
                        is_escaped = false;
                    } else if letter == '\\' && quote != Some('\'') {
                        is_escaped = true;
                    } else if quote == Some(letter) {
                        quote = None;
                    } else if quote.is_none() && ['\'', '"', '`'].contains(&letter) {
                        quote = Some(letter);
                    }
                }
            }
        }
    }
    None
}

/// Writes a line as it is run: with single braces.
#[must_use]
pub fn plain(line: &str) -> String {
    line.replace("{{", "{").replace("}}", "}")
}

#[cfg(test)]
mod tests {
    use super::{MEMBERS, OWN};

    #[test]
    fn the_page_has_every_name() {
        let page = include_str!("../../../docs/known.md");
        for name in OWN.iter().chain(&MEMBERS) {
            assert!(page.contains(&format!("`{{{name}}}`")), "docs/known.md lacks {name}");
        }
    }
}
