//! Reads a crate's modules and the paths that its non-test code names, with a real parser.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ItemMod, ItemUse, Lit, Meta, UseTree};

/// Module path below the crate's root; empty for the root itself.
pub(crate) type Module = Vec<String>;

/// One path that the code names, such as `crate::net::ethernet::Frame`.
#[derive(Debug)]
pub(crate) struct Import {
    /// File that names it.
    pub(crate) file: PathBuf,
    /// Line in that file, from 1.
    pub(crate) line: usize,
    /// Module whose code names it.
    pub(crate) from: Module,
    /// Segments below the crate's root. The last one may be an item instead of a module.
    pub(crate) to: Vec<String>,
}

/// Modules of one crate and the imports between them.
#[derive(Debug, Default)]
pub(crate) struct Source {
    /// All modules but those of tests.
    pub(crate) modules: Vec<Module>,
    /// All paths that begin with `crate`, `self` or `super`.
    pub(crate) imports: Vec<Import>,
    /// Names that a module imports or exports again, each with the path behind it.
    pub(crate) aliases: BTreeMap<(Module, String), Vec<String>>,
    /// Aliases whose path begins with a name: a module beside them, or another crate.
    unclear: Vec<((Module, String), Vec<String>)>,
}

impl Source {
    /// Reads a crate from its `src` folder: `lib.rs`, `main.rs`, and every module that they
    /// declare.
    pub(crate) fn read(src: &Path) -> Self {
        let mut source = Self::default();
        for root in ["lib.rs", "main.rs"].map(|name| src.join(name)) {
            if root.exists() {
                source.read_file(&root, src, Vec::new());
            }
        }
        for ((module, name), path) in std::mem::take(&mut source.unclear) {
            let child: Module = module.iter().chain(path.first()).cloned().collect();
            if source.modules.contains(&child) {
                let path = [&module[..], &path].concat();
                source.aliases.insert((module, name), path);
            }
        }
        source
    }

    /// Reads the file of one module. `children` is the folder with the files of its modules.
    fn read_file(&mut self, file: &Path, children: &Path, module: Module) {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut reader = Reader { source: self, file, children, module, files: Vec::new() };
        reader.visit_file(&parsed);
        for (file, children, module) in reader.files {
            self.modules.push(module.clone());
            self.read_file(&file, &children, module);
        }
    }
}

/// Visits one file.
struct Reader<'a> {
    source: &'a mut Source,
    file: &'a Path,
    children: &'a Path,
    module: Module,
    /// Modules declared here that have files of their own: file, folder of their modules, path.
    files: Vec<(PathBuf, PathBuf, Module)>,
}

impl Reader<'_> {
    /// Resolves a path's leading `crate`, `self` and `super`; returns `None` for other paths.
    fn absolute(&self, segments: &[String]) -> Option<Vec<String>> {
        let mut base = match segments.first()?.as_str() {
            "crate" => Vec::new(),
            "self" | "super" => self.module.clone(),
            _ => return None,
        };
        for segment in segments {
            match segment.as_str() {
                "super" => drop(base.pop()),
                "self" | "crate" => {}
                name => base.push(name.to_owned()),
            }
        }
        Some(base)
    }

    fn add(&mut self, segments: &[String], line: usize) {
        if let Some(to) = self.absolute(segments) {
            let (file, from) = (self.file.to_owned(), self.module.clone());
            self.source.imports.push(Import { file, line, from, to });
        }
    }

    fn add_use(&mut self, tree: &UseTree, before: &[String]) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        let (path, name, line) = match tree {
            UseTree::Path(path) => return self.add_use(&path.tree, &with(&path.ident)),
            UseTree::Group(group) => return group.items.iter().for_each(|tree| self.add_use(tree, before)),
            UseTree::Name(name) if name.ident == "self" => {
                (before.to_vec(), before.last().cloned(), name.ident.span().start().line)
            }
            UseTree::Name(name) => {
                (with(&name.ident), Some(name.ident.to_string()), name.ident.span().start().line)
            }
            UseTree::Rename(rename) => {
                (with(&rename.ident), Some(rename.rename.to_string()), rename.ident.span().start().line)
            }
            UseTree::Glob(glob) => (before.to_vec(), None, glob.star_token.spans[0].start().line),
        };
        self.add(&path, line);
        if let Some(name) = name {
            let key = (self.module.clone(), name);
            match self.absolute(&path) {
                Some(path) => drop(self.source.aliases.insert(key, path)),
                None => self.source.unclear.push((key, path)),
            }
        }
    }

    /// Adds a path found in tokens. A single word, such as `crate` in `pub(crate)`, is not a path.
    fn add_path(&mut self, path: &[String], line: usize) {
        if path.len() > 1 {
            self.add(path, line);
        }
    }

    /// Finds paths in tokens that are not parsed: arguments of macros and of attributes.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let (mut line, mut colons) = (0, 0);
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.add_path(&std::mem::take(&mut path), line);
                        line = ident.span().start().line;
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.add_path(&std::mem::take(&mut path), line);
                    colons = 0;
                    self.add_tokens(group.stream());
                }
                _ => {
                    self.add_path(&std::mem::take(&mut path), line);
                    colons = 0;
                }
            }
        }
        self.add_path(&path, line);
    }
}

impl<'a> Visit<'a> for Reader<'_> {
    fn visit_item(&mut self, item: &'a syn::Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        let name = item.ident.to_string();
        let path: Module = self.module.iter().chain([&name]).cloned().collect();
        if item.content.is_some() {
            self.source.modules.push(path.clone());
            let outer = std::mem::replace(&mut self.module, path);
            visit::visit_item_mod(self, item);
            self.module = outer;
            return;
        }
        let inner = self.children.join(&name);
        let file = match path_attribute(&item.attrs) {
            Some(named) => self.file.parent().unwrap().join(named),
            None if inner.join("mod.rs").exists() => inner.join("mod.rs"),
            None => inner.with_extension("rs"),
        };
        self.files.push((file, inner, path));
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        self.add_use(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let segments: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.add(&segments, path.segments[0].ident.span().start().line);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'a syn::Macro) {
        self.add_tokens(called.tokens.clone());
        visit::visit_macro(self, called);
    }

    fn visit_attribute(&mut self, attribute: &'a Attribute) {
        if let Meta::List(list) = &attribute.meta {
            self.add_tokens(list.tokens.clone());
        }
    }

    // The path of a visibility is no import.
    fn visit_visibility(&mut self, _: &'a syn::Visibility) {}
}

fn attributes(item: &syn::Item) -> &[Attribute] {
    use syn::Item;
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns true for `#[cfg(test)]` and `#[cfg(any(test, …))]`, but not for `#[cfg(not(test))]`.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let words = list.tokens.to_string();
            words == "test" || words.starts_with("any (test")
        }
        _ => false,
    })
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    })
}
