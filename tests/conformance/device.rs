//! Device attributes.

use crate::support::prelude::*;

area! {
    facts: [
        attributes_of_a_device_of_today,
        no_device_attribute_of_a_device_that_is_not_there,
        handle_types_are_those_that_pools_can_be_made_with,
        host_numa_id_is_a_node_that_pools_can_be_made_on,
        host_pools_can_be_made_where_the_attribute_says_so,
        interprocess_events_can_be_made_where_the_attribute_says_so,
    ],
    questions: [attributes, attribute_that_does_not_exist, identity],
}

/// Of a device of compute capability 9 with a driver for 13.0 or later.
fn attributes_of_a_device_of_today() -> Outcome {
    if machine::attribute(COMPUTE_CAPABILITY_MAJOR) != Some(9) || machine::driver_version() < 13000 {
        return Skip::because("measured with compute capability 9 and a driver for CUDA 13.0");
    }
    let expect = |attribute, expected: &[i32]| {
        let value = machine::attribute(attribute);
        assert!(value.is_some_and(|v| expected.contains(&v)), "{attribute:?}: {value:?}, expected {expected:?}");
    };
    expect(MEMORY_POOLS_SUPPORTED, &[1]);
    // File descriptors always, fabric handles where the system is made for them.
    expect(MEMORY_POOL_SUPPORTED_HANDLE_TYPES, &[1, 1 | 8]);
    expect(HOST_MEMORY_POOLS_SUPPORTED, &[1]);
    expect(HOST_NUMA_MEMORY_POOLS_SUPPORTED, &[1]);
    expect(HOST_NUMA_MULTINODE_IPC_SUPPORTED, &[0, 1]);
    expect(CONCURRENT_MANAGED_ACCESS, &[1]);
    // A kernel with heterogeneous memory management makes it 1.
    expect(PAGEABLE_MEMORY_ACCESS, &[0, 1]);
    expect(IPC_EVENT_SUPPORT, &[1]);
    // A node of its own has only the memory of devices such as GH200.
    if cfg!(target_arch = "x86_64") {
        expect(NUMA_ID, &[-1]);
    }
    Ok(())
}

fn no_device_attribute_of_a_device_that_is_not_there() -> Outcome {
    let mut value = 0;
    answers!(cudaDeviceGetAttribute(&mut value, MEMORY_POOLS_SUPPORTED, NO_DEVICE) => cudaErrorInvalidDevice);
    Ok(())
}

fn handle_types_are_those_that_pools_can_be_made_with() -> Outcome {
    for handle in [FD, FABRIC] {
        if machine::pools_have(handle) {
            Pool::on_device(0, handle);
        }
    }
    Ok(())
}

fn host_numa_id_is_a_node_that_pools_can_be_made_on() -> Outcome {
    let node = machine::host_numa_node()?;
    assert!(machine::has_node(node) || node == 0, "the system has no node {node}");
    Pool::host_numa(NO_HANDLE)?;
    Ok(())
}

fn host_pools_can_be_made_where_the_attribute_says_so() -> Outcome {
    Pool::host()?;
    Ok(())
}

fn interprocess_events_can_be_made_where_the_attribute_says_so() -> Outcome {
    if machine::attribute(IPC_EVENT_SUPPORT) != Some(1) {
        return Skip::because("no interprocess events");
    }
    Event::with_flags(cudaEventDisableTiming | cudaEventInterprocess);
    Ok(())
}

fn attributes() -> Outcome {
    for (name, attribute) in [
        ("MemoryPoolsSupported", MEMORY_POOLS_SUPPORTED),
        ("MemoryPoolSupportedHandleTypes", MEMORY_POOL_SUPPORTED_HANDLE_TYPES),
        ("HostNumaId", HOST_NUMA_ID),
        ("NumaId", NUMA_ID),
        ("HostMemoryPoolsSupported", HOST_MEMORY_POOLS_SUPPORTED),
        ("HostNumaMemoryPoolsSupported", HOST_NUMA_MEMORY_POOLS_SUPPORTED),
        ("HostNumaMultinodeIpcSupported", HOST_NUMA_MULTINODE_IPC_SUPPORTED),
        ("ConcurrentManagedAccess", CONCURRENT_MANAGED_ACCESS),
        ("PageableMemoryAccess", PAGEABLE_MEMORY_ACCESS),
        ("IpcEventSupport", IPC_EVENT_SUPPORT),
    ] {
        say!("{name}: {:?}", machine::attribute(attribute));
    }
    Ok(())
}

fn attribute_that_does_not_exist() -> Outcome {
    let mut value = -5;
    let answer = ask!(cudaDeviceGetAttribute(&mut value, cudaDeviceAttr(0x7fff_ffff), 0));
    say!("answer {}, out value {value}", crate::support::answer::name(answer));
    Ok(())
}

fn identity() -> Outcome {
    let (free, total) = machine::memory();
    say!("driver {}, runtime {}", machine::driver_version(), machine::runtime_version());
    say!("{} devices, memory {free} free of {total}", machine::devices());
    say!("loaded from {:?}", runtime().ok().and_then(Runtime::path));
    Ok(())
}
