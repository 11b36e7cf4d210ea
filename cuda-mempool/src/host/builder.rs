//! Making allocators.

use std::borrow::Borrow;

use super::arena::{Arena, Limits};
use super::backing::Backing;
use super::chunk;
#[cfg(target_os = "linux")]
use super::mapped_source::MappedSource;
use super::node;
use super::pool_source::PoolSource;
use super::way::{round_up, LARGE_STEP};
use super::NumaAllocator;
use crate::{Access, Device, Error, ErrorKind, Location, MemPool, Result, Stream};

/// As much as a pool gets from the system at a time.
const DEFAULT_CHUNK: usize = 32 << 20;

const FUNCTION: &str = "cudaMemPoolCreate";

/// The description of a new [`NumaAllocator`].
#[derive(Debug, Clone)]
#[must_use]
pub struct NumaAllocatorBuilder {
    place: Option<Place>,
    grants: Vec<Device>,
    chunk: usize,
    cap: usize,
    registered: bool,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    At(Location),
    Near { device: Device, granted: bool },
}

impl NumaAllocatorBuilder {
    pub(super) fn new() -> Self {
        Self { place: None, grants: Vec::new(), chunk: DEFAULT_CHUNK, cap: usize::MAX, registered: false }
    }

    /// Memory of this NUMA node, without access for any device but those [granted](Self::grant). Needs a driver for
    /// CUDA 12.2.
    pub fn node(self, node: u32) -> Self {
        self.location(Location::HostNuma(node))
    }

    /// Memory of the NUMA node nearest to a device, which is given access: what is near it is there to be copied to it,
    /// and without access [copies are slow](crate::host#access).
    pub fn near(mut self, device: impl Borrow<Device>) -> Self {
        self.place = Some(Place::Near { device: *device.borrow(), granted: true });
        self
    }

    /// As [`near`](Self::near), without access for the device.
    pub fn near_without_access(mut self, device: impl Borrow<Device>) -> Self {
        self.place = Some(Place::Near { device: *device.borrow(), granted: false });
        self
    }

    /// Memory of [`Location::Host`], which is wherever the system puts it and needs a driver for CUDA 13.0, or of a
    /// [`Location::HostNuma`]. No device has access but those [granted](Self::grant).
    pub fn location(mut self, location: Location) -> Self {
        self.place = Some(Place::At(location));
        self
    }

    /// Gives devices access, besides the one that the memory is [near](Self::near): their copies are fast then, and
    /// their kernels can read and write the memory. May be called several times.
    pub fn grant<D: Borrow<Device>>(mut self, devices: impl IntoIterator<Item = D>) -> Self {
        self.grants.extend(devices.into_iter().map(|device| *device.borrow()));
        self
    }

    /// How many bytes to take from the pool at a time: 32 MiB by default, 1 GiB at most, rounded up to 64 KiB. Blocks
    /// longer than an eighth of this, and than 256 KiB, do not come from chunks; for those that do, a chunk may have to be
    /// longer.
    pub fn chunk_size(mut self, bytes: usize) -> Self {
        self.chunk = bytes;
        self
    }

    /// How many bytes to take from the pool at most, for chunks and large blocks together. By default as many as there
    /// are. The pool's own reserve is not counted: it may be up to 32 MiB higher, and as much as was
    /// [primed](NumaAllocator::prime).
    ///
    /// Leave room for a chunk. A collection that shrinks out of a large block moves to a small one, and where the cap leaves
    /// none, `shrink_to_fit` ends the process, as those methods of collections do that cannot fail.
    pub fn cap(mut self, bytes: usize) -> Self {
        self.cap = bytes;
        self
    }

    /// Takes the memory from the kernel and registers it with CUDA, rather than from a pool: much faster to get, in large
    /// amounts, and as fast to copy. See [the module](crate::host#registered-memory).
    ///
    /// All devices reach registered memory, so [grants](Self::grant) add nothing. It needs no support for pools, and leave of
    /// the system for `mbind` where a node is chosen, which some containers do not have. As with ordinary memory, the kernel
    /// ends a process that asks for more than the node has: set a [cap](Self::cap).
    #[cfg(target_os = "linux")]
    #[doc(alias = "cudaHostRegister")]
    pub fn registered(mut self) -> Self {
        self.registered = true;
        self
    }

    /// Makes the allocator. Its calls go to a stream of its own, on the device that it is near, else on the current
    /// device.
    ///
    /// # Errors
    /// - [`ErrorKind::Unsupported`], where [`Error::missing`] says what is missing: the node (with those there are),
    ///   the driver's knowledge of which node is near, its support for pools there, or the kernel's for memory of a node.
    ///   There is no fallback to other memory.
    /// - [`ErrorKind::InvalidValue`] when no place was chosen, or one that is not on the host, for a chunk size that is out
    ///   of range, or for [registered](Self::registered) memory without access.
    /// - Else as [`MemPoolBuilder::build`](crate::MemPoolBuilder::build) and [`Stream::new`].
    #[doc(alias = "cudaMemPoolCreate")]
    pub fn build(self) -> Result<NumaAllocator> {
        if self.chunk == 0 || self.chunk > chunk::MAX_LEN {
            return Err(invalid(format!("a chunk of {} bytes is not between 1 and {}", self.chunk, chunk::MAX_LEN)));
        }
        let (location, device, near) = match self.place {
            None => return Err(invalid("choose a node, a device to be near, or a location".into())),
            Some(Place::At(location)) => (location, Device::current()?, None),
            Some(Place::Near { device, granted }) => {
                (Location::HostNuma(node_near(device)?), device, granted.then_some(device))
            }
        };
        match location {
            Location::Host => {}
            Location::HostNuma(node) => require_node(node, node::list().as_deref())?,
            other => return Err(invalid(format!("{other} is not on the host alone"))),
        }
        let limits = Limits { chunk: round_up(self.chunk, LARGE_STEP), cap: self.cap };
        let source = match self.registered {
            #[cfg(target_os = "linux")]
            true => mapped(location, device, self.place)?,
            _ => pool(location, device, near.into_iter().chain(self.grants))?,
        };
        Ok(NumaAllocator::over(Arena::new(source, limits)))
    }
}

/// Freed memory stays warm: what the pool keeps is for this allocator alone, which trims it when told to.
fn pool(location: Location, device: Device, granted: impl Iterator<Item = Device>) -> Result<Backing> {
    let pool = MemPool::builder(location).release_threshold(u64::MAX);
    let pool = granted.fold(pool, |pool, device| pool.grant(device, Access::ReadWrite)).build();
    let pool = pool.map_err(|error| match (location, error.kind(), error.function()) {
        (Location::HostNuma(node), ErrorKind::InvalidValue, FUNCTION) => no_such_node(node, None),
        _ => error,
    })?;
    Ok(Backing::Pool(PoolSource::new(pool, Stream::new(device)?)))
}

#[cfg(target_os = "linux")]
fn mapped(location: Location, device: Device, place: Option<Place>) -> Result<Backing> {
    if let Some(Place::Near { granted: false, .. }) = place {
        return Err(invalid("all devices have access to registered memory".into()));
    }
    Ok(Backing::Mapped(MappedSource::new(location, device)?))
}

fn node_near(device: Device) -> Result<u32> {
    device.host_numa_node()?.ok_or_else(|| {
        Error::unsupported(
            "cudaDeviceGetAttribute",
            format!(
                "the NUMA node near {device}: attribute cudaDevAttrHostNumaId names none, as without NUMA or with a \
                 driver for CUDA before 12.2"
            ),
        )
    })
}

/// Refuses a node that is not in the kernel's list. Where there is none, as without NUMA, the driver decides.
fn require_node(node: u32, list: Option<&str>) -> Result<()> {
    match list {
        Some(list) if node::is_among(node, list) == Some(false) => Err(no_such_node(node, Some(list))),
        _ => Ok(()),
    }
}

fn no_such_node(node: u32, list: Option<&str>) -> Error {
    let there_are = match list {
        Some(list) => format!("the nodes with memory are {list}"),
        None => "the driver has no pools there".to_owned(),
    };
    Error::unsupported(FUNCTION, format!("NUMA node {node} of the host: {there_are}"))
}

fn invalid(why: String) -> Error {
    Error::refused(ErrorKind::InvalidValue, FUNCTION, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_believed_about_nodes_and_else_the_driver() {
        let error = require_node(2, Some("0-1,4")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let missing = error.missing().expect("it says what is missing");
        assert!(missing.contains("node 2") && missing.contains("0-1,4"), "{missing}");
        for list in [Some("0-1,2"), Some("what is this"), None] {
            assert!(require_node(2, list).is_ok(), "{list:?}");
        }
    }
}
