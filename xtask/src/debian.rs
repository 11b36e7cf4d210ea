//! Debian packages, unpacked under `target/debian` without installing them.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{ensure, Context, Result};

/// The folder with what the packages contain, or `None` where there is no apt.
pub fn unpacked(packages: &[&str]) -> Result<Option<PathBuf>> {
    let folder = crate::target().join("debian");
    let root = folder.join("root");
    if root.exists() {
        return Ok(Some(root));
    }
    if Command::new("apt-get").arg("--version").output().is_err() {
        return Ok(None);
    }
    // Package lists of our own: the system's may be old or missing, and making them new takes an administrator.
    let lists = folder.join("lists");
    std::fs::create_dir_all(lists.join("partial"))?;
    let state = format!("-oDir::State::Lists={}", lists.display());
    let apt = |args: &[&str]| {
        let status = Command::new("apt-get")
            .args(["--quiet=2", "-oAPT::Sandbox::User=root", &state])
            .args(args)
            .current_dir(&folder)
            .status()?;
        ensure!(status.success(), "apt-get {} failed ({status})", args.join(" "));
        Ok(())
    };
    apt(&["update"])?;
    apt(&[&["download"], packages].concat())?;
    let unfinished = folder.join("unfinished");
    for entry in std::fs::read_dir(&folder)? {
        let package = entry?.path();
        if package.extension().is_some_and(|extension| extension == "deb") {
            let status = Command::new("dpkg-deb")
                .arg("--extract")
                .args([&package, &unfinished])
                .status()
                .context("cannot start dpkg-deb")?;
            ensure!(status.success(), "unpacking {} failed ({status})", package.display());
        }
    }
    std::fs::rename(&unfinished, &root)?;
    Ok(Some(root))
}
