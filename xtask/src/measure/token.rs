//! Counts over tokens, so that the contents of macros count too.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeSet;

/// Counts the lines with code: not blank, no comment, no documentation.
pub(super) fn lines(tokens: &TokenStream) -> usize {
    let mut lines = BTreeSet::new();
    add_lines(tokens.clone(), &mut lines);
    lines.len()
}

fn add_lines(tokens: TokenStream, lines: &mut BTreeSet<usize>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        // A documentation comment is an attribute here: `#`, `!` for an inner one, and a group.
        let mut rest = tokens[at..].iter().skip_while(|it| is_sign(it));
        if rest.next().is_some_and(is_documentation) {
            continue;
        }
        match token {
            TokenTree::Group(group) => {
                if group.delimiter() != Delimiter::None {
                    lines.extend([group.span_open().start().line, group.span_close().end().line]);
                }
                add_lines(group.stream(), lines);
            }
            // A string may have many lines.
            other => lines.extend(other.span().start().line..=other.span().end().line),
        }
    }
}

fn is_sign(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(it) if matches!(it.as_char(), '#' | '!'))
}

/// `[doc = "…"]`
fn is_documentation(token: &TokenTree) -> bool {
    let TokenTree::Group(group) = token else { return false };
    let first = group.stream().into_iter().next();
    group.delimiter() == Delimiter::Bracket && matches!(first, Some(TokenTree::Ident(name)) if name == "doc")
}

/// Counts the `cfg`, `cfg!` and `cfg_attr` that name a feature.
pub(super) fn features(tokens: TokenStream) -> usize {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut count = 0;
    for (at, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else { continue };
        let before = tokens[..at].iter().rev().find(|it| !matches!(it, TokenTree::Punct(_)));
        let is_cfg = matches!(before, Some(TokenTree::Ident(name)) if name == "cfg" || name == "cfg_attr");
        count += usize::from(is_cfg && has_ident(group.stream(), "feature")) + features(group.stream());
    }
    count
}

fn has_ident(tokens: TokenStream, name: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == name,
        TokenTree::Group(group) => has_ident(group.stream(), name),
        _ => false,
    })
}

/// Finds paths of at least two names, `a::b::C`, anywhere.
pub(super) fn paths(tokens: TokenStream, found: &mut Vec<Vec<String>>) {
    let mut path: Vec<String> = Vec::new();
    let mut colons = 0;
    let mut end = |path: &mut Vec<String>| {
        if path.len() > 1 {
            found.push(std::mem::take(path));
        }
        path.clear();
    };
    let mut groups = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
            TokenTree::Ident(ident) => {
                if colons != 2 {
                    end(&mut path);
                }
                path.push(ident.to_string());
                colons = 0;
            }
            other => {
                end(&mut path);
                colons = 0;
                if let TokenTree::Group(group) = other {
                    groups.push(group);
                }
            }
        }
    }
    end(&mut path);
    for group in groups {
        paths(group.stream(), found);
    }
}

#[cfg(test)]
mod tests {
    use super::{features, lines, paths};
    use proc_macro2::TokenStream;

    fn tokens(text: &str) -> TokenStream {
        text.parse().unwrap()
    }

    #[test]
    fn lines_are_those_with_code() {
        let text = "//! Why.\n\n/// What.\n#[inline]\nfn f() {\n    // How.\n    g(\"a\n  b\");\n\n}\n";
        // The attribute, the function's first and last line, and two lines of the string.
        assert_eq!(lines(&tokens(text)), 5);
        assert_eq!(lines(&tokens("m! {\n    /// What.\n    A,\n}\n")), 3);
    }

    #[test]
    fn features_are_counted_where_they_are_asked_for() {
        let text = "#[cfg(feature = \"a\")] mod m; #[cfg(unix)] mod n;
            fn f() { if cfg!(all(unix, not(feature = \"b\"))) {} }
            #[cfg_attr(feature = \"c\", derive(D))] struct S; fn feature(cfg: u8) {}";
        assert_eq!(features(tokens(text)), 3);
    }

    #[test]
    fn paths_are_found_in_macros_too() {
        let mut found = Vec::new();
        paths(tokens("fn f(a: u8) { m!(\"\", crate::a::b(super::c)); D::<e::F>::g }"), &mut found);
        let mut found: Vec<_> = found.iter().map(|path| path.join("::")).collect();
        found.sort();
        assert_eq!(found, ["crate::a::b", "e::F", "super::c"]);
    }
}
