//! The search for a CUDA toolkit: places in order, each accepted only if what the build uses is there.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::environment::{Environment, Target};
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

/// A place that would not do, and why.
#[derive(Debug)]
pub struct Tried {
    pub place: String,
    pub why: String,
    /// The variable that names the place: its user should hear of it.
    pub variable: Option<String>,
}

/// The header and the library folder that a pkg-config package names.
pub struct Package {
    pub include: PathBuf,
    pub lib: PathBuf,
}

/// Asks pkg-config for the package of one version. An error means that it cannot be asked at all.
pub type PkgConfig<'a> = &'a dyn Fn(Version) -> Result<Option<Package>, String>;

pub struct Search<'a> {
    pub environment: &'a Environment<'a>,
    pub target: &'a Target,
    /// Stands before every usual place: `/`, but for tests.
    pub filesystem: &'a Path,
    pub pkg_config: PkgConfig<'a>,
    pub known: &'a [Version],
    /// The one version that will do, if the user named one.
    pub asked: Option<Version>,
    /// Whether the headers are compiled here, so that those they include must be there too.
    pub compiles_headers: bool,
}

impl Search<'_> {
    /// The newest version with bindings.
    pub fn newest(&self) -> Version {
        self.known[self.known.len() - 1]
    }

    /// The first toolkit that fits the link kind, and the places tried before it. `dlopen` is content with headers.
    pub fn find(&self, link: Link) -> (Option<Toolkit>, Vec<Tried>) {
        if !self.target.has_cuda() {
            let place = format!("the target {}", self.target.triple);
            return (None, vec![Tried { place, why: "there is no CUDA runtime for it".into(), variable: None }]);
        }
        let mut tried = Vec::new();
        let named = self.named_roots().into_iter().map(|(variable, root)| {
            let place = format!("{variable}={}", root.display());
            (place, Some(variable), self.root(&root, link))
        });
        let packages = std::iter::once_with(|| self.packages(link)).flatten();
        let packages = packages.map(|(place, outcome)| (place, None, outcome));
        let variable = |name: &str| self.environment.variable(name);
        let usual = std::iter::once_with(|| places::usual_roots(&variable, self.filesystem)).flatten();
        let usual = usual.map(|root| (root.display().to_string(), None, self.root(&root, link)));

        for (place, variable, outcome) in named.chain(packages).chain(usual) {
            match outcome {
                Ok(toolkit) => return (Some(toolkit), tried),
                Err(why) => tried.push(Tried { place, why, variable }),
            }
        }
        (None, tried)
    }

    /// What the user's variables name, those with the target's name before them first, each folder once.
    fn named_roots(&self) -> Vec<(String, PathBuf)> {
        let prefixed = places::VARIABLES.map(|name| self.target.prefixed(name));
        let mut roots: Vec<(String, PathBuf)> = Vec::new();
        for name in prefixed.into_iter().chain(places::VARIABLES.map(str::to_owned)) {
            let root = self.environment.variable(&name).map(PathBuf::from);
            roots.extend(root.filter(|root| roots.iter().all(|(_, seen)| seen != root)).map(|root| (name, root)));
        }
        roots
    }

    /// What pkg-config knows, newest first.
    fn packages(&self, link: Link) -> Vec<(String, Result<Toolkit, String>)> {
        let mut answers = Vec::new();
        for &version in self.known.iter().rev().filter(|&&version| self.asked.map_or(true, |asked| asked == version)) {
            match (self.pkg_config)(version) {
                Ok(Some(Package { include, lib })) => {
                    let root = include.parent().unwrap_or(&include);
                    let toolkit = self.layout(root, &include, &lib, Some(link).filter(|link| *link != Link::Dlopen));
                    answers.push((format!("pkg-config cudart-{version}"), toolkit));
                }
                Ok(None) => {}
                Err(why) => return vec![("pkg-config".into(), Err(why))],
            }
        }
        if answers.is_empty() {
            let why = "it knows no cudart-MAJOR.MINOR of a version with bindings".to_owned();
            answers.push(("pkg-config".into(), Err(why)));
        }
        answers
    }

    /// Takes the toolkit below `root`, or says why it will not do.
    fn root(&self, root: &Path, link: Link) -> Result<Toolkit, String> {
        folder(root)?;
        match link {
            Link::Dlopen => self.layouts(root, Some(Link::Dylib)).or_else(|_| self.layouts(root, None)),
            linked => self.layouts(root, Some(linked)),
        }
    }

    fn layouts(&self, root: &Path, link: Option<Link>) -> Result<Toolkit, String> {
        let mut reasons = Vec::new();
        for (include, lib) in places::layouts(&self.target.os, &self.target.arch) {
            match self.layout(root, &include, &lib, link) {
                Ok(toolkit) => return Ok(toolkit),
                Err(why) if reasons.contains(&why) => {}
                Err(why) => reasons.push(why),
            }
        }
        Err(reasons.join("; "))
    }

    /// Takes one pair of header and library folder (relative to the root, or absolute), or says why not.
    fn layout(&self, root: &Path, include: &Path, lib: &Path, link: Option<Link>) -> Result<Toolkit, String> {
        let version = self.header(root, include).map_err(|why| match self.some_library(root, lib) {
            Some(library) => format!("{why}, though {library} is there: the development files are not installed"),
            None => why,
        })?;
        let library = link.map(|link| self.library(root, lib, link, version)).transpose()?;
        Ok(Toolkit { root: root.to_owned(), include: root.join(include), library, version })
    }

    /// The version of a header that can be used.
    fn header(&self, root: &Path, include: &Path) -> Result<Version, String> {
        let name = include.join(HEADER);
        let text = match fs::read(root.join(&name)) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(e) if e.kind() == ErrorKind::NotFound => return Err(format!("no {}", name.display())),
            Err(e) => return Err(format!("{} cannot be read: {e}", name.display())),
        };
        let version =
            text.lines().find_map(|line| line.trim().strip_prefix("#define CUDART_VERSION")?.trim().parse().ok());
        let version =
            version.map(Version::from_number).ok_or_else(|| format!("{} defines no CUDART_VERSION", name.display()))?;
        if version < self.known[0] {
            return Err(format!("CUDA {version}, but {} is the oldest that is supported", self.known[0]));
        }
        if let Some(asked) = self.asked.filter(|&asked| asked != version) {
            return Err(format!("CUDA {version}, but CUDA_MEMPOOL_CUDA_VERSION asks for {asked}"));
        }
        let included = include.join("crt/host_defines.h");
        if self.compiles_headers && !root.join(&included).is_file() {
            return Err(format!(
                "no {}, which the feature `bindgen` needs (on PyPI it is in nvidia-cuda-crt and nvidia-cuda-nvcc-cu12)",
                included.display()
            ));
        }
        Ok(version)
    }

    /// The library for a link kind that goes with headers of `version`.
    fn library(&self, root: &Path, lib: &Path, link: Link, version: Version) -> Result<PathBuf, String> {
        let names = self.library_names(link, version);
        let mut unfit = None;
        for name in &names {
            let file = root.join(lib).join(name);
            if file.exists() {
                match library::check(&file, self.target, version) {
                    Ok(()) => return Ok(file),
                    Err(why) => unfit = unfit.or(Some(why)),
                }
            }
        }
        Err(unfit.unwrap_or_else(|| format!("no {} in {}", names.join(" or "), lib.display())))
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

    /// A library without a header beside it, for the message.
    fn some_library(&self, root: &Path, lib: &Path) -> Option<String> {
        let names = self.known.iter().flat_map(|&version| self.library_names(Link::Dylib, version));
        names.map(|name| lib.join(name)).find(|file| root.join(file).exists()).map(|file| file.display().to_string())
    }
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
