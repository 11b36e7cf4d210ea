//! What the README promises is bound, under every version that has it.

use crate::parsed;

/// Functions by the first version that must have them.
const FUNCTIONS: &[(u32, &[&str])] = &[
    (
        11080,
        &[
            "cudaMallocAsync",
            "cudaMallocFromPoolAsync",
            "cudaFreeAsync",
            "cudaMemPoolCreate",
            "cudaMemPoolDestroy",
            "cudaMemPoolSetAttribute",
            "cudaMemPoolGetAttribute",
            "cudaMemPoolSetAccess",
            "cudaMemPoolGetAccess",
            "cudaMemPoolTrimTo",
            "cudaMemPoolExportToShareableHandle",
            "cudaMemPoolImportFromShareableHandle",
            "cudaMemPoolExportPointer",
            "cudaMemPoolImportPointer",
            "cudaDeviceGetDefaultMemPool",
            "cudaDeviceGetMemPool",
            "cudaDeviceSetMemPool",
            "cudaIpcGetEventHandle",
            "cudaIpcOpenEventHandle",
            "cudaIpcGetMemHandle",
            "cudaIpcOpenMemHandle",
            "cudaIpcCloseMemHandle",
            "cudaGraphAddMemAllocNode",
            "cudaGraphMemAllocNodeGetParams",
            "cudaGraphAddMemFreeNode",
            "cudaGraphMemFreeNodeGetParams",
            "cudaDeviceGetGraphMemAttribute",
            "cudaDeviceSetGraphMemAttribute",
            "cudaDeviceGraphMemTrim",
            "cudaStreamCreate",
            "cudaStreamCreateWithFlags",
            "cudaStreamCreateWithPriority",
            "cudaStreamDestroy",
            "cudaStreamQuery",
            "cudaStreamSynchronize",
            "cudaStreamWaitEvent",
            "cudaStreamGetFlags",
            "cudaStreamGetPriority",
            "cudaStreamIsCapturing",
            "cudaDeviceGetStreamPriorityRange",
            "cudaEventCreate",
            "cudaEventCreateWithFlags",
            "cudaEventRecord",
            "cudaEventRecordWithFlags",
            "cudaEventQuery",
            "cudaEventSynchronize",
            "cudaEventElapsedTime",
            "cudaEventDestroy",
            "cudaLaunchHostFunc",
            "cudaGetDeviceCount",
            "cudaGetDevice",
            "cudaSetDevice",
            "cudaDeviceGetAttribute",
            "cudaDeviceCanAccessPeer",
            "cudaDeviceEnablePeerAccess",
            "cudaDeviceDisablePeerAccess",
            "cudaDeviceSynchronize",
            "cudaMemcpy",
            "cudaMemcpyAsync",
            "cudaMemcpyPeer",
            "cudaMemcpyPeerAsync",
            "cudaMemset",
            "cudaMemsetAsync",
            "cudaMalloc",
            "cudaFree",
            "cudaHostAlloc",
            "cudaFreeHost",
            "cudaHostRegister",
            "cudaHostUnregister",
            "cudaHostGetDevicePointer",
            "cudaMemGetInfo",
            "cudaPointerGetAttributes",
            "cudaDriverGetVersion",
            "cudaRuntimeGetVersion",
            "cudaGetErrorName",
            "cudaGetErrorString",
            "cudaGetLastError",
            "cudaPeekAtLastError",
        ],
    ),
    (12050, &["cudaGetDriverEntryPointByVersion"]),
    (12080, &["cudaStreamGetDevice"]),
    (13000, &["cudaMemGetDefaultMemPool", "cudaMemGetMemPool", "cudaMemSetMemPool"]),
];

/// Constants of C enums by the first version that must have them.
const CONSTANTS: &[(u32, &[(&str, &str)])] = &[
    (
        11080,
        &[
            ("cudaError", "cudaErrorCudartUnloading"),
            ("cudaMemPoolAttr", "cudaMemPoolAttrReleaseThreshold"),
            ("cudaMemPoolAttr", "cudaMemPoolAttrUsedMemHigh"),
            ("cudaMemAllocationHandleType", "cudaMemHandleTypePosixFileDescriptor"),
            ("cudaMemAccessFlags", "cudaMemAccessFlagsProtReadWrite"),
            ("cudaGraphMemAttributeType", "cudaGraphMemAttrReservedMemHigh"),
            ("cudaStreamCaptureMode", "cudaStreamCaptureModeThreadLocal"),
            ("cudaDeviceAttr", "cudaDevAttrMemoryPoolSupportedHandleTypes"),
        ],
    ),
    (12020, &[("cudaMemLocationType", "cudaMemLocationTypeHostNuma"), ("cudaDeviceAttr", "cudaDevAttrHostNumaId")]),
    (12040, &[("cudaMemAllocationHandleType", "cudaMemHandleTypeFabric")]),
    (12050, &[("cudaDriverEntryPointQueryResult", "cudaDriverEntryPointVersionNotSufficent")]),
    (12090, &[("cudaDeviceAttr", "cudaDevAttrHostNumaMemoryPoolsSupported")]),
    (13000, &[("cudaMemAllocationType", "cudaMemAllocationTypeManaged")]),
    (13020, &[("cudaMemPoolAttr", "cudaMemPoolAttrHwDecompressEnabled")]),
];

#[test]
fn all_supported_versions_are_there() {
    let versions: Vec<_> = parsed::all().iter().map(|bindings| bindings.number()).collect();
    let expected = [
        11080, 12000, 12010, 12020, 12030, 12040, 12050, 12060, 12080, 12090, 13000, 13010, 13020, 13030, 13040, 13050,
    ];
    assert_eq!(versions, expected);
}

#[test]
fn every_promised_name_is_bound() {
    for bindings in parsed::all() {
        for (_, names) in FUNCTIONS.iter().filter(|(since, _)| *since <= bindings.number()) {
            for name in *names {
                assert!(bindings.functions.contains_key(*name), "{name} is missing under {}", bindings.version);
            }
        }
        for (_, names) in CONSTANTS.iter().filter(|(since, _)| *since <= bindings.number()) {
            for (of, name) in *names {
                let key = ((*of).to_owned(), (*name).to_owned());
                assert!(bindings.enum_values.contains_key(&key), "{name} is missing under {}", bindings.version);
            }
        }
    }
}

#[test]
fn the_version_constant_is_the_files_own() {
    for bindings in parsed::all() {
        assert_eq!(bindings.macros["CUDART_VERSION"], u64::from(bindings.number()));
    }
}

/// A Rust enum over a C int would make a value that a newer driver returns undefined behaviour.
#[test]
fn no_rust_enum_stands_for_a_c_one() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("cuda-mempool-sys/src/bindings");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let file = syn::parse_file(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert!(!file.items.iter().any(|item| matches!(item, syn::Item::Enum(_))), "{}", path.display());
    }
}
