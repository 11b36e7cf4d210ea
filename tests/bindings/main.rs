//! The checked-in bindings held against NVIDIA's headers, against each other, and against the list of what is offered.

mod coverage;
mod headers;
mod one_abi;
mod parsed;
