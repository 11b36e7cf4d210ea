//! `cargo xtask docs`: the part of docs/from-cuda.md that repeats the guide, so that each sample is written once.

use std::fmt::Write;
use std::fs;

use anyhow::{bail, ensure, Context, Result};

#[path = "../../tests/support/guide.rs"]
#[allow(dead_code)] // the build script uses the rest
mod guide;

const BEGIN: &str = "<!-- From here on: made from the guide by `cargo xtask docs` -->\n";
const END: &str = "<!-- To here -->\n";

/// Writes the document, or only checks it.
pub fn run(check: bool) -> Result<()> {
    let path = crate::root().join("docs/from-cuda.md");
    let old = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let (head, rest) = old.split_once(BEGIN).context("docs/from-cuda.md has no place for the samples")?;
    let (_, tail) = rest.split_once(END).context("docs/from-cuda.md does not end the samples")?;
    let new = format!("{head}{BEGIN}\n{}{END}{tail}", samples()?);
    if new == old {
        return Ok(());
    }
    if check {
        bail!("docs/from-cuda.md is not what the guide makes: run `cargo xtask docs`");
    }
    Ok(fs::write(path, new)?)
}

fn samples() -> Result<String> {
    let mut text = String::new();
    let (mut chapter, mut section) = (String::new(), None);
    for sample in guide::samples(&crate::root().join("cuda-mempool/src"))? {
        ensure!(!sample.rust.is_empty(), "a sample of {} has no Rust beside it:\n{}", sample.chapter, sample.foreign);
        if chapter != sample.title {
            let source = format!("../cuda-mempool/src/guide/{}.rs", sample.chapter);
            let _ = writeln!(text, "## [{}]({source})\n", sample.title);
            chapter = sample.title;
            section = None;
        }
        if section != sample.section {
            section = sample.section;
            let _ = writeln!(text, "### {}\n", section.as_deref().unwrap_or_default());
        }
        if !sample.lead.is_empty() {
            let _ = writeln!(text, "{}\n", without_links(&sample.lead));
        }
        let foreign = if sample.language == "cpp" { "C++" } else { "C" };
        let _ = writeln!(
            text,
            "<table><tr><th>{foreign}</th><th>Rust</th></tr><tr><td>\n\n```{}\n{}\n```\n\n</td><td>\n\n```rust\n{}\n```\n\n\
             </td></tr></table>\n",
            sample.language, sample.foreign, sample.rust
        );
    }
    Ok(text)
}

/// Links into the crate's documentation lead nowhere here: their text stays.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once("](") {
        let (target, after) = link.split_once(')').expect("a link is closed");
        rest = after;
        if target.starts_with("crate::") || target.starts_with("super::") || target.starts_with('#') {
            let (outside, inside) = before.rsplit_once('[').expect("a link is opened");
            plain = plain + outside + inside;
        } else {
            plain = format!("{plain}{before}]({target})");
        }
    }
    plain + rest
}
