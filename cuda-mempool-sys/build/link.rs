//! Which link kind is wanted, and who says so.

use std::fmt;

use crate::environment::Environment;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    Dylib,
    Static,
    Dlopen,
}

impl Link {
    pub const ALL: [Self; 3] = [Self::Dylib, Self::Static, Self::Dlopen];

    pub fn name(self) -> &'static str {
        match self {
            Self::Dylib => "dylib",
            Self::Static => "static",
            Self::Dlopen => "dlopen",
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A link kind that must be had.
#[derive(Debug)]
pub struct Demand {
    pub link: Link,
    /// Who asks for it, as a message names it.
    pub by: String,
    pub warning: Option<String>,
}

/// The link kind that the user asks for, if any.
pub fn demanded(environment: &Environment<'_>) -> Result<Option<Demand>, String> {
    if let Some(value) = environment.text("CUDA_MEMPOOL_LINK") {
        let by = format!("CUDA_MEMPOOL_LINK={value}");
        return match Link::ALL.into_iter().find(|link| link.name() == value) {
            Some(link) => Ok(Some(Demand { link, by, warning: None })),
            None => Err(format!(
                "{by} is no link kind. Set it to one of these, or unset it to have one chosen:\n  \
                 dylib   links the shared library of a CUDA toolkit\n  \
                 static  links its static library\n  \
                 dlopen  needs nothing now and loads the library on the first call"
            )),
        };
    }
    let demand = |link, by: &str, warning| Ok(Some(Demand { link, by: by.to_owned(), warning }));
    match (environment.feature("static"), environment.feature("dlopen")) {
        // Features add up over a whole program. To turn a build that works into one that fails is what adding one
        // must never do, and dlopen always builds.
        (true, true) => demand(
            Link::Dlopen,
            "the feature `dlopen`",
            Some(
                "the features `static` and `dlopen` are both on: `dlopen` is taken, as it builds everywhere. \
                 CUDA_MEMPOOL_LINK=static chooses the other"
                    .to_owned(),
            ),
        ),
        (false, true) => demand(Link::Dlopen, "the feature `dlopen`", None),
        (true, false) => demand(Link::Static, "the feature `static`", None),
        (false, false) => Ok(None),
    }
}
