//! CUDA versions, and which of them have checked-in bindings.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
}

impl Version {
    /// From `CUDART_VERSION`, 12040 for 12.4.
    pub fn from_number(number: u32) -> Self {
        Self { major: number / 1000, minor: number % 1000 / 10 }
    }

    pub fn number(self) -> u32 {
        self.major * 1000 + self.minor * 10
    }

    /// As it stands in names of files and cfgs: `12_4`.
    pub fn underscored(self) -> String {
        format!("{}_{}", self.major, self.minor)
    }

    fn parse(text: &str, separator: char) -> Option<Self> {
        let (major, minor) = text.split_once(separator)?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Version {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::parse(text, '.').ok_or(())
    }
}

// What stands around the version in the name of a file with bindings.
const BEFORE: &str = "cuda_";
const AFTER: &str = ".rs";

/// The name of the file with the bindings of a version.
pub fn file_name(version: Version) -> String {
    format!("{BEFORE}{}{AFTER}", version.underscored())
}

/// The versions whose bindings lie in `folder`, oldest first. The names of the files are the only list there is.
pub fn known(folder: &Path) -> Result<Vec<Version>, String> {
    let failed = |why: &dyn fmt::Display| format!("{}: {why}", folder.display());
    let mut known = Vec::new();
    for entry in folder.read_dir().map_err(|e| failed(&e))? {
        let name = entry.map_err(|e| failed(&e))?.file_name();
        let version = name.to_str().and_then(|name| name.strip_prefix(BEFORE)?.strip_suffix(AFTER));
        known.extend(version.and_then(|version| Version::parse(version, '_')));
    }
    if known.is_empty() {
        return Err(failed(&"no bindings there"));
    }
    known.sort();
    Ok(known)
}

/// Several versions in a message.
pub fn list(versions: &[Version]) -> String {
    versions.iter().map(Version::to_string).collect::<Vec<_>>().join(", ")
}
