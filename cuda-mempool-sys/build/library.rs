//! What a library file tells about itself: the architecture it is for, and the CUDA version it is of.

use std::fs;
use std::path::Path;

use crate::environment::Target;
use crate::version::Version;

/// Says why the library in `file` cannot serve a program for `target` that is built with headers of `version`.
pub fn check(file: &Path, target: &Target, version: Version) -> Result<(), String> {
    if is_stub(file) {
        return Err(format!("{} is a stub, which must not be linked", file.display()));
    }
    if target.is_windows() {
        return Ok(()); // An import library tells nothing.
    }
    let bytes = fs::read(file).map_err(|e| format!("{} cannot be read: {e}", file.display()))?;
    architecture(&bytes, target).map_err(|why| format!("{} {why}", file.display()))?;
    let is_archive = file.extension().is_some_and(|extension| extension == "a");
    let versions = if is_archive { of_neighbours(file) } else { of_shared(file, &bytes).into_iter().collect() };
    if versions.is_empty() || versions.iter().any(|of| of.fits(version)) {
        return Ok(());
    }
    let versions: Vec<_> = versions.iter().map(OfLibrary::to_string).collect();
    Err(format!("{} is of CUDA {}, but the header is of {version}", file.display(), versions.join(" or ")))
}

/// Whether the file lies in a stub directory, directly or behind links.
fn is_stub(file: &Path) -> bool {
    let in_stubs = |file: &Path| file.components().any(|part| part.as_os_str() == "stubs");
    in_stubs(file) || file.canonicalize().is_ok_and(|file| in_stubs(&file))
}

/// Looks at the first ELF header in the file: its own, or that of an archive's first object.
fn architecture(bytes: &[u8], target: &Target) -> Result<(), String> {
    const MAGIC: &[u8] = b"\x7fELF";
    let header = bytes.windows(MAGIC.len()).position(|window| window == MAGIC).map(|at| &bytes[at..]);
    let Some(&[_, _, _, _, class, ..]) = header else {
        return Err("is not a library".into());
    };
    let machine = header.and_then(|header| header.get(18..20)).map(|of| u16::from_le_bytes([of[0], of[1]]));
    if class != 2 || machine != target.elf_machine() {
        return Err(format!("is for another architecture than {}", target.arch));
    }
    Ok(())
}

/// The version of a library as far as it is known: a file that is named by its SONAME alone hides the minor one.
struct OfLibrary {
    major: u32,
    minor: Option<u32>,
}

impl OfLibrary {
    /// From what follows `libcudart.so.`: `12.4.127`, or the SONAME's `12` (and `11.0` for every 11.x).
    fn parse(suffix: &str) -> Option<Self> {
        let mut parts = suffix.split('.').map(|part| part.parse().ok());
        let major = parts.next()??;
        let minor = parts.next().flatten();
        let is_full = parts.next().flatten().is_some();
        Some(Self { major, minor: minor.filter(|_| is_full) })
    }

    fn fits(&self, version: Version) -> bool {
        self.major == version.major && self.minor.map_or(true, |minor| minor == version.minor)
    }
}

impl std::fmt::Display for OfLibrary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.minor {
            Some(minor) => write!(f, "{}.{minor}", self.major),
            None => write!(f, "{}", self.major),
        }
    }
}

const BEFORE_VERSION: &str = "libcudart.so.";

/// By the name of the file behind all links, else by the SONAME inside.
fn of_shared(file: &Path, bytes: &[u8]) -> Option<OfLibrary> {
    let real = file.canonicalize().ok()?;
    let by_name = real.file_name()?.to_str()?.strip_prefix(BEFORE_VERSION).and_then(OfLibrary::parse);
    by_name.or_else(|| {
        let start = bytes.windows(BEFORE_VERSION.len()).position(|window| window == BEFORE_VERSION.as_bytes())?;
        let suffix = bytes[start + BEFORE_VERSION.len()..].split(|&byte| byte == 0).next()?;
        OfLibrary::parse(std::str::from_utf8(suffix).ok()?)
    })
}

/// An archive does not tell its version; the shared libraries installed with it do.
fn of_neighbours(archive: &Path) -> Vec<OfLibrary> {
    let names = archive.parent().and_then(|folder| folder.read_dir().ok()).into_iter().flatten().flatten();
    names.filter_map(|entry| OfLibrary::parse(entry.file_name().to_str()?.strip_prefix(BEFORE_VERSION)?)).collect()
}
