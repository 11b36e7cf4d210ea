//! Reads the samples in the guide's source: what is in C (or C++) there, and the Rust beside it.
//!
//! The build script compiles the C, and `cargo xtask docs` makes `docs/from-cuda.md` of both.

use std::fs;
use std::io;
use std::path::Path;

/// One sample in C or C++, and what replaces it.
pub struct Sample {
    /// The chapter's file, without its extension, and its title.
    pub chapter: String,
    pub title: String,
    /// The heading that it stands under within the chapter, if any.
    pub section: Option<String>,
    /// The paragraph right before it.
    pub lead: String,
    /// `c` or `cpp`.
    pub language: String,
    pub foreign: String,
    /// Without the lines that rustdoc hides.
    pub rust: String,
    /// With them: what rustdoc compiles.
    pub whole_rust: String,
}

/// One end of a session between two processes.
pub struct Session {
    pub name: &'static str,
    pub whole_rust: String,
}

/// The ends of sessions that the documentation shows: each is the first function in its source with that name.
pub fn sessions(folder: &Path) -> io::Result<Vec<Session>> {
    let mut sessions = Vec::new();
    for (file, name, function) in [
        ("guide/sharing.rs", "session_of_the_guide", "exporter"),
        ("ipc.rs", "session_exporter", "exporter"),
        ("ipc.rs", "session_importer", "importer"),
    ] {
        let source = fs::read_to_string(folder.join(file))?;
        let head = format!("# pub fn {function}(");
        let mut lines = comment(&source).skip_while(|line| !line.starts_with(&head)).take_while(|line| *line != "```");
        let whole_rust = lines.by_ref().map(shown).collect::<Vec<_>>().join("\n");
        assert!(!whole_rust.is_empty(), "{file} shows no {function}");
        sessions.push(Session { name, whole_rust });
    }
    Ok(sessions)
}

/// All samples of the guide whose source is `guide.rs` in this folder, in the order of its table of contents.
pub fn samples(folder: &Path) -> io::Result<Vec<Sample>> {
    let contents = fs::read_to_string(folder.join("guide.rs"))?;
    let chapters = contents.lines().filter(|line| line.starts_with("//! ") && line[4..].starts_with(char::is_numeric));
    let mut samples = Vec::new();
    for line in chapters {
        let Some((_, name)) = line.trim_end_matches(')').rsplit_once('(') else { continue };
        let source = fs::read_to_string(folder.join("guide").join(name).with_extension("rs"))?;
        samples.extend(of_chapter(name, &source));
    }
    Ok(samples)
}

fn of_chapter(name: &str, source: &str) -> Vec<Sample> {
    let mut samples = Vec::<Sample>::new();
    let (mut title, mut section, mut lead) = (None, None, String::new());
    let mut lines = comment(source);
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let block: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            match language {
                "c" | "cpp" => samples.push(Sample {
                    chapter: name.to_owned(),
                    title: title.clone().unwrap_or_default(),
                    section: section.clone(),
                    lead: std::mem::take(&mut lead),
                    language: language.to_owned(),
                    foreign: block.join("\n"),
                    rust: String::new(),
                    whole_rust: String::new(),
                }),
                // The first block of Rust after it is what replaces it.
                "" | "no_run" => {
                    if let Some(sample) = samples.last_mut().filter(|sample| sample.rust.is_empty()) {
                        sample.whole_rust = block.iter().copied().map(shown).collect::<Vec<_>>().join("\n");
                        sample.rust = block.into_iter().filter(|line| !is_hidden(line)).collect::<Vec<_>>().join("\n");
                    }
                }
                _ => {}
            }
        } else if let Some(heading) = line.strip_prefix("# ") {
            section = Some(heading.to_owned());
        } else if title.is_none() {
            title = Some(line.trim_end_matches('.').to_owned());
        } else if line.is_empty() {
            // A paragraph ends, and is the lead if a sample follows at once.
            lead.push('\n');
        } else {
            if lead.ends_with('\n') {
                lead.clear();
            }
            lead += if lead.is_empty() { "" } else { " " };
            lead += line;
        }
    }
    for sample in &mut samples {
        sample.lead = sample.lead.trim().to_owned();
    }
    samples
}

/// The lines of the comment that a module starts with.
fn comment(source: &str) -> impl Iterator<Item = &str> {
    let lines = source.lines().filter_map(|line| line.strip_prefix("//!"));
    lines.map(|line| line.strip_prefix(' ').unwrap_or(line))
}

/// A line as rustdoc compiles it.
fn shown(line: &str) -> &str {
    line.strip_prefix('#').filter(|_| is_hidden(line)).unwrap_or(line)
}

fn is_hidden(line: &str) -> bool {
    line == "#" || line.starts_with("# ")
}
