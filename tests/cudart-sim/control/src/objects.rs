//! The shared objects of this process.

use std::ffi::{c_int, c_void, CStr, CString};

/// A loaded shared object. It is never unloaded by this handle.
pub struct Object(*mut c_void);

impl Object {
    /// The address of a symbol.
    pub fn address(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is open, the name a C string.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }
}

/// The object that defines a symbol, wherever and however it was loaded.
pub fn with(symbol: &CStr) -> Option<Object> {
    names().iter().find_map(|name| {
        // SAFETY: only objects that are loaded already are opened, so no initialiser runs. The handle is kept open, which
        // keeps the object's functions where they are.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        Some(Object(handle)).filter(|object| !handle.is_null() && object.address(symbol).is_some())
    })
}

/// The files of all objects but the program itself.
fn names() -> Vec<CString> {
    unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _size: usize, names: *mut c_void) -> c_int {
        // SAFETY: the loader gives a valid struct whose name is a C string, and the list given below.
        unsafe {
            let name = CStr::from_ptr((*info).dlpi_name);
            if !name.is_empty() {
                (*names.cast::<Vec<CString>>()).push(name.to_owned());
            }
        }
        0
    }
    let mut names = Vec::new();
    // SAFETY: the callback fits, and gets the list it expects.
    unsafe { libc::dl_iterate_phdr(Some(add), std::ptr::from_mut(&mut names).cast()) };
    names
}
