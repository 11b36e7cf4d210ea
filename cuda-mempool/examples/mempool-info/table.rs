//! The report for people.

use std::fmt::Write;

use cuda_mempool::{HandleTypes, PoolUsage, ReusePolicy, Support};

use crate::report::{DeviceReport, PoolFacts, PoolReport, Report};

pub fn text(report: &Report) -> String {
    let mut text = String::new();
    line(&mut text, "crate", &format!("cuda-mempool {}", env!("CARGO_PKG_VERSION")));
    match &report.runtime {
        Ok(runtime) => {
            let path = runtime.path.as_deref().unwrap_or("an unknown file");
            line(&mut text, "runtime", &format!("CUDA {} in {path}", runtime.version));
            line(&mut text, "link kind", &format!("{}, bindings of CUDA {}", runtime.link, runtime.built_for));
        }
        Err(why) => {
            line(&mut text, "runtime", why);
            return text;
        }
    }
    match &report.driver {
        Ok(Some(version)) => {
            let release = report.driver_release.as_ref().map(|release| format!("{release}, ")).unwrap_or_default();
            line(&mut text, "driver", &format!("{release}for CUDA {version}"));
        }
        Ok(None) => line(&mut text, "driver", "none"),
        Err(error) => line(&mut text, "driver", &error.to_string()),
    }
    match &report.devices {
        Ok(devices) => devices.iter().for_each(|device| of_device(&mut text, device)),
        Err(error) => line(&mut text, "devices", &error.to_string()),
    }
    if report.devices.is_ok() && !report.nodes.is_empty() {
        text += "\nHost\n";
        pools(&mut text, &report.nodes);
    }
    text
}

fn of_device(text: &mut String, report: &DeviceReport) {
    let name = report.name.as_ref().map(|name| format!(": {name}")).unwrap_or_default();
    let _ = writeln!(text, "\nDevice {}{name}", report.device.ordinal());
    let mut place = vec![match &report.pci_bus_id {
        Ok(bus) => format!("PCI {bus}"),
        Err(error) => error.to_string(),
    }];
    place.extend(report.host_numa_node.map(|node| format!("near NUMA node {node}")));
    place.extend(report.compute_capability.map(|(major, minor)| format!("compute capability {major}.{minor}")));
    place.extend(report.uuid.clone());
    line(text, "  place", &place.join(", "));
    match &report.memory {
        Ok(memory) => {
            let (free, total) = (bytes(memory.free as u64), bytes(memory.total as u64));
            line(text, "  memory", &format!("{free} of {total} free"));
        }
        Err(error) => line(text, "  memory", &error.to_string()),
    }
    for (answer, key) in [(Support::Yes, "  supports"), (Support::No, "  lacks"), (Support::Unknown, "  unknown")] {
        let matching = report.features.iter().filter(|(_, got)| matches!(got, Ok(got) if *got == answer));
        let names: Vec<_> = matching.map(|(feature, _)| format!("{feature:?}")).collect();
        if !names.is_empty() {
            line(text, key, &names.join(", "));
        }
    }
    for (feature, got) in &report.features {
        if let Err(error) = got {
            line(text, "  failed", &format!("{feature:?}: {error}"));
        }
    }
    if !report.reaches.is_empty() {
        let peers: Vec<_> = report.reaches.iter().map(|peer| peer.ordinal().to_string()).collect();
        line(text, "  reaches", &format!("devices {}", peers.join(", ")));
    }
    pools(text, &report.pools);
    match &report.graph_memory {
        Ok(usage) => row(text, "graphs", &usage_cells(usage)),
        Err(error) => line(text, "  graphs", &error.to_string()),
    }
}

const COLUMNS: [&str; 8] = ["used", "at most", "reserved", "at most", "keeps", "limit", "shared by", "reuse"];

fn pools(text: &mut String, pools: &[PoolReport]) {
    row(text, "pool", &COLUMNS.map(str::to_owned));
    for pool in pools {
        match &pool.facts {
            Ok(facts) => row(text, &pool.name, &cells(facts)),
            Err(error) => line(text, &format!("  {}", pool.name), &error.to_string()),
        }
    }
}

fn cells(facts: &PoolFacts) -> Vec<String> {
    let mut cells = usage_cells(&facts.usage);
    cells.push(if facts.release_threshold == u64::MAX { "all".into() } else { bytes(facts.release_threshold) });
    cells.push(match facts.max_size {
        Some(0) => "none".into(),
        size => size.map_or_else(|| UNTOLD.into(), bytes),
    });
    cells.push(facts.handle_types.map_or_else(|| UNTOLD.into(), |types| handle_types(types).join("+")));
    cells.push(reuse(facts.reuse).join("+"));
    cells
}

fn usage_cells(usage: &PoolUsage) -> Vec<String> {
    [usage.used, usage.used_high, usage.reserved, usage.reserved_high].map(bytes).into()
}

/// In the place of what an older driver does not tell.
const UNTOLD: &str = "?";

/// The names of the handle types in a set.
pub fn handle_types(types: HandleTypes) -> Vec<&'static str> {
    let all = [
        ("fd", HandleTypes::POSIX_FD),
        ("win32", HandleTypes::WIN32),
        ("win32-kmt", HandleTypes::WIN32_KMT),
        ("fabric", HandleTypes::FABRIC),
    ];
    all.into_iter().filter(|&(_, one)| types.contains(one)).map(|(name, _)| name).collect()
}

/// The names of the ways of reuse that are on.
pub fn reuse(policy: ReusePolicy) -> Vec<&'static str> {
    let all = [
        ("events", policy.follow_event_dependencies),
        ("opportunistic", policy.allow_opportunistic),
        ("internal", policy.allow_internal_dependencies),
    ];
    all.into_iter().filter(|&(_, on)| on).map(|(name, _)| name).collect()
}

fn line(text: &mut String, key: &str, value: &str) {
    // A longer value goes on below itself.
    let value = value.replace('\n', &format!("\n{:20}", ""));
    let _ = writeln!(text, "{key:<20}{value}");
}

fn row(text: &mut String, name: &str, cells: &[String]) {
    let cells: String = cells.iter().map(|cell| format!("{:<11}", if cell.is_empty() { "-" } else { cell })).collect();
    let _ = writeln!(text, "  {name:<18}{}", cells.trim_end());
}

/// `1.5 GiB`.
pub fn bytes(number: u64) -> String {
    let mut amount = number as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if amount < 1024.0 {
            let decimals = usize::from(unit != "B" && amount < 100.0);
            return format!("{amount:.decimals$} {unit}");
        }
        amount /= 1024.0;
    }
    format!("{amount:.1} TiB")
}
