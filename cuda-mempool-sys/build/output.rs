//! The plan in Cargo's language: what to link, cfgs, metadata for dependants, warnings.

use std::path::Path;

use crate::environment::Target;
use crate::link::Link;
use crate::plan::{places, Plan};
use crate::toolkit::{Toolkit, HEADER};
use crate::version::Version;

/// All lines that follow from the plan. The bindings lie in the file `bindings`.
pub fn lines(plan: &Plan, known: &[Version], target: &Target, bindings: &Path) -> Vec<String> {
    let mut lines = vec![format!("rustc-env=CUDA_MEMPOOL_BINDINGS={}", bindings.display())];
    lines.extend(plan.warnings.iter().map(|warning| format!("warning={warning}")));
    lines.extend(plan.toolkit.iter().flat_map(watched));
    lines.extend(linking(plan, target));
    lines.extend(cfgs(plan, known));
    lines.extend(metadata(plan, known));
    lines.push(format!("bindings={}", bindings.display()));
    lines.into_iter().map(|line| format!("cargo:{line}")).collect()
}

/// What was chosen and why nothing before it was, for whoever asks Cargo to be verbose.
pub fn summary(plan: &Plan) -> String {
    let toolkit = match &plan.toolkit {
        Some(Toolkit { library: Some(_), version, root, .. }) => format!("CUDA {version} in {}", root.display()),
        Some(Toolkit { version, include, .. }) => format!("headers of CUDA {version} in {}", include.display()),
        None => "no CUDA toolkit".into(),
    };
    let made = if plan.generates { ", generated now" } else { "" };
    let tried = if plan.tried.is_empty() { String::new() } else { format!(". Passed over:{}", places(&plan.tried)) };
    format!("link kind {}, bindings of CUDA {}{made}; found {toolkit}{tried}", plan.link, plan.bindings)
}

fn watched(toolkit: &Toolkit) -> Vec<String> {
    let header = toolkit.include.join(HEADER);
    [Some(&header), toolkit.library.as_ref()]
        .into_iter()
        .flatten()
        .map(|file| format!("rerun-if-changed={}", file.display()))
        .collect()
}

fn linking(plan: &Plan, target: &Target) -> Vec<String> {
    let library = plan.toolkit.as_ref().and_then(|toolkit| toolkit.library.as_deref());
    let (Some(library), Link::Dylib | Link::Static) = (library, plan.link) else { return Vec::new() };
    let mut lines = Vec::new();
    lines.extend(library.parent().map(|folder| format!("rustc-link-search=native={}", folder.display())));
    if plan.link == Link::Static {
        lines.push("rustc-link-lib=static=cudart_static".into());
        if !target.is_windows() {
            lines.extend(["rt", "pthread", "dl"].map(|system| format!("rustc-link-lib=dylib={system}")));
        }
        return lines;
    }
    match library.file_name().and_then(|name| name.to_str()) {
        Some(name) if name.starts_with("libcudart.so.") => {
            lines.push(format!("rustc-link-lib=dylib:+verbatim={name}"));
        }
        _ => lines.push("rustc-link-lib=dylib=cudart".into()),
    }
    lines
}

/// `cuda_since_X_Y` means "at least X.Y".
fn cfgs(plan: &Plan, known: &[Version]) -> Vec<String> {
    let kinds = Link::ALL.map(|link| format!("\"{link}\"")).join(", ");
    let mut lines = vec![
        format!("rustc-check-cfg=cfg(cuda_link, values({kinds}))"),
        format!("rustc-cfg=cuda_link=\"{}\"", plan.link),
    ];
    lines.extend(known.iter().map(|version| format!("rustc-check-cfg=cfg(cuda_since_{})", version.underscored())));
    lines.extend(since(plan, known).map(|version| format!("rustc-cfg=cuda_since_{version}")));
    lines
}

fn since<'a>(plan: &'a Plan, known: &'a [Version]) -> impl Iterator<Item = String> + 'a {
    known.iter().filter(|&&version| version <= plan.bindings).map(|version| version.underscored())
}

/// What a dependant's build script finds as `DEP_CUDA_MEMPOOL_CUDART_…`.
fn metadata(plan: &Plan, known: &[Version]) -> Vec<String> {
    let mut lines = vec![
        format!("link={}", plan.link),
        format!("version={}", plan.bindings),
        format!("version_number={}", plan.bindings.number()),
        format!("known={}", known.iter().map(|version| version.underscored()).collect::<Vec<_>>().join(",")),
        format!("since={}", since(plan, known).collect::<Vec<_>>().join(",")),
    ];
    if let Some(toolkit) = &plan.toolkit {
        lines.push(format!("root={}", toolkit.root.display()));
        lines.push(format!("include={}", toolkit.include.display()));
        lines.push(format!("toolkit_version={}", toolkit.version));
        if let Some(library) = &toolkit.library {
            lines.push(format!("library={}", library.display()));
            lines.extend(library.parent().map(|folder| format!("lib_dir={}", folder.display())));
        }
    }
    lines
}
