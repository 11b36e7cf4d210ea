//! Graphs and capture.

use crate::cuda::*;
use crate::Outcome;
use std::ffi::*;

pub unsafe fn cudaStreamBeginCapture(_stream: cudaStream_t, _mode: cudaStreamCaptureMode) -> Outcome {
    Err(cudaError::cudaErrorNotSupported)
}

pub unsafe fn cudaThreadExchangeStreamCaptureMode(_mode: *mut cudaStreamCaptureMode) -> Outcome {
    Err(cudaError::cudaErrorNotSupported)
}

pub unsafe fn cudaStreamEndCapture(_stream: cudaStream_t, _pGraph: *mut cudaGraph_t) -> Outcome {
    Err(cudaError::cudaErrorNotSupported)
}

pub unsafe fn cudaStreamIsCapturing(_stream: cudaStream_t, _pCaptureStatus: *mut cudaStreamCaptureStatus) -> Outcome {
    Err(cudaError::cudaErrorNotSupported)
}

pub unsafe fn cudaGraphCreate(_pGraph: *mut cudaGraph_t, _flags: c_uint) -> Outcome {
    Err(cudaError::cudaErrorNotSupported)
}

pub unsafe fn cudaGraphAddMemAllocNode(
    _pGraphNode: *mut cudaGraphNode_t,
    _graph: cudaGraph_t,
    _pDependencies: *const cudaGraphNode_t,
    _numDependencies: usize,
    _nodeParams: *mut cudaMemAllocNodeParams,
) -> Outcome {
    Err(cudaError::cudaErrorNotSupported)
}

pub unsafe fn cudaGraphMemAllocNodeGetParams(
    _node: cudaGraphNode_t,
    _params_out: *mut cudaMemAllocNodeParams,
) -> Outcome {
    Err(cudaError::cudaErrorNotSupported)
}

pub unsafe fn cudaGraphAddMemFreeNode(
    _pGraphNode: *mut cudaGraphNode_t,
    _graph: cudaGraph_t,
    _pDependencies: *const cudaGraphNode_t,
    _numDependencies: usize,
    _dptr: *mut c_void,
) -> Outcome {
    Err(cudaError::cudaErrorNotSupported)
}

pub unsafe fn cudaGraphMemFreeNodeGetParams(_node: cudaGraphNode_t, _dptr_out: *mut c_void) -> Outcome {
    Err(cudaError::cudaErrorNotSupported)
}

pub unsafe fn cudaDeviceGraphMemTrim(_device: c_int) -> Outcome {
    Err(cudaError::cudaErrorNotSupported)
}

pub unsafe fn cudaDeviceGetGraphMemAttribute(
    _device: c_int,
    _attr: cudaGraphMemAttributeType,
    _value: *mut c_void,
) -> Outcome {
    Err(cudaError::cudaErrorNotSupported)
}

pub unsafe fn cudaDeviceSetGraphMemAttribute(
    _device: c_int,
    _attr: cudaGraphMemAttributeType,
    _value: *mut c_void,
) -> Outcome {
    Err(cudaError::cudaErrorNotSupported)
}

pub unsafe fn cudaGraphInstantiateWithFlags(
    _pGraphExec: *mut cudaGraphExec_t,
    _graph: cudaGraph_t,
    _flags: c_ulonglong,
) -> Outcome {
    Err(cudaError::cudaErrorNotSupported)
}

pub unsafe fn cudaGraphLaunch(_graphExec: cudaGraphExec_t, _stream: cudaStream_t) -> Outcome {
    Err(cudaError::cudaErrorNotSupported)
}

pub unsafe fn cudaGraphExecDestroy(_graphExec: cudaGraphExec_t) -> Outcome {
    Err(cudaError::cudaErrorNotSupported)
}

pub unsafe fn cudaGraphDestroy(_graph: cudaGraph_t) -> Outcome {
    Err(cudaError::cudaErrorNotSupported)
}
