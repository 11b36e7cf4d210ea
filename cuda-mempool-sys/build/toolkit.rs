//! What makes a folder a CUDA toolkit that this build can use.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::environment::Target;
use crate::library;
use crate::link::Link;
use crate::places;
use crate::version::Version;

/// The header that holds the version, and all that is bound.
pub const HEADER: &str = "cuda_runtime_api.h";

/// Headers and library of one version.
#[derive(Debug, Clone)]
pub struct Toolkit {
    pub root: PathBuf,
    pub include: PathBuf,
    /// Only with link kind `dlopen` can it be missing.
    pub library: Option<PathBuf>,
    pub version: Version,
}

/// What a toolkit must have to be of use.
#[derive(Clone, Copy)]
pub struct Needs<'a> {
    pub target: &'a Target,
    pub oldest: Version,
    /// The one version that will do, if the user named one.
    pub asked: Option<Version>,
    /// Whether the headers are compiled, so that those they include must be there too.
    pub compiles_headers: bool,
}

/// Why a pair of folders will not do.
enum Refusal {
    /// Something is not in a folder: other folders may have it.
    Absent {
        what: String,
        folder: PathBuf,
    },
    Unfit(String),
}

impl Needs<'_> {
    /// The toolkit below `root`, or why there is none. `dlopen` is content with headers.
    pub fn below(&self, root: &Path, link: Link) -> Result<Toolkit, String> {
        folder(root)?;
        let layouts = places::layouts(&self.target.os, &self.target.arch);
        match link {
            Link::Dlopen => self.first(root, &layouts, Some(Link::Dylib)).or_else(|_| self.first(root, &layouts, None)),
            linked => self.first(root, &layouts, Some(linked)),
        }
    }

    /// The toolkit with its headers and its library in these folders, or why there is none.
    pub fn within(&self, include: &Path, lib: &Path, link: Link) -> Result<Toolkit, String> {
        let root = include.parent().unwrap_or(include);
        let layout = [(include.to_owned(), lib.to_owned())];
        self.first(root, &layout, Some(link).filter(|&link| link != Link::Dlopen))
    }

    /// Takes the first pair of header and library folder (relative to the root, or absolute) that has all.
    fn first(&self, root: &Path, layouts: &[(PathBuf, PathBuf)], link: Option<Link>) -> Result<Toolkit, String> {
        let mut refusals = Vec::new();
        for (include, lib) in layouts {
            match self.pair(root, include, lib, link) {
                Ok(toolkit) => return Ok(toolkit),
                Err(refusal) => refusals.push(refusal),
            }
        }
        Err(reasons(refusals))
    }

    fn pair(&self, root: &Path, include: &Path, lib: &Path, link: Option<Link>) -> Result<Toolkit, Refusal> {
        let version = self.header(root, include)?;
        let library = link.map(|link| self.library(root, lib, link, version)).transpose()?;
        Ok(Toolkit { root: root.to_owned(), include: root.join(include), library, version })
    }

    /// The version of a header that can be used.
    fn header(&self, root: &Path, include: &Path) -> Result<Version, Refusal> {
        let name = include.join(HEADER);
        let text = match fs::read(root.join(&name)) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Err(Refusal::Absent { what: HEADER.into(), folder: include.to_owned() })
            }
            Err(e) => return Err(Refusal::Unfit(format!("{} cannot be read: {e}", name.display()))),
        };
        let Some(version) = version_in(&text) else {
            return Err(Refusal::Unfit(format!("{} defines no CUDART_VERSION", name.display())));
        };
        if version < self.oldest {
            return Err(Refusal::Unfit(format!("CUDA {version}, but {} is the oldest that is supported", self.oldest)));
        }
        if let Some(asked) = self.asked.filter(|&asked| asked != version) {
            return Err(Refusal::Unfit(format!("CUDA {version}, but CUDA_MEMPOOL_CUDA_VERSION asks for {asked}")));
        }
        if self.compiles_headers && !root.join(include).join("crt/host_defines.h").is_file() {
            let what = "crt/host_defines.h, which the feature `bindgen` needs (PyPI has it in nvidia-cuda-crt and \
                        nvidia-cuda-nvcc-cu12),";
            return Err(Refusal::Absent { what: what.into(), folder: include.to_owned() });
        }
        Ok(version)
    }

    /// The library for a link kind that goes with headers of `version`.
    fn library(&self, root: &Path, lib: &Path, link: Link, version: Version) -> Result<PathBuf, Refusal> {
        let names = self.library_names(link, version);
        let mut unfit = None;
        for name in &names {
            let file = root.join(lib).join(name);
            if file.exists() {
                match library::check(&file, self.target, version) {
                    Ok(()) => return Ok(file),
                    Err(why) => unfit = unfit.or(Some(Refusal::Unfit(why))),
                }
            }
        }
        Err(unfit.unwrap_or_else(|| Refusal::Absent { what: names.join(" or "), folder: lib.to_owned() }))
    }

    fn library_names(&self, link: Link, version: Version) -> Vec<String> {
        match (link, self.target.is_windows()) {
            (Link::Static, false) => vec!["libcudart_static.a".into()],
            (Link::Static, true) => vec!["cudart_static.lib".into()],
            (_, true) => vec!["cudart.lib".into()],
            // The packages on PyPI have the library under its SONAME alone; 11.0 serves every 11.x.
            (_, false) if version.major == 11 => vec!["libcudart.so".into(), "libcudart.so.11.0".into()],
            (_, false) => vec!["libcudart.so".into(), format!("libcudart.so.{}", version.major)],
        }
    }
}

fn version_in(header: &str) -> Option<Version> {
    let number = |line: &str| line.trim().strip_prefix("#define CUDART_VERSION")?.trim().parse().ok();
    header.lines().find_map(number).map(Version::from_number)
}

/// The refusals as one text, in which the folders that lack the same thing share a clause.
fn reasons(refusals: Vec<Refusal>) -> String {
    let mut clauses: Vec<(String, Vec<String>)> = Vec::new();
    for refusal in refusals {
        let (clause, folder) = match refusal {
            Refusal::Absent { what, folder } => (format!("no {what} in "), Some(folder.display().to_string())),
            Refusal::Unfit(why) => (why, None),
        };
        let at = clauses.iter().position(|(seen, _)| *seen == clause).unwrap_or_else(|| {
            clauses.push((clause, Vec::new()));
            clauses.len() - 1
        });
        let folders = &mut clauses[at].1;
        folders.extend(folder.filter(|folder| !folders.contains(folder)));
    }
    let clauses = clauses.into_iter().map(|(clause, folders)| clause + &folders.join(", "));
    clauses.collect::<Vec<_>>().join("; ")
}

/// Says what keeps a path from being a folder with something in it.
fn folder(path: &Path) -> Result<(), String> {
    if !path.is_absolute() {
        return Err("not an absolute path".into());
    }
    match fs::read_dir(path) {
        Ok(mut entries) => entries.next().map(drop).ok_or_else(|| "the folder is empty".into()),
        Err(e) if e.kind() == ErrorKind::NotFound => Err("no such folder".into()),
        Err(_) if path.is_file() => Err("a file, not a folder".into()),
        Err(e) => Err(format!("cannot be read: {e}")),
    }
}
