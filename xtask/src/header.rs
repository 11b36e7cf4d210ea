//! `cargo xtask header`: the C header of the pinned-memory allocator, made from the crate's source.

use anyhow::{bail, Context, Result};

/// Writes the header, or only checks it.
pub fn run(check: bool) -> Result<()> {
    let package = crate::root().join("cuda-mempool-c");
    let path = package.join("include/cuda_mempool.h");
    let mut header = Vec::new();
    cbindgen::generate(&package).context("cbindgen cannot read the crate")?.write(&mut header);
    if std::fs::read(&path).is_ok_and(|old| old == header) {
        return Ok(());
    }
    if check {
        bail!("{} is not what the source makes: run `cargo xtask header`", path.display());
    }
    std::fs::write(&path, header).with_context(|| path.display().to_string())
}
