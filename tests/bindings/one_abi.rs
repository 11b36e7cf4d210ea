//! One table of functions serves every CUDA major from 11 to 13 when the runtime is loaded by the program. So each
//! function must have one ABI in all versions: the same signature, over types of the same size, alignment and values.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::Visit;

use crate::parsed::{self, Bindings};

/// Grew in 13.0. The loader hands such a runtime a buffer of its own when the bindings are older.
const GREW: &str = "cudaPointerAttributes";

#[test]
fn every_function_has_one_signature() {
    let mut first = BTreeMap::new();
    for bindings in parsed::all() {
        for (name, signature) in &bindings.functions {
            let types = (signature.inputs.iter().map(argument_type).collect::<Vec<_>>(), signature.output.clone());
            let (version, known) = first.entry(name.clone()).or_insert((bindings.version.clone(), types.clone()));
            assert_eq!(*known, types, "{name} differs between {version} and {}", bindings.version);
        }
    }
    assert!(first.len() > 80, "only {} functions", first.len());
}

#[test]
fn every_type_in_a_signature_has_one_layout() {
    let mut sizes = BTreeMap::new();
    for bindings in parsed::all() {
        for name in types_in_signatures(&bindings) {
            if name == GREW {
                continue;
            }
            let layout =
                ["Size of", "Alignment of"].map(|what| bindings.layout.get(&format!("{what} {name}")).copied());
            let kind = (bindings.is_enum(&name), bindings.aliases.get(&name).cloned(), layout);
            let (version, known) = sizes.entry(name.clone()).or_insert((bindings.version.clone(), kind.clone()));
            assert_eq!(*known, kind, "{name} differs between {version} and {}", bindings.version);
        }
    }
    assert!(sizes.contains_key("cudaMemPoolProps") && sizes.contains_key("cudaMemAccessDesc"));
}

#[test]
fn the_one_type_that_grew_only_grew() {
    let all = parsed::all();
    let size = |bindings: &Bindings| bindings.layout[&format!("Size of {GREW}")];
    let (oldest, newest) = (all.first().unwrap(), all.last().unwrap());
    assert!(size(oldest) < size(newest), "{GREW} needs no exception any more");
    for bindings in &all {
        assert_eq!(size(bindings) > size(oldest), bindings.number() >= 13000, "{}", bindings.version);
        for field in ["type_", "device", "devicePointer", "hostPointer"] {
            let offset = format!("Offset of field: {GREW}::{field}");
            assert_eq!(bindings.layout[&offset], oldest.layout[&offset], "{field} in {}", bindings.version);
        }
    }
}

#[test]
fn a_constant_never_changes_its_value() {
    // These count what a header knows, so they grow with it.
    let counts = |name: &str| name.ends_with("Max") || name.ends_with("Count") || name == "CUDART_VERSION";
    let mut first = BTreeMap::new();
    for bindings in parsed::all() {
        let enums = bindings.enum_values.iter().map(|((_, name), value)| (name, value));
        for (name, value) in enums.chain(&bindings.macros) {
            if !counts(name) {
                let (version, known) = first.entry(name.clone()).or_insert((bindings.version.clone(), *value));
                assert_eq!(known, value, "{name} differs between {version} and {}", bindings.version);
            }
        }
    }
}

fn argument_type(argument: &syn::FnArg) -> syn::Type {
    let syn::FnArg::Typed(argument) = argument else { panic!("a C function takes no self") };
    (*argument.ty).clone()
}

/// The names of all types that signatures mention, and of those that these are made of.
fn types_in_signatures(bindings: &Bindings) -> BTreeSet<String> {
    let mut names = Names { bindings, found: BTreeSet::new() };
    for signature in bindings.functions.values() {
        names.visit_signature(signature);
    }
    names.found
}

struct Names<'a> {
    bindings: &'a Bindings,
    found: BTreeSet<String>,
}

impl<'ast> Visit<'ast> for Names<'ast> {
    fn visit_type_path(&mut self, path: &'ast syn::TypePath) {
        let name = path.path.segments.last().unwrap().ident.to_string();
        if self.found.insert(name.clone()) {
            if let Some(target) = self.bindings.aliases.get(&name) {
                self.visit_type(target);
            }
            if let Some(item) = self.bindings.structs.get(&name) {
                self.visit_item_struct(item);
            }
            if let Some(item) = self.bindings.unions.get(&name) {
                self.visit_item_union(item);
            }
        }
    }
}
