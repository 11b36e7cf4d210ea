//! Asked as the command line would, on a device.

use std::time::Duration;

use cuda_mempool::example::run;
use cuda_mempool::{Device, MemPool, Version};

use crate::arguments::{Action, Watch};

fn action(arguments: &[&str]) -> Result<Action, String> {
    Action::from(arguments.iter().map(|&argument| argument.to_owned()))
}

fn output(arguments: &[&str]) -> String {
    let mut output = Vec::new();
    crate::run(&action(arguments).unwrap(), &mut output).unwrap();
    String::from_utf8(output).unwrap()
}

#[test]
fn arguments() {
    let watch = |every, frames, load| Ok(Action::Watch(Watch { every, frames, load }));
    assert_eq!(action(&[]), Ok(Action::Table));
    assert_eq!(action(&["--json"]), Ok(Action::Json));
    assert_eq!(action(&["--watch"]), watch(Duration::from_secs(1), None, false));
    let both = ["--load", "--watch", "0.5", "--frames", "3"];
    assert_eq!(action(&both), watch(Duration::from_millis(500), Some(3), true));
    assert_eq!(action(&["--json", "--help"]), Ok(Action::Help));
    for wrong in [
        &["--jsno"][..],
        &["--json", "--watch"],
        &["--load"],
        &["--frames", "3"],
        &["--watch", "soon"],
        &["--watch", "-1"],
        &["--watch", "--frames"],
    ] {
        assert!(action(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn json_holds_what_the_crate_answers() {
    run(|device| {
        MemPool::default_for(device)?.set_release_threshold(u64::MAX)?;
        let report: serde_json::Value = serde_json::from_str(&output(&["--json"])).unwrap();
        assert_eq!(report["runtime"]["version"], Version::of_runtime()?.to_string());
        assert_eq!(report["driver"], Version::of_driver()?.unwrap().to_string());
        let devices = report["devices"].as_array().unwrap();
        assert_eq!(devices.len(), Device::count()?);
        let first = &devices[0];
        assert_eq!(first["pci_bus_id"], device.pci_bus_id()?);
        #[cfg(target_os = "linux")]
        if let Ok(uuid) = device.uuid() {
            let told = first["uuid"].as_str().unwrap().split('-').map(|group| (group.len(), group));
            let (lengths, groups): (Vec<_>, Vec<_>) = told.unzip();
            assert_eq!(lengths, [8, 4, 4, 4, 12]);
            assert_eq!(u128::from_str_radix(&groups.concat(), 16), Ok(u128::from_be_bytes(uuid)));
        }
        assert_eq!(first["memory"]["total"], device.memory()?.total);
        assert_eq!(first["supports"]["MemoryPools"], "yes");
        assert_eq!(first["pools"][0]["pool"]["release_threshold"], u64::MAX);
        Ok(())
    });
}

#[test]
fn json_tells_every_field() {
    let report: serde_json::Value = serde_json::from_str(&output(&["--json"])).unwrap();
    let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(keys(&report), "crate devices driver driver_release numa_nodes runtime");
    run(|_| {
        assert_eq!(keys(&report["runtime"]), "bindings link path version");
        assert_eq!(
            keys(&report["devices"][0]),
            "compute_capability graph_memory host_numa_node memory name ordinal pci_bus_id pools reaches supports uuid"
        );
        let pool = &report["devices"][0]["pools"][0]["pool"];
        assert_eq!(keys(pool), "handle_types max_size release_threshold reuse usage");
        assert_eq!(keys(&pool["usage"]), "reserved reserved_high used used_high");
        Ok(())
    });
}

#[test]
fn table_names_the_device_and_its_pool() {
    run(|device| {
        let table = output(&[]);
        let version = Version::of_runtime()?;
        for part in [&format!("CUDA {version} in "), "\nDevice 0", &device.pci_bus_id()?, "default, current", "keeps"] {
            assert!(table.contains(part), "`{part}` is missing in:\n{table}");
        }
        Ok(())
    });
}

#[test]
fn bars_follow_the_load() {
    run(|_| {
        let frames = output(&["--watch", "0", "--frames", "3", "--load"]);
        for frame in ["24.0 MiB used", "48.0 MiB used", "72.0 MiB used"] {
            assert!(frames.contains(frame), "`{frame}` is missing in:\n{frames}");
        }
        Ok(())
    });
}
