//! The programs of the comparison, in a folder that a GPU machine without Rust can run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cargo::{self, Link};
use crate::{bundle, wheels};

const SCRIPT: &str = include_str!("bench.sh");

/// Versions are exact, so that a result can be had again.
const RMM: &str = "26.10.0";
const RAPIDS_LOGGER: &str = "rapids-logger==0.3.0";
/// NVIDIA's Rust crate generates bindings of this too.
const CURAND: &str = "nvidia-curand==10.4.0.35";

/// Fills the folder. Peers that cannot be built here are told, and left out.
pub fn build(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    let peers = folder.join("peers");
    fs::create_dir_all(&peers)?;
    fs::write(folder.join("bench.sh"), SCRIPT)?;
    bundle::make_executable(&folder.join("bench.sh"))?;
    fs::copy(crate::root().join("bench-peers/peers.py"), peers.join("peers.py"))?;

    own(folder)?;
    for (what, built) in
        [("the C calls, for Python", raw_c(&peers)), ("RMM", rmm(&peers)), ("Rust peers", rust(&peers))]
    {
        if let Err(why) = built {
            println!("left out: {what}: {why:#}");
        }
    }
    Ok(())
}

/// What is measured in every link kind, where the C calls are part of one that is linked; and what two processes do.
fn own(folder: &Path) -> Result<()> {
    for link in Link::ALL {
        let program = bench("compare", link)?;
        fs::copy(program, folder.join(format!("compare-{}", link.name())))?;
    }
    fs::copy(bench("ipc", Link::Dylib)?, folder.join("ipc"))?;
    Ok(())
}

fn bench(name: &str, link: Link) -> Result<PathBuf> {
    let mut build = cargo::cargo(&["bench", "--no-run", "--package", "cuda-mempool-tests", "--bench", name]);
    link.apply(&mut build)?;
    // As the bundle has it, so that one finds what the other has built.
    build.env("CUDA_HOME", wheels::nvcc()?);
    build.env("CARGO_TARGET_DIR", crate::target().join("bundle-build").join(link.name()));
    build.env("CARGO_PROFILE_BENCH_STRIP", "symbols");
    let built = cargo::executables(&mut build)?.into_iter().find(|program| program.name == name);
    Ok(built.context("cargo names what it built")?.path)
}

fn raw_c(peers: &Path) -> Result<()> {
    let cuda = wheels::cuda(13, 0).root()?;
    let mut compiler = Command::new("cc");
    compiler.args(["-O3", "-fPIC", "-shared", "-s"]).arg(crate::root().join("benches/compare/raw.c"));
    compiler.arg("-I").arg(cuda.join("include")).arg("-o").arg(peers.join("libraw_c.so"));
    compiler.arg("-L").arg(cuda.join("lib")).arg("-l:libcudart.so.13");
    cargo::run(&mut compiler)
}

fn rmm(peers: &Path) -> Result<()> {
    let cuda = wheels::cuda(13, 0).root()?;
    let rmm = wheels::unpacked(
        &format!("rmm-{RMM}"),
        &[
            (&format!("librmm-cu13=={RMM}"), r"librmm/((?:include|lib64)/.*)"),
            (RAPIDS_LOGGER, r"rapids_logger/((?:include|lib64)/.*)"),
        ],
    )?;
    let libraries = rmm.join("lib64");
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++20", "-O3", "-fPIC", "-shared", "-s"]).arg(format!("-DRMM_VERSION=\"{RMM}\""));
    compiler.arg(crate::root().join("bench-peers/rmm.cpp")).arg("-o").arg(peers.join("rmm.so"));
    for include in [rmm.join("include"), rmm.join("include/rapids"), cuda.join("include")] {
        compiler.arg("-I").arg(include);
    }
    compiler.arg("-L").arg(&libraries).args(["-lrmm", "-lrapids_logger"]);
    compiler.arg("-L").arg(cuda.join("lib")).args(["-l:libcudart.so.13", "-Wl,-rpath,$ORIGIN"]);
    cargo::run(&mut compiler)?;
    for library in ["librmm.so", "librapids_logger.so"] {
        fs::copy(libraries.join(library), peers.join(library))?;
    }
    Ok(())
}

fn rust(peers: &Path) -> Result<()> {
    let target = crate::target().join("bench-peers");
    let mut build = cargo::cargo(&["build", "--release", "--locked"]);
    build.current_dir(crate::root().join("bench-peers"));
    build.env("CARGO_TARGET_DIR", &target).env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
    build.env("CUDA_HOME", headers_for_bindgen()?).env("LIBCLANG_PATH", wheels::libclang()?);
    build.env("BINDGEN_EXTRA_CLANG_ARGS", format!("-isystem{}", wheels::compiler_headers()?.display()));
    cargo::run(&mut build)?;
    // Without `lib`, as the program takes for a peer what does not begin with that.
    fs::copy(target.join("release/libbench_peers.so"), peers.join("rust.so"))?;
    Ok(())
}

/// A toolkit's headers with those of cuRAND.
fn headers_for_bindgen() -> Result<PathBuf> {
    let cuda = wheels::cuda(13, 0);
    let (runtime, crt) = (format!("nvidia-cuda-runtime=={}", cuda.runtime), format!("nvidia-cuda-crt=={}", cuda.crt));
    let headers = r"nvidia/[^/]+/(include/.*)";
    wheels::unpacked("bindgen-13.0", &[(&runtime, headers), (&crt, headers), (CURAND, headers)])
}
