//! A checked-in bindings file, taken apart.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use syn::parse::{Parse, ParseStream};

/// The bindings of one CUDA version.
pub struct Bindings {
    /// As in the file's name: `12_4`.
    pub version: String,
    pub functions: BTreeMap<String, syn::Signature>,
    pub structs: BTreeMap<String, syn::ItemStruct>,
    pub unions: BTreeMap<String, syn::ItemUnion>,
    /// What an alias stands for, by its name.
    pub aliases: BTreeMap<String, syn::Type>,
    /// Associated constants of C enums, `(enum, constant)`, and their values.
    pub enum_values: BTreeMap<(String, String), u64>,
    /// Constants that are macros in the headers.
    pub macros: BTreeMap<String, u64>,
    /// What the compiled-in assertions state: `Size of X`, `Alignment of X`, `Offset of field: X::y`.
    pub layout: BTreeMap<String, u64>,
}

/// Every supported version, oldest first.
pub fn all() -> Vec<Bindings> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("cuda-mempool-sys/src/bindings");
    let mut found: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
            Bindings::parse(stem.strip_prefix("cuda_").unwrap(), &fs::read_to_string(path).unwrap())
        })
        .collect();
    found.sort_by_key(Bindings::number);
    found
}

impl Bindings {
    fn parse(version: &str, text: &str) -> Self {
        let mut bindings = Self {
            version: version.to_owned(),
            functions: BTreeMap::new(),
            structs: BTreeMap::new(),
            unions: BTreeMap::new(),
            aliases: BTreeMap::new(),
            enum_values: BTreeMap::new(),
            macros: BTreeMap::new(),
            layout: BTreeMap::new(),
        };
        for item in syn::parse_file(text).unwrap().items {
            bindings.take(item);
        }
        bindings
    }

    fn take(&mut self, item: syn::Item) {
        match item {
            syn::Item::Macro(item) => {
                let Functions(functions) = item.mac.parse_body().unwrap();
                self.functions.extend(functions.into_iter().map(|function| (function.ident.to_string(), function)));
            }
            syn::Item::Struct(item) => {
                self.structs.insert(item.ident.to_string(), item);
            }
            syn::Item::Union(item) => {
                self.unions.insert(item.ident.to_string(), item);
            }
            syn::Item::Type(item) => {
                self.aliases.insert(item.ident.to_string(), *item.ty);
            }
            // `pub use self::cudaError as cudaError_t;`
            syn::Item::Use(item) => {
                if let syn::UseTree::Path(path) = item.tree {
                    if let syn::UseTree::Rename(rename) = *path.tree {
                        let target = rename.ident;
                        self.aliases.insert(rename.rename.to_string(), syn::parse_quote!(#target));
                    }
                }
            }
            syn::Item::Const(item) if item.ident == "_" => {
                let syn::Expr::Block(block) = *item.expr else { panic!("an assertion is a block") };
                self.layout.extend(block.block.stmts.iter().map(assertion));
            }
            syn::Item::Const(item) => {
                self.macros.insert(item.ident.to_string(), integer(&item.expr));
            }
            syn::Item::Impl(item) if item.trait_.is_none() => {
                let of = name_of(&item.self_ty);
                for part in item.items {
                    if let syn::ImplItem::Const(constant) = part {
                        let syn::Expr::Call(call) = constant.expr else { panic!("an enum's constant is a call") };
                        self.enum_values.insert((of.clone(), constant.ident.to_string()), integer(&call.args[0]));
                    }
                }
            }
            _ => {}
        }
    }

    /// 12040 for 12.4.
    pub fn number(&self) -> u32 {
        let (major, minor) = self.version.split_once('_').unwrap();
        major.parse::<u32>().unwrap() * 1000 + minor.parse::<u32>().unwrap() * 10
    }

    /// C enums, which are the tuple structs.
    pub fn is_enum(&self, name: &str) -> bool {
        self.structs.get(name).is_some_and(|item| matches!(item.fields, syn::Fields::Unnamed(_)))
    }
}

/// `["Size of X"][size_of::<X>() - 8usize];` says that the size is 8, or the index is out of bounds.
fn assertion(statement: &syn::Stmt) -> (String, u64) {
    let syn::Stmt::Expr(syn::Expr::Index(index), _) = statement else { panic!("an assertion is an index") };
    let (syn::Expr::Array(text), syn::Expr::Binary(difference)) = (&*index.expr, &*index.index) else {
        panic!("an assertion indexes an array by a difference")
    };
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &text.elems[0] else {
        panic!("an assertion has a text")
    };
    (text.value(), integer(&difference.right))
}

/// The last path segment of a type.
pub fn name_of(ty: &syn::Type) -> String {
    let syn::Type::Path(path) = ty else { panic!("not a path: {ty:?}") };
    path.path.segments.last().unwrap().ident.to_string()
}

pub fn integer(expr: &syn::Expr) -> u64 {
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(value), .. }) = expr else { panic!("not a number: {expr:?}") };
    value.base10_parse().unwrap()
}

/// The body of `functions! { … }`.
struct Functions(Vec<syn::Signature>);

impl Parse for Functions {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let mut functions = Vec::new();
        while !input.is_empty() {
            functions.push(input.parse::<syn::TraitItemFn>().map(|function| function.sig).or_else(|_| {
                input.parse::<syn::Token![pub]>()?;
                input.parse::<syn::TraitItemFn>().map(|function| function.sig)
            })?);
        }
        Ok(Self(functions))
    }
}
