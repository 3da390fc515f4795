//! Resolves a path to a module.

use super::{Module, token};
use std::collections::{BTreeMap, BTreeSet};
use syn::{
    ItemUse, UseTree,
    visit::{Visit, visit_item_use},
};

/// The crate's modules and their imports, by paths from the root.
pub(super) struct Names {
    imports: BTreeMap<Vec<String>, BTreeMap<String, Vec<String>>>,
}

impl Names {
    pub(super) fn new(modules: &[Module]) -> Self {
        let paths: BTreeSet<&[String]> = modules.iter().map(|it| it.path.as_slice()).collect();
        let mut imports: BTreeMap<Vec<String>, BTreeMap<String, Vec<String>>> = BTreeMap::new();
        for module in modules {
            let own = imports.entry(module.path.clone()).or_default();
            for (name, path) in uses(module) {
                own.extend(absolute(&module.path, &path, &paths).map(|path| (name, path)));
            }
        }
        Self { imports }
    }

    /// Returns the modules that this one names: by an import, or by a path in its code.
    pub(super) fn used_by(&self, module: &Module) -> BTreeSet<Vec<String>> {
        let paths: BTreeSet<&[String]> = self.imports.keys().map(Vec::as_slice).collect();
        let mut named: Vec<Vec<String>> = Vec::new();
        token::paths(module.tokens.clone(), &mut named);
        let named = named.iter().filter_map(|path| absolute(&module.path, path, &paths));
        let imported = uses(module).into_iter().filter_map(|(_, path)| absolute(&module.path, &path, &paths));
        named.chain(imported).map(|path| self.module_of(&path, 0)).collect()
    }

    /// Returns the module where the item of this path is defined, through re-exports.
    fn module_of(&self, path: &[String], depth: usize) -> Vec<String> {
        let mut module: Vec<String> = Vec::new();
        for (at, name) in path.iter().enumerate() {
            let next: Vec<String> = module.iter().chain([name]).cloned().collect();
            if self.imports.contains_key(&next) {
                module = next;
                continue;
            }
            let Some(target) = self.imports.get(&module).and_then(|it| it.get(name)) else { break };
            // Sources that compile have no circles of re-exports, but unfinished ones may.
            if depth == 8 {
                break;
            }
            let path: Vec<String> = target.iter().chain(&path[at + 1..]).cloned().collect();
            return self.module_of(&path, depth + 1);
        }
        module
    }
}

/// Returns the path from the root, if it leads into this crate.
fn absolute(module: &[String], path: &[String], modules: &BTreeSet<&[String]>) -> Option<Vec<String>> {
    let (first, rest) = path.split_first()?;
    let mut base = match first.as_str() {
        "crate" => Vec::new(),
        "self" => module.to_vec(),
        "super" => module.split_last()?.1.to_vec(),
        child => {
            let child: Vec<String> = module.iter().cloned().chain([child.to_owned()]).collect();
            return modules.contains(child.as_slice()).then(|| [child.as_slice(), rest].concat());
        }
    };
    for name in rest {
        if name == "super" {
            base.pop()?;
        } else {
            base.push(name.clone());
        }
    }
    Some(base)
}

/// Returns the imports of a module: the local name, and its path.
fn uses(module: &Module) -> Vec<(String, Vec<String>)> {
    let mut uses = Uses(Vec::new());
    module.items.iter().for_each(|item| uses.visit_item(item));
    uses.0
}

struct Uses(Vec<(String, Vec<String>)>);

impl Uses {
    fn add(&mut self, tree: &UseTree, path: &[String]) {
        match tree {
            UseTree::Path(it) => self.add(&it.tree, &[path, &[it.ident.to_string()]].concat()),
            UseTree::Group(it) => it.items.iter().for_each(|tree| self.add(tree, path)),
            UseTree::Glob(_) => self.0.push(("*".to_owned(), path.to_vec())),
            UseTree::Name(it) if it.ident == "self" => {
                self.0.extend(path.last().map(|name| (name.clone(), path.to_vec())));
            }
            UseTree::Name(it) => {
                self.0.push((it.ident.to_string(), [path, &[it.ident.to_string()]].concat()));
            }
            UseTree::Rename(it) => {
                self.0.push((it.rename.to_string(), [path, &[it.ident.to_string()]].concat()));
            }
        }
    }
}

impl<'ast> Visit<'ast> for Uses {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.add(&item.tree, &[]);
        visit_item_use(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::Names;
    use crate::measure::tests::modules;

    #[test]
    fn paths_lead_to_where_the_item_is_defined() {
        let all = modules(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "mod inner; pub use inner::{Thing, other as Other}; pub use super::b;"),
            ("a/inner.rs", "pub struct Thing; pub fn other() {}"),
            ("b.rs", "use std::fmt::{self, Debug}; fn f() { m!(crate::c::x()); }"),
            ("c.rs", "fn f() { use crate::a::{Other, Thing}; super::a::b::f(); }"),
        ]);
        let names = Names::new(&all);
        let used = |name: &str| {
            let module = all.iter().find(|it| it.name() == name).unwrap();
            names.used_by(module).iter().map(|path| path.join("::")).collect::<Vec<_>>()
        };
        assert_eq!(used("a"), ["a::inner", "b"]);
        assert_eq!(used("b"), ["c"]);
        // The prefix of braces is a path too.
        assert_eq!(used("c"), ["a", "a::inner", "b"]);
    }
}
