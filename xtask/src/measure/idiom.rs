//! Counts idioms that docs/style.md advises against, over tokens, so that the contents of macros count too.

use super::Module;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

pub(crate) struct Idiom {
    pub(crate) title: &'static str,
    /// The highest count for 1,000 lines of code among the projects that docs/style.md names.
    pub(super) anchor: f64,
    /// Whether the idiom begins at the first of these tokens; the second argument is the token before it.
    begins: fn(&[TokenTree], Option<&TokenTree>) -> bool,
}

pub(crate) const IDIOMS: [Idiom; 4] = [
    Idiom { title: "closures bound to a name", anchor: 1.6, begins: is_named_closure },
    Idiom { title: ".filter(|_| …)", anchor: 0.07, begins: is_constant_filter },
    Idiom { title: "let (a, b) = (x, y)", anchor: 0.66, begins: is_tuple_of_lets },
    Idiom { title: "match on a bool", anchor: 0.0, begins: is_match_on_bool },
];

/// The places of each idiom in a module, as `module:line`.
pub(super) fn places(module: &Module) -> [Vec<String>; IDIOMS.len()] {
    let mut lines = Default::default();
    add_lines(module.tokens.clone(), &mut lines);
    lines.map(|lines| lines.into_iter().map(|line| format!("{}:{line}", module.name())).collect())
}

fn add_lines(tokens: TokenStream, lines: &mut [Vec<usize>; IDIOMS.len()]) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| &tokens[at]);
        for (idiom, lines) in IDIOMS.iter().zip(lines.iter_mut()) {
            if (idiom.begins)(&tokens[at..], before) {
                lines.push(token.span().start().line);
            }
        }
        if let TokenTree::Group(group) = token {
            add_lines(group.stream(), lines);
        }
    }
}

/// `let f = |x| …`, `let mut f: fn(u8) = move || …`, `let f = &|x| …`
fn is_named_closure(tokens: &[TokenTree], _: Option<&TokenTree>) -> bool {
    let [word, rest @ ..] = tokens else { return false };
    let [TokenTree::Ident(_), rest @ ..] = without(rest, "mut") else { return false };
    let Some(first) = rest.first() else { return false };
    if !is_ident(word, "let") || !(is_punct(first, '=') || is_punct(first, ':')) {
        return false;
    }
    // The type, if there is one, ends at `=`.
    let statement = rest.iter().take_while(|token| !is_punct(token, ';'));
    let value = statement.skip_while(|token| !is_punct(token, '=')).skip(1);
    let mut value = value.skip_while(|token| {
        is_punct(token, '&') || ["async", "move", "mut"].iter().any(|word| is_ident(token, word))
    });
    value.next().is_some_and(|token| is_punct(token, '|'))
}

/// `.filter(|_| …)`, also with a name that begins with `_`: it filters nothing.
fn is_constant_filter(tokens: &[TokenTree], before: Option<&TokenTree>) -> bool {
    let [name, TokenTree::Group(arguments), ..] = tokens else { return false };
    if !is_ident(name, "filter") || !before.is_some_and(|token| is_punct(token, '.')) {
        return false;
    }
    let arguments: Vec<TokenTree> = arguments.stream().into_iter().collect();
    match without(&arguments, "move") {
        [open, TokenTree::Ident(name), close, ..] => {
            is_punct(open, '|') && is_punct(close, '|') && name.to_string().starts_with('_')
        }
        _ => false,
    }
}

/// `let (a, mut b) = (x, y);`: names for two values, and not the parts of one value.
fn is_tuple_of_lets(tokens: &[TokenTree], _: Option<&TokenTree>) -> bool {
    let [word, TokenTree::Group(names), equals, TokenTree::Group(values), end, ..] = tokens else {
        return false;
    };
    is_ident(word, "let")
        && is_punct(equals, '=')
        && is_punct(end, ';')
        && is_tuple(names)
        && names
            .stream()
            .into_iter()
            .all(|token| matches!(token, TokenTree::Ident(_)) || is_punct(&token, ','))
        && is_tuple(values)
}

fn is_tuple(group: &proc_macro2::Group) -> bool {
    let has_comma = group.stream().into_iter().any(|token| is_punct(&token, ','));
    group.delimiter() == Delimiter::Parenthesis && has_comma
}

/// The braces of a `match` that have an arm for `true` or `false`.
fn is_match_on_bool(tokens: &[TokenTree], _: Option<&TokenTree>) -> bool {
    let [TokenTree::Group(arms), ..] = tokens else { return false };
    if arms.delimiter() != Delimiter::Brace {
        return false;
    }
    let arms: Vec<TokenTree> = arms.stream().into_iter().collect();
    (0..arms.len()).any(|at| {
        let begins_arm = match at.checked_sub(1).map(|before| &arms[before]) {
            None => true,
            Some(TokenTree::Group(body)) => body.delimiter() == Delimiter::Brace,
            Some(before) => is_punct(before, ','),
        };
        let [value, after, ..] = &arms[at..] else { return false };
        begins_arm
            && (is_ident(value, "true") || is_ident(value, "false"))
            && (is_arrow(&arms[at + 1..]) || is_ident(after, "if"))
    })
}

fn is_arrow(tokens: &[TokenTree]) -> bool {
    matches!(tokens, [equals, greater, ..] if is_punct(equals, '=') && is_punct(greater, '>'))
}

/// The tokens after this word, or all of them if they begin with another one.
fn without<'a>(tokens: &'a [TokenTree], word: &str) -> &'a [TokenTree] {
    match tokens {
        [first, rest @ ..] if is_ident(first, word) => rest,
        all => all,
    }
}

fn is_punct(token: &TokenTree, c: char) -> bool {
    matches!(token, TokenTree::Punct(it) if it.as_char() == c)
}

fn is_ident(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(it) if it == word)
}

#[cfg(test)]
mod tests {
    use super::{IDIOMS, places};
    use crate::measure::tests::modules;

    /// How often each idiom is in the body of a function.
    fn counts(body: &str) -> [usize; IDIOMS.len()] {
        let module = &modules(&[("lib.rs", &format!("fn f() {{ {body} }}"))])[0];
        places(module).map(|places| places.len())
    }

    #[test]
    fn closures_count_that_have_a_name() {
        assert_eq!(counts("let f = |x| x; let mut g: fn() -> u8 = move || 1; let h = &|_| 2;"), [3, 0, 0, 0]);
        assert_eq!(counts("m!(a, { let f = async move || 1; });"), [1, 0, 0, 0]);
        assert_eq!(counts("a.map(|x| x); let b = a | c; let d = a.any(|x| x); let e = g(|| 1);"), [0; 4]);
        assert_eq!(counts("let Some(a) = b else { return }; if let a = b && c || d {}"), [0; 4]);
    }

    #[test]
    fn filters_count_that_ignore_their_argument() {
        assert_eq!(counts("a.filter(|_| b); a.filter(move |_row| b); a\n.filter(\n|_| b)"), [0, 3, 0, 0]);
        assert_eq!(counts("a.filter(|it| b); a.filter(f); a.map(|_| b); filter(|_| b)"), [0; 4]);
    }

    #[test]
    fn tuples_count_that_give_names_to_several_values() {
        assert_eq!(counts("let (a, b) = (x, y); let (mut c, _) = (f(1, 2), z);"), [0, 0, 2, 0]);
        assert_eq!(counts("let (a, b) = x; let (a, b) = (x, y).max(z); let (a, b) = f(x, y);"), [0; 4]);
        assert_eq!(
            counts("if let (Some(a), None) = (x, y) {} let (Some(a), b) = (x, y) else { return };"),
            [0; 4]
        );
    }

    #[test]
    fn matches_count_that_have_an_arm_for_a_bool() {
        assert_eq!(counts("match a { true => 1, false => 2 }"), [0, 0, 0, 1]);
        assert_eq!(counts("match a() { x if b => {} true if c => 1, _ => 2 }"), [0, 0, 0, 1]);
        assert_eq!(
            counts("match a { (true, _) => true, Some(false) => false } S { a: true, b: false }"),
            [0; 4]
        );
    }

    #[test]
    fn places_have_the_line_of_the_first_token() {
        let all =
            modules(&[("lib.rs", "mod a;"), ("a.rs", "fn f() {\n    let (a, b) =\n        (x, y);\n}\n")]);
        let module = all.iter().find(|it| it.name() == "a").unwrap();
        assert_eq!(places(module)[2], ["a:2"]);
    }
}
