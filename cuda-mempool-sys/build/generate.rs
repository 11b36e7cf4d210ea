//! From the CUDA headers to one Rust file: bindgen's settings, and the one change made to its output.
//!
//! Compiled into the build script (feature `bindgen`) and into `cargo xtask bindings`, so that a file generated
//! at build time and a checked-in one differ only where the headers do.

use std::path::Path;

/// Functions that are bound, as patterns of whole names.
///
/// A function that changed its signature under one name between the supported majors must not be here: the
/// load-at-run-time table serves all majors with one signature.
const FUNCTIONS: &[&str] = &[
    // Stream-ordered allocation, pools, sharing between processes.
    "cudaMallocAsync",
    "cudaMallocFromPoolAsync",
    "cudaFreeAsync",
    "cudaMemPool.*",
    "cudaIpc.*",
    "cudaDevice[GS]etMemPool",
    "cudaDeviceGetDefaultMemPool",
    "cudaMem[GS]etMemPool",
    "cudaMemGetDefaultMemPool",
    // Graph memory nodes, and the least of graphs and capture that using them takes.
    "cudaGraphAddMem(Alloc|Free)Node",
    "cudaGraphMem(Alloc|Free)NodeGetParams",
    "cudaDevice[GS]etGraphMemAttribute",
    "cudaDeviceGraphMemTrim",
    "cudaGraph(Create|Destroy|InstantiateWithFlags|Launch|ExecDestroy)",
    "cudaStream(BeginCapture|EndCapture|IsCapturing)",
    "cudaThreadExchangeStreamCaptureMode",
    // Streams, events, host functions.
    "cudaStreamCreate(WithFlags|WithPriority)?",
    "cudaStream(Destroy|Query|Synchronize|WaitEvent|GetFlags|GetPriority|GetDevice)",
    "cudaDeviceGetStreamPriorityRange",
    "cudaEvent(Create|CreateWithFlags|Record|RecordWithFlags|Query|Synchronize|Destroy|ElapsedTime)",
    "cudaLaunchHostFunc",
    // Devices.
    "cudaGetDeviceCount",
    "cuda[GS]etDevice",
    "cudaDevice(GetAttribute|CanAccessPeer|EnablePeerAccess|DisablePeerAccess|Synchronize|GetPCIBusId)",
    // Plain memory, copies and fills.
    "cudaMalloc",
    "cudaFree",
    "cudaHostAlloc",
    "cudaFreeHost",
    "cudaHost(Register|Unregister|GetDevicePointer)",
    "cudaMemcpy(Async|Peer|PeerAsync)?",
    "cudaMemset(Async)?",
    "cudaMemGetInfo",
    "cudaPointerGetAttributes",
    // Versions, errors, the way to driver functions.
    "cuda(Driver|Runtime)GetVersion",
    "cudaGetError(Name|String)",
    "cuda(GetLastError|PeekAtLastError)",
    "cudaGetDriverEntryPointByVersion",
];

/// Types that no bound function mentions but whose values go through `void *`, an integer or a property word.
const TYPES: &[&str] =
    &["cudaMemFabricHandle_t", "cudaMemAllocationHandleType", "cudaMemAllocationType", "cudaGraphInstantiateFlags"];

/// Constants that are macros in the headers.
const CONSTANTS: &[&str] = &[
    "CUDART_VERSION",
    "CUDA_IPC_HANDLE_SIZE",
    "cudaStream(Default|NonBlocking)",
    "cudaEvent(Default|BlockingSync|DisableTiming|Interprocess)",
    "cudaEvent(Record|Wait)(Default|External)",
    "cudaHostAlloc(Default|Portable|Mapped|WriteCombined)",
    "cudaHostRegister(Default|Portable|Mapped|IoMemory|ReadOnly)",
    "cudaIpcMemLazyEnablePeerAccess",
    "cudaMemPoolCreateUsageHwDecompress",
    "cudaCpuDeviceId",
    "cudaInvalidDeviceId",
];

/// Generates the bindings of the headers that `wrapper` includes, found through `clang_args`.
///
/// The functions come last, as one `functions! { … }` invocation without bodies: whoever includes the file decides
/// whether they are linked or loaded.
pub fn generate(wrapper: &Path, clang_args: &[String]) -> Result<String, String> {
    let wrapper = wrapper.to_str().ok_or("the path of wrapper.h is not UTF-8")?;
    let mut builder = bindgen::Builder::default()
        .header(wrapper)
        .clang_args(clang_args)
        .rust_target(bindgen::RustTarget::stable(77, 0).map_err(|e| e.to_string())?)
        .rust_edition(bindgen::RustEdition::Edition2021)
        .use_core()
        // A C enum may hold a value that its header does not name: a Rust enum would make that undefined behaviour.
        .default_enum_style(bindgen::EnumVariation::NewType { is_bitfield: false, is_global: false })
        .derive_default(true)
        .layout_tests(true)
        .generate_comments(false)
        .merge_extern_blocks(true)
        .sort_semantically(true)
        .disable_header_comment()
        .formatter(bindgen::Formatter::None);
    for name in FUNCTIONS {
        builder = builder.allowlist_function(name);
    }
    for name in TYPES {
        builder = builder.allowlist_type(name);
    }
    for name in CONSTANTS {
        builder = builder.allowlist_var(name);
    }
    let raw = builder.generate().map_err(|e| e.to_string())?.to_string();
    reshape(&raw)
}

/// Moves the functions out of their `extern "C"` block into a `functions!` invocation, and puts the alias `c_enum`
/// for the integer of C enums, whose sign is the compiler's choice (and differs under MSVC).
fn reshape(raw: &str) -> Result<String, String> {
    let mut file = syn::parse_file(raw).map_err(|e| format!("bindgen's output does not parse: {e}"))?;
    let c_enum: syn::Type = syn::parse_str("c_enum").map_err(|e| e.to_string())?;
    let mut functions = Vec::new();
    file.items.retain_mut(|item| match item {
        syn::Item::ForeignMod(block) => {
            functions.append(&mut block.items);
            false
        }
        // Tuple structs come from C enums alone.
        syn::Item::Struct(syn::ItemStruct { fields: syn::Fields::Unnamed(fields), .. }) => {
            fields.unnamed[0].ty = c_enum.clone();
            true
        }
        _ => true,
    });
    if functions.is_empty() {
        return Err("no function found in the headers: are they CUDA's?".into());
    }
    let mut block: syn::File = syn::parse_str(r#"extern "C" {}"#).map_err(|e| e.to_string())?;
    if let [syn::Item::ForeignMod(block)] = &mut block.items[..] {
        block.items = functions;
    }
    let block = prettyplease::unparse(&block);
    let signatures = block.strip_prefix("extern \"C\" {").ok_or("the function block has an unexpected beginning")?;
    Ok(format!("{}functions! {{{signatures}", prettyplease::unparse(&file)))
}
