//! C that states what the bindings say, compiled against the headers they were made from: sizes, alignments, offsets,
//! values of constants, and the exact type of every function.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::parsed::{self, Bindings};

#[test]
fn the_headers_agree_with_the_bindings() {
    let Some(wheels) = wheels() else { return };
    for bindings in parsed::all() {
        let probe = probe(&bindings);
        let include = wheels.join(format!("cuda-{}/include", bindings.version.replace('_', ".")));
        compile(&probe, &include).unwrap_or_else(|errors| panic!("CUDA {}: {errors}", bindings.version));
    }
}

/// The probe must be able to fail: a wrong argument, size, offset and value are each seen.
#[test]
fn a_wrong_statement_is_seen() {
    let Some(wheels) = wheels() else { return };
    let include = wheels.join("cuda-13.0/include");
    let bindings = parsed::all().into_iter().find(|bindings| bindings.version == "13_0").unwrap();
    let probe = probe(&bindings);
    for (right, wrong) in [
        ("sizeof(struct cudaMemPoolProps) == 88", "sizeof(struct cudaMemPoolProps) == 80"),
        ("offsetof(struct cudaMemPoolProps, maxSize) == 24", "offsetof(struct cudaMemPoolProps, maxSize) == 16"),
        ("cudaErrorMemoryAllocation == 2,", "cudaErrorMemoryAllocation == 3,"),
        ("cudaError_t (*)(void *, cudaStream_t)", "cudaError_t (*)(void *, unsigned int)"),
    ] {
        assert!(probe.contains(right), "{right} is not in the probe");
        assert!(compile(&probe.replace(right, wrong), &include).is_err(), "{wrong} was not seen");
    }
}

/// Where the headers of every version lie, as `cargo xtask test` unpacks them.
fn wheels() -> Option<PathBuf> {
    let wheels = std::env::var_os("CUDA_MEMPOOL_TEST_WHEELS").map(PathBuf::from);
    if wheels.is_none() {
        println!("skipped: CUDA_MEMPOOL_TEST_WHEELS does not say where the headers are; `cargo xtask test` does");
    }
    wheels
}

fn compile(probe: &str, include: &Path) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("probe.c");
    std::fs::write(&source, probe).unwrap();
    let output = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-fsyntax-only", "-I", env!("CARGO_MANIFEST_DIR"), "-isystem"])
        .args([include, &source])
        .output()
        .expect("a C compiler is needed");
    output.status.success().then_some(()).ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

fn probe(bindings: &Bindings) -> String {
    let mut c = String::from("#include <stddef.h>\n#include \"wrapper.h\"\n");
    for (name, item) in &bindings.structs {
        let syn::Fields::Named(fields) = &item.fields else { continue };
        // Handles are pointers to structs that the headers do not define; anonymous members have no name in C.
        if name.contains("__bindgen") || is_opaque(fields) {
            continue;
        }
        state(&mut c, &format!("sizeof(struct {name}) == {}", bindings.layout[&format!("Size of {name}")]));
        state(&mut c, &format!("_Alignof(struct {name}) == {}", bindings.layout[&format!("Alignment of {name}")]));
        for field in &fields.named {
            let field = field.ident.as_ref().unwrap().to_string();
            if !field.contains("__bindgen") {
                let offset = bindings.layout[&format!("Offset of field: {name}::{field}")];
                state(&mut c, &format!("offsetof(struct {name}, {}) == {offset}", c_name(&field)));
            }
        }
    }
    for ((_, name), value) in &bindings.enum_values {
        state(&mut c, &format!("{name} == {value}"));
    }
    for (name, value) in &bindings.macros {
        state(&mut c, &format!("{name} == {value}"));
    }
    for (name, signature) in &bindings.functions {
        let arguments: Vec<_> = signature
            .inputs
            .iter()
            .map(|argument| {
                let syn::FnArg::Typed(argument) = argument else { panic!("{name} takes self") };
                c_type(bindings, &argument.ty)
            })
            .collect();
        let arguments = if arguments.is_empty() { "void".to_owned() } else { arguments.join(", ") };
        let syn::ReturnType::Type(_, answer) = &signature.output else { panic!("{name} answers nothing") };
        let answer = c_type(bindings, answer);
        state(&mut c, &format!("__builtin_types_compatible_p(__typeof__(&{name}), {answer} (*)({arguments}))"));
    }
    c
}

fn state(c: &mut String, statement: &str) {
    writeln!(c, "_Static_assert({statement}, {statement:?});").unwrap();
}

fn is_opaque(fields: &syn::FieldsNamed) -> bool {
    fields.named.iter().any(|field| field.ident.as_ref().unwrap() == "_unused")
}

/// bindgen puts `_` behind names that are Rust keywords.
fn c_name(rust: &str) -> &str {
    rust.strip_suffix('_').unwrap_or(rust)
}

/// The C spelling of a bound type.
fn c_type(bindings: &Bindings, ty: &syn::Type) -> String {
    match ty {
        syn::Type::Ptr(pointer) => {
            let target = c_type(bindings, &pointer.elem);
            match (&pointer.mutability, target.ends_with('*')) {
                (syn::PointerMutability::Const(_), false) => format!("const {target} *"),
                (syn::PointerMutability::Const(_), true) => format!("{target} const *"),
                (syn::PointerMutability::Mut(_), _) => format!("{target} *"),
            }
        }
        syn::Type::Array(array) => panic!("an array by value: {array:?}"),
        _ => {
            let name = parsed::name_of(ty);
            match name.as_str() {
                "c_void" => "void".into(),
                "c_char" => "char".into(),
                "c_int" => "int".into(),
                "c_uint" => "unsigned int".into(),
                "c_ulonglong" => "unsigned long long".into(),
                "usize" => "size_t".into(),
                "f32" => "float".into(),
                alias if bindings.aliases.contains_key(alias) => name,
                item if bindings.is_enum(item) => format!("enum {name}"),
                item if bindings.structs.contains_key(item) => format!("struct {name}"),
                other => panic!("no C spelling known for {other}"),
            }
        }
    }
}
