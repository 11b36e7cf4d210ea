//! Names and texts of the errors.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::OnceLock;

use crate::cuda::cudaError;
use crate::Outcome;

macro_rules! errors {
    ($($name:ident)*) => {
        /// Every error that the bindings know, with its name.
        const ERRORS: &[(u32, &str)] = &[$((cudaError::$name.0, stringify!($name))),*];
    };
}

errors! {
    cudaSuccess
    cudaErrorInvalidValue
    cudaErrorMemoryAllocation
    cudaErrorInitializationError
    cudaErrorCudartUnloading
    cudaErrorProfilerDisabled
    cudaErrorProfilerNotInitialized
    cudaErrorProfilerAlreadyStarted
    cudaErrorProfilerAlreadyStopped
    cudaErrorInvalidConfiguration
    cudaErrorVersionTranslation
    cudaErrorInvalidPitchValue
    cudaErrorInvalidSymbol
    cudaErrorInvalidHostPointer
    cudaErrorInvalidDevicePointer
    cudaErrorInvalidTexture
    cudaErrorInvalidTextureBinding
    cudaErrorInvalidChannelDescriptor
    cudaErrorInvalidMemcpyDirection
    cudaErrorAddressOfConstant
    cudaErrorTextureFetchFailed
    cudaErrorTextureNotBound
    cudaErrorSynchronizationError
    cudaErrorInvalidFilterSetting
    cudaErrorInvalidNormSetting
    cudaErrorMixedDeviceExecution
    cudaErrorNotYetImplemented
    cudaErrorMemoryValueTooLarge
    cudaErrorStubLibrary
    cudaErrorInsufficientDriver
    cudaErrorCallRequiresNewerDriver
    cudaErrorInvalidSurface
    cudaErrorDuplicateVariableName
    cudaErrorDuplicateTextureName
    cudaErrorDuplicateSurfaceName
    cudaErrorDevicesUnavailable
    cudaErrorIncompatibleDriverContext
    cudaErrorMissingConfiguration
    cudaErrorPriorLaunchFailure
    cudaErrorLaunchMaxDepthExceeded
    cudaErrorLaunchFileScopedTex
    cudaErrorLaunchFileScopedSurf
    cudaErrorSyncDepthExceeded
    cudaErrorLaunchPendingCountExceeded
    cudaErrorInvalidDeviceFunction
    cudaErrorNoDevice
    cudaErrorInvalidDevice
    cudaErrorDeviceNotLicensed
    cudaErrorSoftwareValidityNotEstablished
    cudaErrorStartupFailure
    cudaErrorInvalidKernelImage
    cudaErrorDeviceUninitialized
    cudaErrorMapBufferObjectFailed
    cudaErrorUnmapBufferObjectFailed
    cudaErrorArrayIsMapped
    cudaErrorAlreadyMapped
    cudaErrorNoKernelImageForDevice
    cudaErrorAlreadyAcquired
    cudaErrorNotMapped
    cudaErrorNotMappedAsArray
    cudaErrorNotMappedAsPointer
    cudaErrorECCUncorrectable
    cudaErrorUnsupportedLimit
    cudaErrorDeviceAlreadyInUse
    cudaErrorPeerAccessUnsupported
    cudaErrorInvalidPtx
    cudaErrorInvalidGraphicsContext
    cudaErrorNvlinkUncorrectable
    cudaErrorJitCompilerNotFound
    cudaErrorUnsupportedPtxVersion
    cudaErrorJitCompilationDisabled
    cudaErrorUnsupportedExecAffinity
    cudaErrorUnsupportedDevSideSync
    cudaErrorContained
    cudaErrorInsufficientLoaderVersion
    cudaErrorInvalidSource
    cudaErrorFileNotFound
    cudaErrorSharedObjectSymbolNotFound
    cudaErrorSharedObjectInitFailed
    cudaErrorOperatingSystem
    cudaErrorInvalidResourceHandle
    cudaErrorIllegalState
    cudaErrorLossyQuery
    cudaErrorSymbolNotFound
    cudaErrorNotReady
    cudaErrorIllegalAddress
    cudaErrorLaunchOutOfResources
    cudaErrorLaunchTimeout
    cudaErrorLaunchIncompatibleTexturing
    cudaErrorPeerAccessAlreadyEnabled
    cudaErrorPeerAccessNotEnabled
    cudaErrorSetOnActiveProcess
    cudaErrorContextIsDestroyed
    cudaErrorAssert
    cudaErrorTooManyPeers
    cudaErrorHostMemoryAlreadyRegistered
    cudaErrorHostMemoryNotRegistered
    cudaErrorHardwareStackError
    cudaErrorIllegalInstruction
    cudaErrorMisalignedAddress
    cudaErrorInvalidAddressSpace
    cudaErrorInvalidPc
    cudaErrorLaunchFailure
    cudaErrorCooperativeLaunchTooLarge
    cudaErrorTensorMemoryLeak
    cudaErrorNotPermitted
    cudaErrorNotSupported
    cudaErrorSystemNotReady
    cudaErrorSystemDriverMismatch
    cudaErrorCompatNotSupportedOnDevice
    cudaErrorMpsConnectionFailed
    cudaErrorMpsRpcFailure
    cudaErrorMpsServerNotReady
    cudaErrorMpsMaxClientsReached
    cudaErrorMpsMaxConnectionsReached
    cudaErrorMpsClientTerminated
    cudaErrorCdpNotSupported
    cudaErrorCdpVersionMismatch
    cudaErrorStreamCaptureUnsupported
    cudaErrorStreamCaptureInvalidated
    cudaErrorStreamCaptureMerge
    cudaErrorStreamCaptureUnmatched
    cudaErrorStreamCaptureUnjoined
    cudaErrorStreamCaptureIsolation
    cudaErrorStreamCaptureImplicit
    cudaErrorCapturedEvent
    cudaErrorStreamCaptureWrongThread
    cudaErrorTimeout
    cudaErrorGraphExecUpdateFailure
    cudaErrorExternalDevice
    cudaErrorInvalidClusterSize
    cudaErrorFunctionNotLoaded
    cudaErrorInvalidResourceType
    cudaErrorInvalidResourceConfiguration
    cudaErrorStreamDetached
    cudaErrorGraphRecaptureFailure
    cudaErrorFabricNotReady
    cudaErrorUnknown
    cudaErrorApiFailureBase
}

/// The name of an error, as in C.
pub fn name(error: cudaError) -> &'static CStr {
    table().get(&error.0).map_or(c"unrecognized error code", |texts| &texts.name)
}

/// What an error means: the words of its name.
pub fn text(error: cudaError) -> &'static CStr {
    table().get(&error.0).map_or(c"unrecognized error code", |texts| &texts.text)
}

/// The name of an error as the driver writes it: `CUDA_ERROR_INVALID_VALUE`.
///
/// # Errors
/// Invalid value when the error is not known.
pub fn driver_name(error: cudaError) -> Outcome<&'static CStr> {
    table().get(&error.0).map(|texts| texts.driver_name.as_c_str()).ok_or(cudaError::cudaErrorInvalidValue)
}

struct Texts {
    name: CString,
    text: CString,
    driver_name: CString,
}

fn table() -> &'static HashMap<u32, Texts> {
    static TABLE: OnceLock<HashMap<u32, Texts>> = OnceLock::new();
    let c_string = |text: &str| CString::new(text).expect("names hold no NUL");
    let texts = |code, name| {
        let text = words(name);
        let driver_name = c_string(&match cudaError(code) {
            cudaError::cudaSuccess => "CUDA_SUCCESS".to_owned(),
            // The driver has other words for these.
            cudaError::cudaErrorMemoryAllocation => "CUDA_ERROR_OUT_OF_MEMORY".to_owned(),
            cudaError::cudaErrorInitializationError => "CUDA_ERROR_NOT_INITIALIZED".to_owned(),
            cudaError::cudaErrorCudartUnloading => "CUDA_ERROR_DEINITIALIZED".to_owned(),
            cudaError::cudaErrorInvalidResourceHandle => "CUDA_ERROR_INVALID_HANDLE".to_owned(),
            _ => format!("CUDA_ERROR_{}", text.to_ascii_uppercase().replace(' ', "_")),
        });
        Texts { name: c_string(name), text: c_string(&text), driver_name }
    };
    TABLE.get_or_init(|| ERRORS.iter().map(|(code, name)| (*code, texts(*code, name))).collect())
}

/// `cudaErrorInvalidValue` as `invalid value`.
fn words(name: &str) -> String {
    let name = name.strip_prefix("cudaError").or(name.strip_prefix("cuda")).unwrap_or(name);
    let mut words = String::new();
    let mut before = None::<char>;
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && before.is_some_and(|before| before.is_ascii_lowercase()) {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
        before = Some(letter);
    }
    words
}
