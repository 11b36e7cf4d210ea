//! Memory is where it was asked for, or the error says what is missing.

use std::ffi::{c_int, c_ulong, c_void};

use cuda_mempool::host::{NumaAllocator, PinnedBox};
use cuda_mempool::{Device, ErrorKind, Location};

use crate::{alone, node_of, on_simulator, pinned, skip, with_each_kind};

pub fn near_a_device_is_its_node() {
    alone(|device| {
        let expected = device.host_numa_node()?.expect("the device tells its node");
        assert_eq!(node_of(&pinned(device)?), expected);
        Ok(())
    });
}

pub fn addresses_tell_their_node() {
    with_each_kind(|_, pinned| {
        let small = PinnedBox::from_slice(&pinned, &[1_u8])?;
        let large = PinnedBox::<[u8]>::zeroed(&pinned, 50 << 20)?;
        for address in [&small[0], &large[0], &large[large.len() - 1]] {
            assert_eq!(pinned.node_of(address), Some(node_of(&pinned)));
        }
        assert_eq!(pinned.node_of(&0_u8), None);
        assert!(!pinned.contains(&[0_u8; 10][..]));
        Ok(())
    });
}

/// The node of the page at an address, as the kernel answers: a node, or what it answers instead.
fn kernel_says(address: *const u8) -> Result<u32, std::io::Error> {
    let page = (address as usize & !4095) as *const c_void;
    let mut status: c_int = -1;
    // SAFETY: one page, no target node: the kernel only tells.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0 as c_int,
            1 as c_ulong,
            std::ptr::addr_of!(page),
            std::ptr::null::<c_int>(),
            std::ptr::addr_of_mut!(status),
            0 as c_int,
        )
    };
    match (answer, u32::try_from(status)) {
        (0, Ok(node)) => Ok(node),
        (0, Err(_)) => Err(std::io::Error::from_raw_os_error(-status)),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// The driver may map the memory of a pool so that the kernel has no pages to tell of. Then the mapping itself must be the
/// driver's.
pub fn the_kernel_agrees() {
    with_each_kind(|_, pinned| {
        let ordinary = vec![1_u8; 8192];
        if let Err(error) = kernel_says(&ordinary[4096]) {
            skip(format_args!("the kernel does not tell where ordinary memory is: {error}"));
            return Ok(());
        }
        let bytes = PinnedBox::from_fn(&pinned, 40 << 20, |index| index as u8)?;
        for index in (0..bytes.len()).step_by(5 << 20) {
            match kernel_says(&bytes[index]) {
                Ok(node) => assert_eq!(node, node_of(&pinned), "byte {index}"),
                Err(error) => {
                    assert!(pinned.pool().is_some(), "the kernel answers {error}");
                    assert!(mapping_of(&bytes[index]).contains("nvidia"), "the kernel answers {error}");
                    skip(format_args!("the kernel does not look into the driver's mapping: {error}"));
                    return Ok(());
                }
            }
        }
        Ok(())
    });
}

/// The line of the process's memory map that an address is in.
fn mapping_of(address: *const u8) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("a process can read its own map");
    let line = maps.lines().find(|line| {
        let (start, end) = line.split_once(' ').and_then(|(range, _)| range.split_once('-')).expect("a range");
        let parse = |text| usize::from_str_radix(text, 16).expect("an address");
        (parse(start)..parse(end)).contains(&(address as usize))
    });
    line.unwrap_or_default().to_owned()
}

pub fn a_node_that_does_not_exist_is_named() {
    alone(|_| {
        for node in [4096, u32::MAX] {
            let error = NumaAllocator::builder().node(node).build().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.missing().unwrap().contains(&node.to_string()), "{error}");
        }
        Ok(())
    });
}

pub fn a_place_must_be_chosen_and_on_the_host() {
    alone(|device| {
        let none = NumaAllocator::builder().build().unwrap_err();
        let on_device = NumaAllocator::builder().location(Location::Device(device)).build().unwrap_err();
        let managed = NumaAllocator::builder().location(Location::Managed).build().unwrap_err();
        for error in [none, on_device, managed] {
            assert_eq!(error.kind(), ErrorKind::InvalidValue, "{error}");
        }
        Ok(())
    });
}

pub fn the_host_as_a_whole_is_a_choice() {
    alone(|_| {
        match NumaAllocator::builder().location(Location::Host).build() {
            Ok(pinned) => {
                assert_eq!(pinned.location(), Location::Host);
                let words = PinnedBox::from_slice(&pinned, &[1, 2, 3])?;
                assert!(pinned.contains(&*words));
                assert_eq!(pinned.node_of(&*words), None);
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                skip(error);
            }
        }
        Ok(())
    });
}

pub fn registered_memory_needs_no_pools() {
    on_simulator(|sim, device| {
        sim.set_versions(13000, 12010);
        let anywhere = NumaAllocator::builder().location(Location::Host).registered().build();
        let node = NumaAllocator::builder().node(0).registered().build();
        let near = NumaAllocator::builder().near(device).registered().build();
        sim.set_versions(13000, 13000);
        for (pinned, place) in [(anywhere?, None), (node?, Some(0)), (near?, Some(0))] {
            let words = PinnedBox::from_slice(&pinned, &[1, 2, 3])?;
            assert_eq!(pinned.node_of(&*words), place);
        }
        assert_eq!(sim.calls("cudaMemPoolCreate"), Some(0));
        Ok(())
    });
}

pub fn registered_memory_is_of_nodes_that_there_are() {
    alone(|_| {
        for node in [4096, u32::MAX] {
            let error = NumaAllocator::builder().node(node).registered().build().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.missing().unwrap().contains(&node.to_string()), "{error}");
        }
        Ok(())
    });
}

pub fn an_old_driver_is_named() {
    on_simulator(|sim, device| {
        let build = |location| NumaAllocator::builder().location(location).build().unwrap_err();
        sim.set_versions(13000, 12040);
        let host = build(Location::Host);
        sim.set_versions(13000, 12010);
        let numa = build(Location::HostNuma(0));
        let near = NumaAllocator::builder().near(device).build().unwrap_err();
        sim.set_versions(13000, 13000);
        for (error, what) in [(host, "13.0"), (numa, "12.2"), (near, "12.2")] {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.missing().unwrap().contains(what), "{error}");
        }
        assert_eq!(sim.calls("cudaHostAlloc"), Some(0), "no other memory was taken");
        Ok(())
    });
}

pub fn a_node_whose_pools_the_driver_refuses_is_named() {
    on_simulator(|sim, _| {
        sim.add_faults("cudaMemPoolCreate#1=1").expect("a rule");
        let error = NumaAllocator::builder().node(0).build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        let missing = error.missing().unwrap();
        assert!(missing.contains("NUMA node 0") && missing.contains("driver"), "{missing}");
        assert_eq!(sim.calls("cudaMemPoolCreate"), Some(1), "no other memory was tried");
        Ok(())
    });
}

pub fn all_nodes_of_the_machine_work() {
    alone(|_| {
        let Ok(list) = std::fs::read_to_string("/sys/devices/system/node/has_memory") else {
            skip("the kernel does not list NUMA nodes");
            return Ok(());
        };
        let nodes = list.trim().split(',').flat_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            first.parse::<u32>().unwrap()..=last.parse().unwrap()
        });
        for node in nodes {
            match NumaAllocator::builder().node(node).build() {
                Ok(pinned) => assert_eq!(pinned.node_of(&*PinnedBox::new(&pinned, 1)?), Some(node)),
                // Memory of other kinds (of devices, say) has nodes too.
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unsupported);
                    assert_ne!(Some(node), Device::new(0)?.host_numa_node()?, "{error}");
                }
            }
        }
        Ok(())
    });
}
