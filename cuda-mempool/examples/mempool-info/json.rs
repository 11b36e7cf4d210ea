//! The report for programs: sizes in bytes, and an `error` in the place of what could not be had.

use std::fmt::Display;

use cuda_mempool::{PoolUsage, Support};
use serde_json::{json, Value};

use crate::report::{DeviceReport, PoolReport, Report};
use crate::table;

pub fn value(report: &Report) -> Value {
    json!({
        "crate": env!("CARGO_PKG_VERSION"),
        "runtime": or_error(&report.runtime, |runtime| json!({
            "version": runtime.version.to_string(),
            "path": runtime.path,
            "link": runtime.link.to_string(),
            "bindings": runtime.built_for.to_string(),
        })),
        "driver": or_error(&report.driver, |driver| json!(driver.map(|version| version.to_string()))),
        "driver_release": report.driver_release,
        "devices": or_error(&report.devices, |devices| devices.iter().map(of_device).collect()),
        "numa_nodes": report.nodes.iter().map(of_pool).collect::<Value>(),
    })
}

fn or_error<T, E: Display>(outcome: &Result<T, E>, value: impl FnOnce(&T) -> Value) -> Value {
    match outcome {
        Ok(got) => value(got),
        Err(error) => json!({ "error": error.to_string() }),
    }
}

fn of_device(report: &DeviceReport) -> Value {
    let answer = |support: &Support| match support {
        Support::Yes => "yes",
        Support::No => "no",
        Support::Unknown => "unknown",
    };
    let features = report.features.iter();
    json!({
        "ordinal": report.device.ordinal(),
        "name": report.name,
        "uuid": report.uuid,
        "pci_bus_id": or_error(&report.pci_bus_id, |bus| json!(bus)),
        "compute_capability": report.compute_capability.map(|(major, minor)| format!("{major}.{minor}")),
        "host_numa_node": report.host_numa_node,
        "memory": or_error(&report.memory, |memory| json!({ "free": memory.free, "total": memory.total })),
        "supports": features
            .map(|(feature, got)| (format!("{feature:?}"), or_error(got, |support| json!(answer(support)))))
            .collect::<Value>(),
        "reaches": report.reaches.iter().map(|peer| peer.ordinal()).collect::<Vec<_>>(),
        "pools": report.pools.iter().map(of_pool).collect::<Value>(),
        "graph_memory": or_error(&report.graph_memory, of_usage),
    })
}

fn of_pool(pool: &PoolReport) -> Value {
    json!({
        "name": pool.name,
        "pool": or_error(&pool.facts, |facts| json!({
            "usage": of_usage(&facts.usage),
            "release_threshold": facts.release_threshold,
            "max_size": facts.max_size,
            "handle_types": facts.handle_types.map(table::handle_types),
            "reuse": table::reuse(facts.reuse),
        })),
    })
}

fn of_usage(usage: &PoolUsage) -> Value {
    json!({
        "used": usage.used,
        "used_high": usage.used_high,
        "reserved": usage.reserved,
        "reserved_high": usage.reserved_high,
    })
}
