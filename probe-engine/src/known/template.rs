//! A line of a repair. `{name}` stands for a part of the words, a member of the finding, or a word of the
//! node.

use super::pattern::is_name;

/// The words of the node.
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
