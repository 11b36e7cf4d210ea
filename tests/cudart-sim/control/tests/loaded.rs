//! The controls reach the library that was loaded, as a wrapper with lazy loading would load it.

use std::ffi::{c_void, CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cudart_sim_control::{library, Access, Control, Error, RaceMode};

type Stream = *mut c_void;

/// A function of the loaded library.
///
/// # Safety
/// It must have the type.
unsafe fn function<F: Copy>(library: *mut c_void, name: &CStr) -> F {
    // SAFETY: the handle is open; the type is the caller's promise.
    unsafe {
        let address = libc::dlsym(library, name.as_ptr());
        assert!(!address.is_null(), "{name:?}");
        std::mem::transmute_copy(&address)
    }
}

#[test]
fn controls_work_on_the_loaded_library() {
    assert!(Control::loaded().is_none(), "nothing is loaded yet");
    let path = CString::new(library().expect("cargo has built it").as_os_str().as_bytes()).unwrap();
    // SAFETY: the library's initialisers have no requirement; the functions have these types; pointers are valid.
    unsafe {
        // Nobody else sees its symbols, as with a wrapper that loads it.
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!library.is_null());
        let get_device: unsafe extern "C" fn(*mut i32) -> u32 = function(library, c"cudaGetDevice");
        let malloc: unsafe extern "C" fn(*mut *mut c_void, usize, Stream) -> u32 =
            function(library, c"cudaMallocAsync");
        let free: unsafe extern "C" fn(*mut c_void, Stream) -> u32 = function(library, c"cudaFreeAsync");
        let synchronise: unsafe extern "C" fn() -> u32 = function(library, c"cudaDeviceSynchronize");
        let last_error: unsafe extern "C" fn() -> u32 = function(library, c"cudaGetLastError");

        let sim = Control::loaded().expect("it is loaded");
        let mut device = 9;
        sim.add_faults("cudaGetDevice#2=46").unwrap();
        assert_eq!([get_device(&mut device), get_device(&mut device), get_device(&mut device)], [0, 46, 0]);
        assert_eq!(sim.calls("cudaGetDevice"), Some(3));
        assert_eq!(sim.calls("cudaNothing"), None);
        assert!(sim.total_calls() >= 3);
        assert_eq!(sim.add_faults("nonsense"), Err(Error(1)));

        let (mut pointer, ran) = (null_mut(), AtomicU32::new(0));
        unsafe extern "C" fn kernel(ran: *mut c_void, memory: *const *mut c_void) {
            // SAFETY: as it is launched below.
            unsafe {
                (*memory).cast::<u8>().write(7);
                (*ran.cast::<AtomicU32>()).store((*memory).cast::<u8>().read().into(), Ordering::Release);
            }
        }
        assert_eq!(malloc(&mut pointer, 100, null_mut()), 0);
        assert_eq!((sim.live().pool_allocations, sim.live().bytes), (1, 100));
        assert!(sim.leak_report().contains("100 bytes"));
        let argument = std::ptr::addr_of!(ran).cast_mut().cast();
        sim.launch(null_mut(), "seven", kernel, argument, &[Access::write(pointer, 100)]).unwrap();
        assert_eq!(synchronise(), 0);
        assert_eq!(ran.load(Ordering::Acquire), 7);
        assert_eq!(free(pointer, null_mut()), 0);
        assert_eq!(sim.live().objects(), 0);

        assert_eq!(sim.races(), 0);
        sim.set_race_mode(RaceMode::Count);
        sim.launch(null_mut(), "late", kernel, argument, &[Access::read(pointer, 1)]).unwrap();
        assert_eq!(synchronise(), 0);
        assert_eq!(sim.races(), 1);
        assert!(sim.last_race().starts_with("use after free: late"), "{}", sim.last_race());
        sim.reset();
        assert_eq!((sim.races(), sim.last_race()), (0, String::new()));

        let device = sim.add_device();
        assert_eq!(device, 1);
        sim.set_memory(device, 1 << 20).unwrap();
        assert_eq!(sim.set_memory(9, 1), Err(Error(101)));
        sim.set_peer_access(0, device, false).unwrap();
        sim.set_versions(12040, 12080);
        sim.set_delay(Duration::from_micros(50), 3);
        assert_eq!(malloc(&mut pointer, 100, null_mut()), 0);
        assert_eq!(free(pointer, null_mut()), 0);
        assert_eq!(synchronise(), 0);
        sim.add_faults("cudaDeviceSynchronize#1=719!").unwrap();
        sim.clear_faults();
        assert_eq!(synchronise(), 0);
        assert_eq!(last_error(), 0);
    }
}
