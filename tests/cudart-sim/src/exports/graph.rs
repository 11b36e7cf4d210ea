//! Graphs, their memory nodes and memory.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use super::{current, give, require};
use crate::cuda::{
    cudaError, cudaGraphExec_t, cudaGraphInstantiateFlags, cudaGraphMemAttributeType, cudaGraphNode_t, cudaGraph_t,
    cudaMemAllocNodeParams, cudaMemAllocationType, cudaMemLocation, cudaMemLocationType, cudaMemLocation__bindgen_ty_1,
    cudaMemPoolProps, cudaStream_t,
};
use crate::graph::{Action, Graph, NodeAt};
use crate::handles::Id;
use crate::memory::allocation::Kind;
use crate::sim::{self, Sim};
use crate::Outcome;

pub unsafe fn cudaGraphCreate(pGraph: *mut cudaGraph_t, flags: c_uint) -> Outcome {
    require(!pGraph.is_null() && flags == 0)?;
    let id = sim::lock().graphs.insert(Graph::default());
    // SAFETY: the caller's out pointer.
    unsafe { give(pGraph, id.as_raw()) }
}

pub unsafe fn cudaGraphDestroy(graph: cudaGraph_t) -> Outcome {
    let mut sim = sim::lock();
    let id = Id::from_raw(graph);
    let graph = sim.graphs.remove(id).ok_or(cudaError::cudaErrorInvalidValue)?;
    let nodes: Vec<_> = sim.nodes.iter().filter(|(_, node)| node.graph == id).map(|(id, _)| id).collect();
    for node in nodes {
        sim.nodes.remove(node);
    }
    sim.drop_graph(&graph);
    Ok(())
}

pub unsafe fn cudaGraphInstantiateWithFlags(
    pGraphExec: *mut cudaGraphExec_t,
    graph: cudaGraph_t,
    flags: c_ulonglong,
) -> Outcome {
    const AUTO_FREE: c_ulonglong = cudaGraphInstantiateFlags::cudaGraphInstantiateFlagAutoFreeOnLaunch.0 as c_ulonglong;
    const UPLOAD: c_ulonglong = cudaGraphInstantiateFlags::cudaGraphInstantiateFlagUpload.0 as c_ulonglong;
    const PRIORITY: c_ulonglong = cudaGraphInstantiateFlags::cudaGraphInstantiateFlagUseNodePriority.0 as c_ulonglong;
    require(!pGraphExec.is_null() && flags & !(AUTO_FREE | UPLOAD | PRIORITY) == 0)?;
    let mut sim = sim::lock();
    let graph = sim.graphs.get(Id::from_raw(graph)).ok_or(cudaError::cudaErrorInvalidValue)?.clone();
    let exec = sim.instantiate(&graph, flags & AUTO_FREE != 0);
    let id = sim.execs.insert(exec);
    // SAFETY: the caller's out pointer.
    unsafe { give(pGraphExec, id.as_raw()) }
}

pub unsafe fn cudaGraphLaunch(graphExec: cudaGraphExec_t, stream: cudaStream_t) -> Outcome {
    let mut sim = sim::lock();
    let stream = current::stream(&mut sim, stream)?;
    if sim.valid_capture_of(stream)?.is_some() {
        // A graph inside a graph is beyond this simulator.
        return Err(cudaError::cudaErrorNotSupported);
    }
    sim.launch(Id::from_raw(graphExec), stream)
}

pub unsafe fn cudaGraphExecDestroy(graphExec: cudaGraphExec_t) -> Outcome {
    let mut sim = sim::lock();
    let exec = sim.execs.remove(Id::from_raw(graphExec)).ok_or(cudaError::cudaErrorInvalidValue)?;
    sim.drop_exec(&exec);
    Ok(())
}

pub unsafe fn cudaGraphAddMemAllocNode(
    pGraphNode: *mut cudaGraphNode_t,
    graph: cudaGraph_t,
    pDependencies: *const cudaGraphNode_t,
    numDependencies: usize,
    nodeParams: *mut cudaMemAllocNodeParams,
) -> Outcome {
    require(!pGraphNode.is_null() && !nodeParams.is_null())?;
    // SAFETY: the caller's struct.
    let params = unsafe { &mut *nodeParams };
    let props = params.poolProps;
    let on_device = props.allocType == cudaMemAllocationType::cudaMemAllocationTypePinned
        && props.location.type_ == cudaMemLocationType::cudaMemLocationTypeDevice;
    require(on_device && props.handleTypes.0 == 0 && params.bytesize > 0)?;
    let mut sim = sim::lock();
    // SAFETY: both arms are plain integers.
    let device = sim.device(unsafe { props.location.__bindgen_anon_1.id })?;
    // SAFETY: the caller's list.
    let after = unsafe { dependencies(&sim, graph, pDependencies, numDependencies)? };
    let base = sim.graph_allocation(device, params.bytesize)?;
    params.dptr = base as *mut c_void;
    let node = add_node(&mut sim, graph, after, Action::Alloc(base))?;
    // SAFETY: the caller's out pointer.
    unsafe { give(pGraphNode, node) }
}

pub unsafe fn cudaGraphMemAllocNodeGetParams(
    node: cudaGraphNode_t,
    params_out: *mut cudaMemAllocNodeParams,
) -> Outcome {
    let sim = sim::lock();
    let Action::Alloc(base) = *action(&sim, node)? else { return Err(cudaError::cudaErrorInvalidValue) };
    let (bytesize, device) = sim.graph_allocation_at(base).ok_or(cudaError::cudaErrorInvalidValue)?;
    let poolProps = cudaMemPoolProps {
        allocType: cudaMemAllocationType::cudaMemAllocationTypePinned,
        location: cudaMemLocation {
            type_: cudaMemLocationType::cudaMemLocationTypeDevice,
            __bindgen_anon_1: cudaMemLocation__bindgen_ty_1 { id: device as c_int },
        },
        ..Default::default()
    };
    let params = cudaMemAllocNodeParams { poolProps, bytesize, dptr: base as *mut c_void, ..Default::default() };
    // SAFETY: the caller's out pointer.
    unsafe { give(params_out, params) }
}

pub unsafe fn cudaGraphAddMemFreeNode(
    pGraphNode: *mut cudaGraphNode_t,
    graph: cudaGraph_t,
    pDependencies: *const cudaGraphNode_t,
    numDependencies: usize,
    dptr: *mut c_void,
) -> Outcome {
    require(!pGraphNode.is_null())?;
    let mut sim = sim::lock();
    let base = dptr as usize;
    require(sim.space.at(base).is_some_and(|allocation| allocation.kind == Kind::Graph))?;
    // SAFETY: the caller's list.
    let after = unsafe { dependencies(&sim, graph, pDependencies, numDependencies)? };
    let node = add_node(&mut sim, graph, after, Action::Free(base))?;
    // SAFETY: the caller's out pointer.
    unsafe { give(pGraphNode, node) }
}

pub unsafe fn cudaGraphMemFreeNodeGetParams(node: cudaGraphNode_t, dptr_out: *mut c_void) -> Outcome {
    let sim = sim::lock();
    let Action::Free(base) = *action(&sim, node)? else { return Err(cudaError::cudaErrorInvalidValue) };
    // SAFETY: the caller's pointer is one to a pointer.
    unsafe { give(dptr_out.cast(), base as *mut c_void) }
}

/// The nodes a new one shall come after.
///
/// # Safety
/// `list` must be valid for `count` handles.
unsafe fn dependencies(
    sim: &Sim,
    graph: cudaGraph_t,
    list: *const cudaGraphNode_t,
    count: usize,
) -> Outcome<Vec<usize>> {
    require(sim.graphs.get(Id::from_raw(graph)).is_some() && (count == 0 || !list.is_null()))?;
    let index = |at| {
        // SAFETY: the caller's promise.
        let handle = unsafe { *list.add(at) };
        let node = sim.nodes.get(Id::from_raw(handle)).filter(|node| node.graph == Id::from_raw(graph));
        node.map(|node| node.index).ok_or(cudaError::cudaErrorInvalidValue)
    };
    (0..count).map(index).collect()
}

fn add_node(sim: &mut Sim, graph: cudaGraph_t, after: Vec<usize>, action: Action) -> Outcome<cudaGraphNode_t> {
    let graph = Id::from_raw(graph);
    if let Action::Alloc(base) | Action::Free(base) = action {
        sim.use_memory_at(base);
    }
    let index = sim.graphs.get_mut(graph).ok_or(cudaError::cudaErrorInvalidValue)?.add(after, action);
    Ok(sim.nodes.insert(NodeAt { graph, index }).as_raw())
}

fn action(sim: &Sim, node: cudaGraphNode_t) -> Outcome<&Action> {
    let invalid = cudaError::cudaErrorInvalidValue;
    let at = sim.nodes.get(Id::from_raw(node)).ok_or(invalid)?;
    let graph = sim.graphs.get(at.graph).ok_or(invalid)?;
    Ok(&graph.nodes[at.index].action)
}

pub unsafe fn cudaDeviceGraphMemTrim(device: c_int) -> Outcome {
    let mut sim = sim::lock();
    let device = sim.device(device)?;
    sim.trim_graph_memory(device);
    Ok(())
}

pub unsafe fn cudaDeviceGetGraphMemAttribute(
    device: c_int,
    attr: cudaGraphMemAttributeType,
    value: *mut c_void,
) -> Outcome {
    let mut sim = sim::lock();
    let device = sim.device(device)?;
    let usage = sim.graph_memory.usage.entry(device).or_default();
    let bytes = match attr {
        cudaGraphMemAttributeType::cudaGraphMemAttrUsedMemCurrent => usage.used,
        cudaGraphMemAttributeType::cudaGraphMemAttrUsedMemHigh => usage.used_high,
        cudaGraphMemAttributeType::cudaGraphMemAttrReservedMemCurrent => usage.reserved,
        cudaGraphMemAttributeType::cudaGraphMemAttrReservedMemHigh => usage.reserved_high,
        _ => return Err(cudaError::cudaErrorInvalidValue),
    };
    // SAFETY: the caller's pointer is one to a 64-bit number.
    unsafe { give(value.cast(), bytes) }
}

pub unsafe fn cudaDeviceSetGraphMemAttribute(
    device: c_int,
    attr: cudaGraphMemAttributeType,
    value: *mut c_void,
) -> Outcome {
    require(!value.is_null())?;
    let mut sim = sim::lock();
    let device = sim.device(device)?;
    // SAFETY: the caller's pointer is one to a 64-bit number.
    require(unsafe { value.cast::<u64>().read() } == 0)?;
    let usage = sim.graph_memory.usage.entry(device).or_default();
    match attr {
        cudaGraphMemAttributeType::cudaGraphMemAttrUsedMemHigh => usage.used_high = usage.used,
        cudaGraphMemAttributeType::cudaGraphMemAttrReservedMemHigh => usage.reserved_high = usage.reserved,
        _ => return Err(cudaError::cudaErrorInvalidValue),
    }
    Ok(())
}
