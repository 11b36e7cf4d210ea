//! The decisions of the build script, from what it was told and what it finds. Nothing is printed or written here.

use crate::bindings;
use crate::link::{self, Demand, Link};
use crate::search::{Search, Tried};
use crate::toolkit::Toolkit;
use crate::version::Version;

pub struct Plan {
    pub link: Link,
    pub toolkit: Option<Toolkit>,
    /// The version of the declarations that the crate will have.
    pub bindings: Version,
    /// Whether they are made from the toolkit's headers now.
    pub generates: bool,
    pub warnings: Vec<String>,
    /// The places that would not do for the link kind, or for linking if that was left to choose.
    pub tried: Vec<Tried>,
}

/// Decides, or says why the build must stop and what to do about it.
pub fn plan(search: &Search<'_>) -> Result<Plan, String> {
    if !search.environment.cargo("DOCS_RS").is_empty() {
        return Ok(without_toolkit(search));
    }
    let demand = link::demanded(search.environment)?;
    let (link, toolkit, tried) = match &demand {
        Some(demand) => {
            let (toolkit, tried) = search.find(demand.link);
            if toolkit.is_none() && demand.link != Link::Dlopen {
                return Err(unmet(demand, &tried));
            }
            (demand.link, toolkit, tried)
        }
        None => match search.find(Link::Dylib) {
            (None, tried) => (Link::Dlopen, search.find(Link::Dlopen).0, tried),
            (found, tried) => (Link::Dylib, found, tried),
        },
    };
    let demands_dlopen = demand.as_ref().is_some_and(|demand| demand.link == Link::Dlopen);
    let mut warnings: Vec<_> = demand.into_iter().filter_map(|demand| demand.warning).collect();
    // With dlopen on demand a toolkit is a gift, so a variable that names none is no mistake.
    if !demands_dlopen || search.needs.compiles_headers {
        warnings.extend(tried.iter().filter_map(mistaken_variable));
    }

    let Some(toolkit) = toolkit else {
        if search.needs.compiles_headers {
            return Err(no_headers(&tried));
        }
        return Ok(Plan { warnings, tried, ..without_toolkit(search) });
    };
    let newest = search.newest();
    let bindings = match link {
        _ if search.needs.compiles_headers => toolkit.version,
        Link::Dlopen => search.needs.asked.unwrap_or(newest),
        Link::Dylib | Link::Static => bindings::for_toolkit(toolkit.version, search.known),
    };
    if link != Link::Dlopen && !search.needs.compiles_headers && toolkit.version > newest {
        warnings.push(format!(
            "the CUDA {} in {} is newer than this crate knows: it is used through the bindings of {newest}. A newer \
             version of this crate, or its feature `bindgen`, has the rest",
            toolkit.version,
            toolkit.root.display()
        ));
    }
    Ok(Plan { link, toolkit: Some(toolkit), bindings, generates: search.needs.compiles_headers, warnings, tried })
}

fn without_toolkit(search: &Search<'_>) -> Plan {
    Plan {
        link: Link::Dlopen,
        toolkit: None,
        bindings: search.needs.asked.unwrap_or(search.newest()),
        generates: false,
        warnings: Vec::new(),
        tried: Vec::new(),
    }
}

/// A variable that names a place which will not do deserves a word, though the search goes on.
fn mistaken_variable(tried: &Tried) -> Option<String> {
    let variable = tried.variable.as_ref()?;
    Some(format!(
        "{} is passed over: {}. Set {variable} to the root of a CUDA toolkit (the folder with include/ and lib64/), or \
         unset it",
        tried.place, tried.why
    ))
}

fn unmet(demand: &Demand, tried: &[Tried]) -> String {
    let library = if demand.link == Link::Static { "libcudart_static.a" } else { "libcudart.so" };
    format!(
        "{} asks for the link kind `{}`, but no CUDA toolkit with include/cuda_runtime_api.h and {library} was found. \
         Tried:{}\nSet CUDA_HOME to the root of such a toolkit; or set CUDA_MEMPOOL_LINK=dlopen, which needs nothing \
         at build time",
        demand.by,
        demand.link,
        places(tried)
    )
}

fn no_headers(tried: &[Tried]) -> String {
    format!(
        "the feature `bindgen` makes the bindings from the headers of a CUDA toolkit, but none was found. Tried:{}\n\
         Set CUDA_HOME to the root of a toolkit; or turn the feature off, as bindings of every version come with the \
         crate",
        places(tried)
    )
}

/// The places tried, one a line.
pub fn places(tried: &[Tried]) -> String {
    tried.iter().map(|tried| format!("\n  {}: {}", tried.place, tried.why)).collect()
}
