//! Everything there is to know, asked once.

use cuda_mempool::sys::{self, cudaDeviceAttr};
use cuda_mempool::{Device, Error, Feature, HandleTypes, Location, MemPool, MemoryInfo, PoolUsage};
use cuda_mempool::{Result, ReusePolicy, Support, Version};

pub struct Report {
    pub runtime: std::result::Result<Runtime, String>,
    /// The newest CUDA that the driver serves.
    pub driver: Result<Option<Version>>,
    /// The driver's own version, from the kernel's files. CUDA does not tell it.
    pub driver_release: Option<String>,
    pub devices: Result<Vec<DeviceReport>>,
    /// The default pool of each NUMA node of the host.
    pub nodes: Vec<PoolReport>,
}

/// The runtime library in use.
pub struct Runtime {
    pub version: Version,
    pub link: sys::LinkKind,
    pub path: Option<String>,
    /// The version whose headers the program was built for.
    pub built_for: Version,
}

pub struct DeviceReport {
    pub device: Device,
    /// From the driver's files, where there are such. The runtime function for it has another signature in each CUDA
    /// version.
    pub name: Option<String>,
    pub uuid: Option<String>,
    pub pci_bus_id: Result<String>,
    pub compute_capability: Option<(i32, i32)>,
    pub memory: Result<MemoryInfo>,
    pub host_numa_node: Option<u32>,
    pub features: Vec<(Feature, Result<Support>)>,
    /// The devices whose memory it can reach.
    pub reaches: Vec<Device>,
    pub pools: Vec<PoolReport>,
    pub graph_memory: Result<PoolUsage>,
}

pub struct PoolReport {
    pub name: String,
    pub facts: Result<PoolFacts>,
}

pub struct PoolFacts {
    pub usage: PoolUsage,
    pub release_threshold: u64,
    pub reuse: ReusePolicy,
    /// Only newer drivers tell these two.
    pub max_size: Option<u64>,
    pub handle_types: Option<HandleTypes>,
}

impl Report {
    pub fn new() -> Self {
        let devices = Device::all().map(|devices| devices.map(DeviceReport::new).collect());
        let driver_release = std::fs::read_to_string("/sys/module/nvidia/version").ok();
        let driver_release = driver_release.map(|text| text.trim().to_owned());
        Self { runtime: runtime(), driver: Version::of_driver(), driver_release, devices, nodes: nodes() }
    }
}

fn runtime() -> std::result::Result<Runtime, String> {
    let runtime = sys::runtime().map_err(ToString::to_string)?;
    Ok(Runtime {
        version: Version::of_runtime().map_err(|error| error.to_string())?,
        link: runtime.link(),
        path: runtime.path().map(|path| path.display().to_string()),
        built_for: Version::new(sys::CUDART_VERSION / 1000, sys::CUDART_VERSION % 1000 / 10),
    })
}

impl DeviceReport {
    fn new(device: Device) -> Self {
        let pci_bus_id = device.pci_bus_id();
        let others = Device::all().into_iter().flatten().filter(|&other| other != device);
        Self {
            device,
            name: pci_bus_id.as_ref().ok().and_then(|bus| name(bus)),
            uuid: uuid(device),
            pci_bus_id,
            compute_capability: capability(device),
            memory: device.memory(),
            host_numa_node: device.host_numa_node().ok().flatten(),
            features: Feature::ALL.iter().map(|&feature| (feature, device.supports(feature))).collect(),
            reaches: others.filter(|&other| matches!(device.can_access(other), Ok(true))).collect(),
            pools: pools(device),
            graph_memory: device.graph_memory(),
        }
    }
}

fn name(pci_bus_id: &str) -> Option<String> {
    let folder = std::path::Path::new("/proc/driver/nvidia/gpus").join(pci_bus_id.to_lowercase());
    let text = std::fs::read_to_string(folder.join("information")).ok()?;
    let name = text.lines().find_map(|line| line.strip_prefix("Model:"))?;
    Some(name.trim().to_owned())
}

/// As `nvidia-smi` writes it, but for the `GPU-` or `MIG-` that stands before it there.
#[cfg(target_os = "linux")]
fn uuid(device: Device) -> Option<String> {
    let digits: String = device.uuid().ok()?.iter().map(|byte| format!("{byte:02x}")).collect();
    let groups = [0..8, 8..12, 12..16, 16..20, 20..32];
    Some(groups.map(|group| &digits[group]).join("-"))
}

#[cfg(not(target_os = "linux"))]
fn uuid(_device: Device) -> Option<String> {
    None
}

fn capability(device: Device) -> Option<(i32, i32)> {
    let read = |attribute| device.attribute(attribute).ok().flatten();
    Some((
        read(cudaDeviceAttr::cudaDevAttrComputeCapabilityMajor)?,
        read(cudaDeviceAttr::cudaDevAttrComputeCapabilityMinor)?,
    ))
}

/// The default pool of a device, and the one that plain `cudaMallocAsync` uses if that is another.
fn pools(device: Device) -> Vec<PoolReport> {
    let (default, current) = (MemPool::default_for(device), MemPool::current_for(device));
    let same = matches!((&default, &current), (Ok(default), Ok(current)) if default == current);
    let mut pools = vec![PoolReport::new(if same { "default, current" } else { "default" }, default)];
    if !same {
        pools.push(PoolReport::new("current", current));
    }
    pools
}

fn nodes() -> Vec<PoolReport> {
    let numbers = std::fs::read_to_string("/sys/devices/system/node/has_memory").unwrap_or_default();
    numbers_in(numbers.trim())
        .map(|node| PoolReport::new(&format!("node {node}"), MemPool::default_for(Location::HostNuma(node))))
        .collect()
}

/// The numbers of a list as the kernel writes it: `0-2,5`.
fn numbers_in(list: &str) -> impl Iterator<Item = u32> + '_ {
    list.split(',').flat_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.parse(), last.parse::<u32>()) {
            (Ok(first), Ok(last)) => first..last + 1,
            _ => 0..0,
        }
    })
}

impl PoolReport {
    fn new(name: &str, pool: Result<MemPool>) -> Self {
        Self { name: name.into(), facts: pool.and_then(|pool| PoolFacts::of(&pool)) }
    }
}

impl PoolFacts {
    fn of(pool: &MemPool) -> Result<Self, Error> {
        Ok(Self {
            usage: pool.usage()?,
            release_threshold: pool.release_threshold()?,
            reuse: pool.reuse_policy()?,
            max_size: pool.max_size().ok(),
            handle_types: pool.handle_types().ok(),
        })
    }
}
