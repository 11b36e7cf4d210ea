//! Memory that graphs own, and its statistics per device.

use crate::support::answer::name;
use crate::support::capture::{Capture, Executable, Graph};
use crate::support::prelude::*;

area! {
    isolated: [
        captured_alloc_and_free_make_a_graph_that_runs,
        launched_graph_reserves_memory_and_trim_returns_it,
        memory_nodes_make_a_graph_that_runs,
    ],
    questions: [statistics, memory_that_outlives_its_launch, node_parameters, attribute_arguments],
}

const RESERVED_NOW: cudaGraphMemAttributeType = cudaGraphMemAttributeType::cudaGraphMemAttrReservedMemCurrent;
const RESERVED_MOST: cudaGraphMemAttributeType = cudaGraphMemAttributeType::cudaGraphMemAttrReservedMemHigh;
const USED_NOW: cudaGraphMemAttributeType = cudaGraphMemAttributeType::cudaGraphMemAttrUsedMemCurrent;
const USED_MOST: cudaGraphMemAttributeType = cudaGraphMemAttributeType::cudaGraphMemAttrUsedMemHigh;

#[track_caller]
fn attribute(attribute: cudaGraphMemAttributeType) -> u64 {
    let mut value = 0u64;
    ok!(cudaDeviceGetGraphMemAttribute(0, attribute, std::ptr::from_mut(&mut value).cast()));
    value
}

/// A graph that allocates, sets and frees a MiB, and copies a byte out in between.
fn captured(stream: &Stream, to: *mut c_void) -> Executable {
    let capture = Capture::of(stream);
    let memory = Memory::new(MIB, stream);
    ok!(cudaMemsetAsync(memory.ptr(), 9, MIB, stream.raw()));
    ok!(cudaMemcpyAsync(to, memory.at(MIB - 1), 1, cudaMemcpyKind::cudaMemcpyDefault, stream.raw()));
    memory.free();
    capture.end().expect("a valid capture").instantiate()
}

fn captured_alloc_and_free_make_a_graph_that_runs() -> Outcome {
    let stream = Stream::new();
    let host = HostMemory::new(1);
    let byte = host.ptr().cast::<u8>();
    let executable = captured(&stream, host.ptr());
    for _ in 0..3 {
        // SAFETY: pinned memory of one byte that no stream uses between synchronisations.
        unsafe { byte.write(0) };
        executable.launch(&stream);
        stream.synchronize();
        // SAFETY: as above.
        assert_eq!(unsafe { byte.read() }, 9);
    }
    Ok(())
}

fn launched_graph_reserves_memory_and_trim_returns_it() -> Outcome {
    let stream = Stream::new();
    let host = HostMemory::new(1);
    let executable = captured(&stream, host.ptr());
    executable.launch(&stream);
    stream.synchronize();
    assert!(attribute(RESERVED_MOST) >= MIB as u64, "a launch reserves what its graph allocates");
    drop(executable);
    ok!(cudaDeviceGraphMemTrim(0));
    assert_eq!(attribute(RESERVED_NOW), 0);
    Ok(())
}

fn alloc_node(graph: &Graph, size: usize) -> (cudaGraphNode_t, *mut c_void) {
    let mut parameters = parameters(size);
    let mut node = null_mut();
    ok!(cudaGraphAddMemAllocNode(&mut node, graph.raw(), null(), 0, &mut parameters));
    (node, parameters.dptr)
}

fn parameters(size: usize) -> cudaMemAllocNodeParams {
    cudaMemAllocNodeParams {
        poolProps: cudaMemPoolProps::new(PINNED, cudaMemLocation::device(0), NO_HANDLE),
        accessDescs: null(),
        accessDescCount: 0,
        bytesize: size,
        dptr: null_mut(),
    }
}

fn memory_nodes_make_a_graph_that_runs() -> Outcome {
    let stream = Stream::new();
    let graph = Graph::new();
    let (alloc, pointer) = alloc_node(&graph, MIB);
    assert!(!pointer.is_null());
    let mut free = null_mut();
    ok!(cudaGraphAddMemFreeNode(&mut free, graph.raw(), &alloc, 1, pointer));
    let mut freed = null_mut();
    ok!(cudaGraphMemFreeNodeGetParams(free, std::ptr::from_mut::<*mut c_void>(&mut freed).cast()));
    assert_eq!(freed, pointer);
    graph.instantiate().launch(&stream);
    stream.synchronize();
    Ok(())
}

fn report(when: &str) {
    say!(
        "{when}: used {} (high {}), reserved {} (high {})",
        attribute(USED_NOW),
        attribute(USED_MOST),
        attribute(RESERVED_NOW),
        attribute(RESERVED_MOST)
    );
}

fn statistics() -> Outcome {
    let stream = Stream::new();
    let host = HostMemory::new(1);
    report("at first");
    let executable = captured(&stream, host.ptr());
    report("instantiated");
    executable.launch(&stream);
    report("launched");
    stream.synchronize();
    report("synchronised");
    say!("trim: {}", name(ask!(cudaDeviceGraphMemTrim(0))));
    report("trimmed");
    executable.launch(&stream);
    stream.synchronize();
    report("launched again");
    drop(executable);
    report("destroyed");
    for high in [USED_MOST, RESERVED_MOST] {
        for mut value in [5u64, 0] {
            let value = std::ptr::from_mut(&mut value).cast();
            say!("set {high:?}: {}", name(ask!(cudaDeviceSetGraphMemAttribute(0, high, value))));
        }
    }
    report("high marks reset");
    say!("trim: {}", name(ask!(cudaDeviceGraphMemTrim(0))));
    report("trimmed");
    Ok(())
}

fn memory_that_outlives_its_launch() -> Outcome {
    let stream = Stream::new();
    let capture = Capture::of(&stream);
    let pointer = Memory::new(MIB, &stream).release();
    let executable = capture.end().expect("a valid capture").instantiate();
    executable.launch(&stream);
    stream.synchronize();
    report("launched without a free");
    say!("second launch: {}", name(ask!(cudaGraphLaunch(executable.raw(), stream.raw()))));
    say!("memset: {}", name(ask!(cudaMemsetAsync(pointer, 1, MIB, stream.raw()))));
    say!("free after the launch: {}", name(ask!(cudaFreeAsync(pointer, stream.raw()))));
    stream.synchronize();
    report("freed");
    say!("third launch: {}", name(ask!(cudaGraphLaunch(executable.raw(), stream.raw()))));
    stream.synchronize();
    let mut attributes = cudaPointerAttributes::default();
    let answer = ask!(cudaPointerGetAttributes(&mut attributes, pointer));
    say!("attributes: {}, type {}, device {}", name(answer), attributes.type_.0, attributes.device);
    Ok(())
}

fn node_parameters() -> Outcome {
    let graph = Graph::new();
    let (alloc, pointer) = alloc_node(&graph, 1000);
    let mut back = parameters(0);
    let answer = ask!(cudaGraphMemAllocNodeGetParams(alloc, &mut back));
    say!("{}: size {}, pointer the same {}", name(answer), back.bytesize, back.dptr == pointer);
    let mut node = null_mut();
    let mut zero = parameters(0);
    let answer = ask!(cudaGraphAddMemAllocNode(&mut node, graph.raw(), null(), 0, &mut zero));
    say!("size 0: {}, pointer {:?}", name(answer), zero.dptr);
    let odd = 0x1234 as *mut c_void;
    say!("free node of 0x1234: {}", name(ask!(cudaGraphAddMemFreeNode(&mut node, graph.raw(), null(), 0, odd))));
    say!("free node: {}", name(ask!(cudaGraphAddMemFreeNode(&mut node, graph.raw(), &alloc, 1, pointer))));
    say!("second free node: {}", name(ask!(cudaGraphAddMemFreeNode(&mut node, graph.raw(), &alloc, 1, pointer))));
    let mut host = parameters(100);
    host.poolProps = cudaMemPoolProps::new(PINNED, cudaMemLocation::host(), NO_HANDLE);
    let answer = ask!(cudaGraphAddMemAllocNode(&mut node, graph.raw(), null(), 0, &mut host));
    say!("on the host: {}", name(answer));
    let mut fd = parameters(100);
    fd.poolProps = cudaMemPoolProps::new(PINNED, cudaMemLocation::device(0), FD);
    let answer = ask!(cudaGraphAddMemAllocNode(&mut node, graph.raw(), null(), 0, &mut fd));
    say!("with a handle type: {}", name(answer));
    Ok(())
}

fn attribute_arguments() -> Outcome {
    let mut value = 0u64;
    let out: *mut c_void = std::ptr::from_mut(&mut value).cast();
    let unknown = cudaGraphMemAttributeType(0x7fff_ffff);
    say!("unknown attribute: {}", name(ask!(cudaDeviceGetGraphMemAttribute(0, unknown, out))));
    say!("device 77: {}", name(ask!(cudaDeviceGetGraphMemAttribute(NO_DEVICE, USED_NOW, out))));
    say!("null value: {}", name(ask!(cudaDeviceGetGraphMemAttribute(0, USED_NOW, null_mut()))));
    say!("set current: {}", name(ask!(cudaDeviceSetGraphMemAttribute(0, USED_NOW, out))));
    say!("trim of device 77: {}", name(ask!(cudaDeviceGraphMemTrim(NO_DEVICE))));
    Ok(())
}
