//! Counts items.

use super::Module;
use syn::{
    Fields, ImplItemConst, ImplItemFn, Item, ItemStruct, Variant, Visibility,
    visit::{Visit, visit_impl_item_fn, visit_item},
};

/// A type with more fields probably does more than one thing.
const MAX_FIELDS: usize = 12;

/// Counts the items that are `pub` without a limit: types, traits, functions, methods, constants and modules.
/// Fields do not count, because they belong to their type, and neither does `use`, which repeats a name.
pub(super) fn public(module: &Module) -> usize {
    let mut public = Public(0);
    module.items.iter().for_each(|item| public.visit_item(item));
    public.0
}

struct Public(usize);

impl Public {
    fn add(&mut self, visibility: &Visibility) {
        self.0 += usize::from(matches!(visibility, Visibility::Public(_)));
    }
}

impl<'ast> Visit<'ast> for Public {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Const(it) => self.add(&it.vis),
            Item::Enum(it) => self.add(&it.vis),
            Item::Fn(it) => self.add(&it.vis),
            Item::Mod(it) => self.add(&it.vis),
            Item::Static(it) => self.add(&it.vis),
            Item::Struct(it) => self.add(&it.vis),
            Item::Trait(it) => self.add(&it.vis),
            Item::Type(it) => self.add(&it.vis),
            Item::Union(it) => self.add(&it.vis),
            _ => {}
        }
        visit_item(self, item);
    }

    fn visit_impl_item_fn(&mut self, method: &'ast ImplItemFn) {
        self.add(&method.vis);
        visit_impl_item_fn(self, method);
    }

    fn visit_impl_item_const(&mut self, constant: &'ast ImplItemConst) {
        self.add(&constant.vis);
    }
}

/// Structs and variants with more fields than [`MAX_FIELDS`], each with their number.
pub(super) fn large(module: &Module) -> Vec<(String, usize)> {
    let mut large = Large(Vec::new());
    module.items.iter().for_each(|item| large.visit_item(item));
    let name = module.name();
    large.0.into_iter().map(|(of, fields)| (format!("{name}::{of}"), fields)).collect()
}

struct Large(Vec<(String, usize)>);

impl Large {
    fn add(&mut self, name: &syn::Ident, fields: &Fields) {
        if fields.len() > MAX_FIELDS {
            self.0.push((name.to_string(), fields.len()));
        }
    }
}

impl<'ast> Visit<'ast> for Large {
    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        self.add(&item.ident, &item.fields);
    }

    fn visit_variant(&mut self, variant: &'ast Variant) {
        self.add(&variant.ident, &variant.fields);
    }
}

#[cfg(test)]
mod tests {
    use super::{large, public};
    use crate::measure::tests::modules;

    #[test]
    fn public_items_are_those_without_a_limit() {
        let text = "pub struct A { pub a: u8 } pub(crate) struct B; struct C; pub use std::fmt;
            impl A { pub fn f() {} fn g() {} pub(crate) fn h() {} pub const N: u8 = 0; }
            pub mod m { pub fn f() {} }";
        let counts: Vec<_> = modules(&[("lib.rs", text)]).iter().map(public).collect();
        // In the module m, and in the root.
        assert_eq!(counts, [1, 4]);
    }

    #[test]
    fn large_types_are_named() {
        let fields = |count: usize| (0..count).map(|at| format!("f{at}: u8,")).collect::<String>();
        let text = format!(
            "struct A {{ {} }} struct B {{ {} }} enum C {{ D {{ {} }} }}",
            fields(13),
            fields(12),
            fields(14)
        );
        let found: Vec<_> = modules(&[("lib.rs", &text)]).iter().flat_map(large).collect();
        assert_eq!(found, [("crate::A".to_owned(), 13), ("crate::D".to_owned(), 14)]);
    }
}
