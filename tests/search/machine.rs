//! A made-up machine: a file tree, environment variables, what pkg-config knows, and the target.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::environment::{Environment, Target};
use crate::libraries::Candidate;
use crate::plan::{plan, Plan};
use crate::search::{Package, Search};
use crate::toolkit::Needs;
use crate::version::{self, Version};
use crate::{bindings, libraries, output};

pub const X86_64: u16 = 62;
pub const AARCH64: u16 = 183;

pub struct Machine {
    folder: TempDir,
    variables: BTreeMap<String, OsString>,
    packages: BTreeMap<Version, (PathBuf, PathBuf)>,
    generates: bool,
}

impl Machine {
    /// An x86-64 Linux machine with nothing on it.
    pub fn new() -> Self {
        let machine = Self {
            folder: tempfile::tempdir().unwrap(),
            variables: BTreeMap::new(),
            packages: BTreeMap::new(),
            generates: false,
        };
        machine.target("x86_64-unknown-linux-gnu")
    }

    pub fn target(self, triple: &str) -> Self {
        let parts: Vec<_> = triple.split('-').collect();
        self.set("TARGET", triple)
            .set("CARGO_CFG_TARGET_ARCH", parts[0])
            .set("CARGO_CFG_TARGET_OS", parts[2])
            .set("CARGO_CFG_TARGET_ENV", parts[3])
    }

    pub fn set(mut self, variable: &str, value: impl Into<OsString>) -> Self {
        self.variables.insert(variable.into(), value.into());
        self
    }

    /// Sets a variable to a path on this machine.
    pub fn set_path(self, variable: &str, path: &str) -> Self {
        let path = self.path(path);
        self.set(variable, path)
    }

    /// Turns the feature `bindgen` on.
    pub fn generating(mut self) -> Self {
        self.generates = true;
        self
    }

    pub fn file(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    pub fn folder(self, path: &str) -> Self {
        fs::create_dir_all(self.path(path)).unwrap();
        self
    }

    pub fn header(self, include: &str, number: u32) -> Self {
        let text = format!("#pragma once\n#define CUDART_VERSION  {number}\n");
        self.file(&format!("{include}/cuda_runtime_api.h"), text)
    }

    /// A shared library that tells its version by its name alone.
    pub fn library(self, path: &str, machine: u16) -> Self {
        self.file(path, elf(machine))
    }

    pub fn archive(self, path: &str, machine: u16) -> Self {
        let member = format!("!<arch>\n{:<60}", "cudart.o/");
        self.file(path, [member.into_bytes(), elf(machine)].concat())
    }

    pub fn link(self, path: &str, target: &str) -> Self {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
        self
    }

    /// A toolkit as NVIDIA's installers make it: everything under `targets/`, and links to it.
    pub fn toolkit(self, root: &str, number: u32, target: &str, machine: u16) -> Self {
        let version = Version::from_number(number);
        let lib = format!("{root}/targets/{target}/lib");
        self.header(&format!("{root}/targets/{target}/include"), number)
            .library(&format!("{lib}/libcudart.so.{version}.99"), machine)
            .link(&format!("{lib}/libcudart.so.{}", version.major), &format!("libcudart.so.{version}.99"))
            .link(&format!("{lib}/libcudart.so"), &format!("libcudart.so.{}", version.major))
            .archive(&format!("{lib}/libcudart_static.a"), machine)
            .link(&format!("{root}/include"), &format!("targets/{target}/include"))
            .link(&format!("{root}/lib64"), &format!("targets/{target}/lib"))
    }

    /// A toolkit for this machine.
    pub fn cuda(self, root: &str, number: u32) -> Self {
        self.toolkit(root, number, "x86_64-linux", X86_64)
    }

    /// Makes pkg-config know a toolkit.
    pub fn package(mut self, root: &str, number: u32) -> Self {
        let root = self.path(root);
        self.packages.insert(Version::from_number(number), (root.join("include"), root.join("lib64")));
        self
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// A path on this machine as text.
    pub fn name(&self, path: &str) -> String {
        self.path(path).display().to_string()
    }

    /// What the build script makes of all this.
    pub fn build(&self) -> Result<Built, String> {
        self.build_with(&self.variables)
    }

    /// The message that stops the build when the shared library must be linked.
    pub fn stopped_for_want_of_a_library(&self) -> String {
        let mut variables = self.variables.clone();
        variables.insert("CUDA_MEMPOOL_LINK".into(), "dylib".into());
        self.build_with(&variables).map(|built| built.summary).unwrap_err()
    }

    fn build_with(&self, variables: &BTreeMap<String, OsString>) -> Result<Built, String> {
        let lookup = |name: &str| variables.get(name).cloned();
        let environment = Environment::new(&lookup);
        let target = Target::of(&environment);
        let known = known();
        let pkg_config = |version: Version| {
            let package = self.packages.get(&version).cloned();
            Ok(package.map(|(include, lib)| Package { include, lib }))
        };
        let plan = plan(&Search {
            environment: &environment,
            filesystem: self.folder.path(),
            pkg_config: &pkg_config,
            known: &known,
            needs: Needs {
                target: &target,
                oldest: known[0],
                asked: bindings::asked(&environment, &known)?,
                compiles_headers: self.generates,
            },
        })?;
        let lines = output::lines(&plan, &known, &target, Path::new("bindings.rs"));
        Ok(Built { summary: output::summary(&plan), plan, lines, asked: environment.asked() })
    }

    /// What a program would try to load here, below the folder of this machine where it is a path.
    pub fn candidates(&self) -> Vec<Candidate> {
        libraries::candidates(&|name| self.variables.get(name).cloned(), self.folder.path())
    }

    pub fn built(&self) -> Built {
        self.build().unwrap()
    }

    /// The message of a build that stops.
    pub fn stopped(&self) -> String {
        self.build().map(|built| built.summary).unwrap_err()
    }
}

pub struct Built {
    pub plan: Plan,
    pub summary: String,
    lines: Vec<String>,
    pub asked: Vec<String>,
}

impl Built {
    pub fn root(&self) -> PathBuf {
        self.plan.toolkit.as_ref().expect("a toolkit").root.clone()
    }

    /// What the lines of one instruction to Cargo say.
    pub fn lines(&self, instruction: &str) -> Vec<&str> {
        let start = format!("cargo:{instruction}=");
        self.lines.iter().filter_map(|line| line.strip_prefix(start.as_str())).collect()
    }

    /// The one warning that there must be.
    pub fn warning(&self) -> &str {
        let warnings = self.lines("warning");
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        warnings[0]
    }
}

/// The versions that the crate has bindings of.
pub fn known() -> Vec<Version> {
    version::known(&Path::new(env!("CARGO_MANIFEST_DIR")).join("cuda-mempool-sys/src/bindings")).unwrap()
}

/// As much of a 64-bit ELF header as tells the architecture.
fn elf(machine: u16) -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(18, 0);
    bytes.extend(machine.to_le_bytes());
    bytes.resize(64, 0);
    bytes
}

/// A shared library for x86-64 with this SONAME in it.
pub fn elf_named(soname: &str) -> Vec<u8> {
    [elf(X86_64), soname.as_bytes().to_vec(), vec![0]].concat()
}

/// Fails unless the text holds every part.
#[track_caller]
pub fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in:\n{text}");
    }
}
