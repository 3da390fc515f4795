//! The modules of a crate, parsed and without their tests.

use anyhow::{Context as _, Result};
use proc_macro2::{TokenStream, TokenTree};
use std::{
    mem,
    path::{Path, PathBuf},
};
use syn::{
    Attribute, File, ImplItem, Item, ItemImpl, Meta,
    visit_mut::{VisitMut, visit_file_mut, visit_item_impl_mut},
};

/// The items of a module, without those of its child modules.
pub(super) struct Module {
    /// The path from the crate's root; the root's path is empty.
    pub(super) path: Vec<String>,
    pub(super) items: Vec<Item>,
    pub(super) tokens: TokenStream,
}

impl Module {
    pub(super) fn name(&self) -> String {
        if self.path.is_empty() { "crate".to_owned() } else { self.path.join("::") }
    }
}

type Read<'a> = &'a dyn Fn(&Path) -> Result<String>;

/// Loads all modules below these files. A library and a program in the same folder count as one crate.
pub(super) fn load<'a>(roots: impl IntoIterator<Item = &'a str>, read: Read<'_>) -> Result<Vec<Module>> {
    let mut modules = Vec::new();
    for root in roots {
        load_file(Path::new(root), Path::new(""), Vec::new(), read, &mut modules)?;
    }
    Ok(modules)
}

/// Loads a file and its child modules, whose files are in `folder`.
fn load_file(
    file: &Path,
    folder: &Path,
    path: Vec<String>,
    read: Read<'_>,
    modules: &mut Vec<Module>,
) -> Result<()> {
    let mut syntax: File =
        syn::parse_str(&read(file)?).with_context(|| format!("{} is not Rust", file.display()))?;
    WithoutTests.visit_file_mut(&mut syntax);
    add(syntax.items, folder, path, read, modules)
}

fn add(
    mut items: Vec<Item>,
    folder: &Path,
    path: Vec<String>,
    read: Read<'_>,
    modules: &mut Vec<Module>,
) -> Result<()> {
    for item in &mut items {
        let Item::Mod(module) = item else { continue };
        let name = module.ident.to_string();
        let below: PathBuf = folder.join(&name);
        let path = path.iter().cloned().chain([name]).collect();
        match &mut module.content {
            Some((_, content)) => add(mem::take(content), &below, path, read, modules)?,
            None => load_file(&below.with_extension("rs"), &below, path, read, modules)?,
        }
    }
    let tokens = items.iter().map(quote::ToTokens::to_token_stream).collect();
    modules.push(Module { path, items, tokens });
    Ok(())
}

/// Removes items that are compiled only for tests.
struct WithoutTests;

impl VisitMut for WithoutTests {
    fn visit_file_mut(&mut self, file: &mut File) {
        file.items.retain(|item| !attributes(item).iter().any(is_for_tests));
        visit_file_mut(self, file);
    }

    fn visit_item_mod_mut(&mut self, module: &mut syn::ItemMod) {
        if let Some((_, items)) = &mut module.content {
            items.retain(|item| !attributes(item).iter().any(is_for_tests));
        }
        syn::visit_mut::visit_item_mod_mut(self, module);
    }

    fn visit_item_impl_mut(&mut self, block: &mut ItemImpl) {
        block.items.retain(|item| match item {
            ImplItem::Fn(it) => !it.attrs.iter().any(is_for_tests),
            ImplItem::Const(it) => !it.attrs.iter().any(is_for_tests),
            _ => true,
        });
        visit_item_impl_mut(self, block);
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(it) => &it.attrs,
        Item::Enum(it) => &it.attrs,
        Item::ExternCrate(it) => &it.attrs,
        Item::Fn(it) => &it.attrs,
        Item::ForeignMod(it) => &it.attrs,
        Item::Impl(it) => &it.attrs,
        Item::Macro(it) => &it.attrs,
        Item::Mod(it) => &it.attrs,
        Item::Static(it) => &it.attrs,
        Item::Struct(it) => &it.attrs,
        Item::Trait(it) => &it.attrs,
        Item::Type(it) => &it.attrs,
        Item::Union(it) => &it.attrs,
        Item::Use(it) => &it.attrs,
        _ => &[],
    }
}

/// `#[test]`, `#[cfg(test)]`, `#[cfg(all(test, …))]`.
fn is_for_tests(attribute: &Attribute) -> bool {
    match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("cfg") => needs_test(list.tokens.clone()),
        _ => false,
    }
}

fn needs_test(condition: TokenStream) -> bool {
    let tokens: Vec<TokenTree> = condition.into_iter().collect();
    match tokens.as_slice() {
        [TokenTree::Ident(test)] => test == "test",
        [TokenTree::Ident(all), TokenTree::Group(conditions)] if all == "all" => {
            conditions.stream().into_iter().any(|it| matches!(it, TokenTree::Ident(name) if name == "test"))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::measure::tests::modules;

    #[test]
    fn modules_are_found_in_files_and_inline_without_tests() {
        let all = modules(&[
            ("lib.rs", "mod a; mod b { pub mod c; } #[cfg(test)] mod tests;"),
            ("a.rs", "#[cfg(all(test, feature = \"x\"))] fn f() {} #[cfg(any(test, unix))] fn g() {}"),
            ("b/c.rs", "struct S; impl S { #[cfg(test)] fn f() {} fn g() {} } #[test] fn t() {}"),
        ]);
        let mut found: Vec<_> = all.iter().map(|it| (it.name(), it.tokens.to_string())).collect();
        found.sort();
        let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "b", "b::c", "crate"]);
        assert!(!found[0].1.contains("f ()") && found[0].1.contains("g ()"), "{}", found[0].1);
        assert!(!found[2].1.contains("f ()") && found[2].1.contains("g ()"), "{}", found[2].1);
        assert!(!found[2].1.contains("t ()"), "{}", found[2].1);
    }
}
