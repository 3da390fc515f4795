//! Finds private functions, and those that are used once.
//!
//! A use is a call, a method call, a path that ends in the name, the bare name as an argument of a call, or
//! the value of an attribute's key (`default = "name"`). It counts if the function is visible there: in its
//! module and the modules in that.

use super::Module;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeMap;
use syn::{
    ImplItem, ItemFn, ItemImpl, Visibility,
    visit::{Visit, visit_item_fn, visit_item_impl},
};

pub(super) struct Private {
    /// `module::function`.
    pub(super) name: String,
    pub(super) is_single_use: bool,
}

pub(super) fn private(modules: &[Module]) -> Vec<Private> {
    let uses: Vec<BTreeMap<String, usize>> = modules.iter().map(|module| uses(&module.tokens)).collect();
    let mut found = Vec::new();
    for module in modules {
        let mut defined = Defined::default();
        module.items.iter().for_each(|item| defined.visit_item(item));
        for (name, definitions) in defined.0 {
            let all = modules.iter().zip(&uses).filter(|(other, _)| other.path.starts_with(&module.path));
            let used: usize = all.filter_map(|(_, uses)| uses.get(&name)).sum();
            // Methods of one name on several types cannot be told apart. If there are no more uses than
            // methods, each counts as used once.
            let is_single_use = (1..=definitions).contains(&used);
            for _ in 0..definitions {
                found.push(Private { name: format!("{}::{name}", module.name()), is_single_use });
            }
        }
    }
    found
}

/// The number of private functions and methods, by name.
#[derive(Default)]
struct Defined(BTreeMap<String, usize>);

impl Defined {
    fn add(&mut self, visibility: &Visibility, name: &syn::Ident) {
        if matches!(visibility, Visibility::Inherited) && name != "main" {
            *self.0.entry(name.to_string()).or_default() += 1;
        }
    }
}

impl<'ast> Visit<'ast> for Defined {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.add(&function.vis, &function.sig.ident);
        visit_item_fn(self, function);
    }

    fn visit_item_impl(&mut self, block: &'ast ItemImpl) {
        // The methods of a trait are called through the trait.
        if block.trait_.is_none() {
            for item in &block.items {
                if let ImplItem::Fn(method) = item {
                    self.add(&method.vis, &method.sig.ident);
                }
            }
        }
        visit_item_impl(self, block);
    }
}

fn uses(tokens: &TokenStream) -> BTreeMap<String, usize> {
    let mut uses = BTreeMap::new();
    add_uses(tokens.clone(), false, &mut uses);
    uses
}

fn add_uses(tokens: TokenStream, is_call: bool, uses: &mut BTreeMap<String, usize>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is = |at: Option<usize>, c: char| matches!(at.and_then(|at| tokens.get(at)), Some(TokenTree::Punct(it)) if it.as_char() == c);
    for (at, token) in tokens.iter().enumerate() {
        let before = at.checked_sub(1);
        let after = at + 1;
        let ends = tokens.len() == after || is(Some(after), ',');
        match token {
            TokenTree::Ident(name) => {
                let defined =
                    matches!(before.map(|at| &tokens[at]), Some(TokenTree::Ident(it)) if it == "fn");
                let called = matches!(tokens.get(after), Some(TokenTree::Group(it)) if it.delimiter() == Delimiter::Parenthesis)
                    || is(Some(after), ':') && is(Some(after + 1), ':') && is(Some(after + 2), '<');
                let of_a_path = is(before, ':') && is(at.checked_sub(2), ':');
                let argument = is_call && ends && (before.is_none() || is(before, ','));
                let value = ends && is(before, '=');
                if !defined && (called || of_a_path || argument || value) {
                    *uses.entry(name.to_string()).or_default() += 1;
                }
            }
            TokenTree::Literal(text) if ends && is(before, '=') => {
                let text = text.to_string();
                let path = text.trim_matches('"');
                let name = path.rsplit("::").next().unwrap_or(path);
                *uses.entry(name.to_owned()).or_default() += 1;
            }
            TokenTree::Group(group) => {
                let is_call = group.delimiter() == Delimiter::Parenthesis
                    && matches!(before.map(|at| &tokens[at]), Some(TokenTree::Ident(_)));
                add_uses(group.stream(), is_call, uses);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::private;
    use crate::measure::tests::modules;

    #[test]
    fn uses_are_calls_paths_and_arguments() {
        let text = r#"mod below;
            pub fn entry() { once(); twice(); twice(); S::new().method(); [1].map(given); m!("{}", in_macro()); }
            fn once() {} fn twice() {} fn given(x: u8) { let once = 1; take(once + 1); } fn in_macro() {}
            struct S { #[serde(with = "by_text", skip_if = "S::by_path")] #[arg(value_parser = parse)] field: u8 }
            fn by_text() {} fn parse() {}
            impl S { fn new() -> Self { S { field: 1 } } fn method(&self) { self.field; } fn by_path() { by_text() } fn unused() {} }
            impl Drop for S { fn drop(&mut self) {} }"#;
        let below = "fn own() { super::twice(); } pub fn f() { own(); own::<u8>(); }";
        let functions = private(&modules(&[("lib.rs", text), ("below.rs", below)]));
        let find = |single| {
            let found = functions.iter().filter(move |it| it.is_single_use == single);
            found.map(|it| it.name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(find(false), ["below::own", "crate::by_text", "crate::twice", "crate::unused"]);
        assert_eq!(
            find(true),
            [
                "crate::by_path",
                "crate::given",
                "crate::in_macro",
                "crate::method",
                "crate::new",
                "crate::once",
                "crate::parse"
            ]
        );
    }
}
