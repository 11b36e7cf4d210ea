//! The search for a CUDA toolkit: the places, in order.

use std::path::{Path, PathBuf};

use crate::environment::Environment;
use crate::link::Link;
use crate::places;
use crate::toolkit::{Needs, Toolkit};
use crate::version::Version;

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
    /// Stands before every usual place: `/`, but for tests.
    pub filesystem: &'a Path,
    pub pkg_config: PkgConfig<'a>,
    /// The versions with bindings, oldest first.
    pub known: &'a [Version],
    pub needs: Needs<'a>,
}

impl Search<'_> {
    /// The newest version with bindings.
    pub fn newest(&self) -> Version {
        self.known[self.known.len() - 1]
    }

    /// The first toolkit that fits the link kind, and the places tried before it.
    pub fn find(&self, link: Link) -> (Option<Toolkit>, Vec<Tried>) {
        if !self.needs.target.has_cuda() {
            let place = format!("the target {}", self.needs.target.triple);
            return (None, vec![Tried { place, why: "there is no CUDA runtime for it".into(), variable: None }]);
        }
        let named = self.named_roots().into_iter().map(|(variable, root)| {
            let place = format!("{variable}={}", root.display());
            (place, Some(variable), self.needs.below(&root, link))
        });
        // Lazily: what comes after the place that is taken must not even be looked at.
        let packages = std::iter::once_with(|| self.packages(link)).flatten();
        let packages = packages.map(|(place, outcome)| (place, None, outcome));
        let variable = |name: &str| self.environment.variable(name);
        let usual = std::iter::once_with(|| places::usual_roots(&variable, self.filesystem)).flatten();
        let usual = usual.map(|root| (root.display().to_string(), None, self.needs.below(&root, link)));

        let mut tried = Vec::new();
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
        let prefixed = places::VARIABLES.map(|name| self.needs.target.prefixed(name));
        let mut roots: Vec<(String, PathBuf)> = Vec::new();
        for name in prefixed.into_iter().chain(places::VARIABLES.map(str::to_owned)) {
            let root = self.environment.variable(&name).map(PathBuf::from);
            let root = root.filter(|root| roots.iter().all(|(_, seen)| seen != root));
            roots.extend(root.map(|root| (name, root)));
        }
        roots
    }

    /// What pkg-config knows, newest first.
    fn packages(&self, link: Link) -> Vec<(String, Result<Toolkit, String>)> {
        let mut answers = Vec::new();
        let asked = self.needs.asked;
        for &version in self.known.iter().rev().filter(|&&version| asked.map_or(true, |asked| asked == version)) {
            match (self.pkg_config)(version) {
                Ok(Some(Package { include, lib })) => {
                    answers.push((format!("pkg-config cudart-{version}"), self.needs.within(&include, &lib, link)));
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
}
