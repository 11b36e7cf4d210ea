//! CUDA headers, libraries and libclang from PyPI, unpacked under `target/wheels`.
//!
//! Nothing is installed: a wheel is downloaded by name and version once and unpacked beside the build.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};

/// One supported CUDA minor version and the exact packages its headers and libraries come from.
pub struct Cuda {
    pub major: u32,
    pub minor: u32,
    /// Version of `nvidia-cuda-runtime…`.
    pub runtime: &'static str,
    /// Version of the package that carries the `crt/` headers.
    pub crt: &'static str,
}

/// Every supported version, oldest first. Supporting a new one is one line here and `cargo xtask bindings`.
///
/// The versions are exact, so that generating again gives the same bytes. A new patch release never changes a
/// header in the area that is bound, so the newest that was there when the line was written is good for ever.
pub const SUPPORTED: &[Cuda] = &[
    version(11, 8, "11.8.89", "11.8.89"),
    version(12, 0, "12.0.146", "12.0.140"),
    version(12, 1, "12.1.105", "12.1.105"),
    version(12, 2, "12.2.140", "12.2.140"),
    version(12, 3, "12.3.101", "12.3.107"),
    version(12, 4, "12.4.127", "12.4.131"),
    version(12, 5, "12.5.82", "12.5.82"),
    version(12, 6, "12.6.77", "12.6.85"),
    version(12, 8, "12.8.90", "12.8.93"),
    version(12, 9, "12.9.79", "12.9.86"),
    version(13, 0, "13.0.96", "13.0.88"),
    version(13, 1, "13.1.80", "13.1.115"),
    version(13, 2, "13.2.86", "13.2.86"),
    version(13, 3, "13.3.29", "13.3.73"),
    version(13, 4, "13.4.92", "13.4.92"),
    version(13, 5, "13.5.37", "13.5.37"),
];

/// The headers and libraries of RAPIDS RMM, of a version that has its class as the guide uses it.
pub fn rmm() -> Result<PathBuf> {
    let members = r"(?:nvidia/)?[^/]+/(include/.*|lib64/[^/]+\.so)";
    let packages = ["librmm-cu12==25.8.0", "rapids-logger==0.1.19", "nvidia-cuda-cccl-cu12==12.9.27"];
    unpacked("rmm-25.8.0", &packages.map(|package| (package, members)))
}

/// The libclang that bindgen runs on, exact for the same reason.
const LIBCLANG: &str = "libclang==18.1.1";

const fn version(major: u32, minor: u32, runtime: &'static str, crt: &'static str) -> Cuda {
    Cuda { major, minor, runtime, crt }
}

impl Cuda {
    /// The root of an unpacked toolkit: `include/` with the runtime's and the `crt/` headers, and `lib/`.
    pub fn root(&self) -> Result<PathBuf> {
        let (runtime, crt) = match self.major {
            11 => ("nvidia-cuda-runtime-cu11", "nvidia-cuda-nvcc-cu11"),
            12 => ("nvidia-cuda-runtime-cu12", "nvidia-cuda-nvcc-cu12"),
            _ => ("nvidia-cuda-runtime", "nvidia-cuda-crt"),
        };
        unpacked(
            &format!("cuda-{}.{}", self.major, self.minor),
            &[
                (&format!("{runtime}=={}", self.runtime), r"nvidia/[^/]+/((?:include|lib)/.*)"),
                (&format!("{crt}=={}", self.crt), r"nvidia/[^/]+/(include/crt/.*)"),
            ],
        )
    }
}

/// One of the supported versions.
pub fn cuda(major: u32, minor: u32) -> &'static Cuda {
    let found = SUPPORTED.iter().find(|cuda| (cuda.major, cuda.minor) == (major, minor));
    found.expect("only supported versions are asked for")
}

/// The root of CUDA 13.0, as [`Cuda::root`] has it and with the device compiler.
pub fn nvcc() -> Result<PathBuf> {
    let toolkit = r"nvidia/[^/]+/((?:include|lib|bin|nvvm)/.*)";
    let packages = [
        "nvidia-cuda-runtime==13.0.96",
        "nvidia-cuda-crt==13.0.88",
        "nvidia-cuda-nvcc==13.0.88",
        "nvidia-nvvm==13.0.88",
    ];
    unpacked("nvcc-13.0", &packages.map(|package| (package, toolkit)))
}

/// The folder of libclang's shared library.
pub fn libclang() -> Result<PathBuf> {
    unpacked("libclang", &[(LIBCLANG, r".*/clang/native/(libclang.*)")])
}

/// The C compiler's own headers (`limits.h` and kin), which a libclang without its own lacks.
pub fn compiler_headers() -> Result<PathBuf> {
    let output =
        Command::new("cc").arg("-print-file-name=include").output().context("cannot start cc: install a C compiler")?;
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

/// Where all of this is unpacked.
pub fn folder() -> PathBuf {
    crate::target().join("wheels")
}

/// The folder `<name>` there, with what `members` matches (and names, by its group) of each package in it.
pub fn unpacked(name: &str, packages: &[(&str, &str)]) -> Result<PathBuf> {
    let wheels = folder();
    let folder = wheels.join(name);
    if folder.exists() {
        return Ok(folder);
    }
    // Filled beside its place and moved there when whole, so that a run cut short leaves nothing half-made.
    let unfinished = wheels.join(format!("{name}.{}", std::process::id()));
    for (requirement, members) in packages {
        download_and_unpack(requirement, members, &unfinished)
            .with_context(|| format!("getting {requirement} from PyPI"))?;
    }
    match std::fs::rename(&unfinished, &folder) {
        Err(_) if folder.exists() => std::fs::remove_dir_all(&unfinished)?,
        done => done?,
    }
    Ok(folder)
}

fn download_and_unpack(requirement: &str, members: &str, folder: &Path) -> Result<()> {
    const UNPACK: &str = "\
import glob, os, re, sys, zipfile
downloads, pattern, folder = sys.argv[1:]
found = False
for wheel in glob.glob(downloads + '/*.whl'):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            match = re.fullmatch(pattern, name)
            if match and not name.endswith('/'):
                found = True
                path = os.path.join(folder, match.group(1))
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, 'wb') as file:
                    file.write(archive.read(name))
                if archive.getinfo(name).external_attr >> 16 & 0o100:
                    os.chmod(path, 0o755)
if not found:
    sys.exit('no file of the package matches ' + pattern)
";
    let downloads = folder.join("downloads");
    python(
        &["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"],
        |pip| {
            pip.arg("--dest").arg(&downloads).arg(requirement);
        },
    )?;
    python(&["-c", UNPACK], |unpack| {
        unpack.arg(&downloads).arg(members).arg(folder);
    })?;
    std::fs::remove_dir_all(&downloads)?;
    Ok(())
}

fn python(args: &[&str], more: impl FnOnce(&mut Command)) -> Result<()> {
    let mut command = Command::new("python3");
    command.args(args);
    more(&mut command);
    let status = command.status().context("cannot start python3: install Python 3 with pip")?;
    if !status.success() {
        bail!("{} failed ({status})", args[..args.len().min(3)].join(" "));
    }
    Ok(())
}
