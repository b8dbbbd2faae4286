// SPDX-License-Identifier: MIT OR Apache-2.0

//! The component as Open MPI loads it: a symbol with its versions, and the functions that
//! initialize and close it.

use std::ffi::{c_char, c_int};
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use sockaddr_en::FamilyMissing;

use crate::card;
use crate::driver;
use crate::engine::{Engine, Settings};
use crate::ffi::*;
use crate::interfaces;
use crate::module;
use crate::parameters::{self, Parameters};
use crate::remote;
use crate::transport::{Interface, Listener};
use crate::wire::Name;

/// Maximum number of interfaces that the component uses.
const INTERFACES: usize = 8;

/// This component's priority among the components that reach the same peer. The priority of tcp is
/// 100, and the priority of shared memory within a host is 65536.
const EXCLUSIVITY: u32 = 200;

/// Maximum size of a message's first fragment, in bytes. [`LARGEST`] is the maximum size of the
/// fragments that follow.
const EAGER: usize = 64 << 10;
const LARGEST: usize = 128 << 10;

/// Size of a receive buffer, in fragments.
const BLOCK: usize = 4;

/// The component. Open MPI keeps the component's address and writes to the component.
#[no_mangle]
#[allow(non_upper_case_globals, missing_docs)]
pub static mut mca_btl_esp_component: mca_btl_base_component_3_0_0_t =
    mca_btl_base_component_3_0_0_t {
        btl_version: mca_base_component_2_1_0_t {
            mca_major_version: MCA_BASE_VERSION_MAJOR as c_int,
            mca_minor_version: MCA_BASE_VERSION_MINOR as c_int,
            mca_release_version: MCA_BASE_VERSION_RELEASE as c_int,
            mca_project_name: name("opal"),
            mca_project_major_version: OPAL_MAJOR_VERSION as c_int,
            mca_project_minor_version: OPAL_MINOR_VERSION as c_int,
            mca_project_release_version: OPAL_RELEASE_VERSION as c_int,
            mca_type_name: name("btl"),
            mca_type_major_version: 3,
            mca_type_minor_version: 3,
            mca_type_release_version: 0,
            mca_component_name: name("esp"),
            mca_component_major_version: OPAL_MAJOR_VERSION as c_int,
            mca_component_minor_version: OPAL_MINOR_VERSION as c_int,
            mca_component_release_version: OPAL_RELEASE_VERSION as c_int,
            mca_open_component: Some(open),
            mca_close_component: Some(close),
            mca_query_component: None,
            mca_register_component_params: Some(register),
            mca_component_flags: 0,
            reserved: [0; 28],
        },
        btl_data: mca_base_component_data_2_0_0_t {
            param_field: 0,
            reserved: [0; 32],
        },
        btl_init: Some(init),
        // The component registers its progress function itself. Open MPI would register it only
        // when this process first reaches a peer, but an unknown peer may connect earlier.
        btl_progress: None,
    };

/// Returns `text` padded with zeros.
const fn name<const SIZE: usize>(text: &str) -> [c_char; SIZE] {
    let mut padded = [0; SIZE];
    let mut place = 0;
    while place < text.len() {
        padded[place] = text.as_bytes()[place] as c_char;
        place += 1;
    }
    padded
}

/// The template from which all modules (Open MPI's objects for interfaces) are copied. Open MPI
/// writes parameters into it.
static mut TEMPLATE: mem::MaybeUninit<mca_btl_base_module_t> = mem::MaybeUninit::zeroed();

/// Whether [`progress`] is registered with Open MPI.
static PROGRESSING: AtomicBool = AtomicBool::new(false);

unsafe extern "C" fn open() -> c_int {
    OPAL_SUCCESS
}

unsafe extern "C" fn close() -> c_int {
    if PROGRESSING.swap(false, Ordering::Relaxed) {
        // SAFETY: `progress` was registered, and Open MPI closes components in one thread.
        unsafe { opal_progress_unregister(Some(progress)) };
    }
    driver::close();
    OPAL_SUCCESS
}

unsafe extern "C" fn progress() -> c_int {
    driver::progress()
}

unsafe extern "C" fn register() -> c_int {
    let template = (&raw mut TEMPLATE).cast::<mca_btl_base_module_t>();
    // SAFETY: one thread registers parameters, nothing else refers to the template, and all-zero
    // bytes are a valid template.
    let module = unsafe { &mut *template };
    module.btl_eager_limit = EAGER;
    module.btl_rndv_eager_limit = EAGER;
    module.btl_max_send_size = LARGEST;
    module.btl_rdma_pipeline_send_length = LARGEST;
    module.btl_rdma_pipeline_frag_size = usize::MAX;
    module.btl_min_rdma_pipeline_size = 0;
    module.btl_exclusivity = EXCLUSIVITY;
    module.btl_flags = MCA_BTL_FLAGS_SEND | MCA_BTL_FLAGS_SEND_INPLACE | MCA_BTL_FLAGS_PUT;
    module.btl_put_limit = usize::MAX;
    module.btl_latency = 20;
    module.btl_component = &raw mut mca_btl_esp_component;
    module::fill(module);
    // SAFETY: `component` and `template` are static, and only this thread uses them now.
    unsafe {
        let component = &raw mut mca_btl_esp_component.btl_version;
        mca_btl_base_param_register(component, template);
        parameters::register(component)
    }
}

/// Creates a module for each interface and one for remote memory, and publishes the interfaces'
/// cards to the peers.
unsafe extern "C" fn init(
    count: *mut c_int,
    _progress_threads: bool,
    _mpi_threads: bool,
) -> *mut *mut mca_btl_base_module_t {
    // SAFETY: Open MPI passes a valid pointer in `count`.
    unsafe { *count = 0 };
    // SAFETY: Open MPI registers the parameters before it calls `init`.
    let parameters = unsafe { parameters::read() };
    let made = match make(&parameters) {
        Ok(made) => made,
        Err(why) => {
            // SAFETY: Open MPI sets `opal_process_info` before it opens components, and does not
            // change it.
            let first = unsafe { opal_process_info.my_local_rank } == 0;
            if first && !parameters.quiet {
                eprintln!("btl esp is not used on this host: {why}");
            }
            return ptr::null_mut();
        }
    };
    let size = made.len() * size_of::<*mut mca_btl_base_module_t>();
    // SAFETY: `malloc` accepts any size. Open MPI frees the array with free(3).
    let array: *mut *mut mca_btl_base_module_t = unsafe { libc::malloc(size) }.cast();
    if array.is_null() || made.is_empty() {
        return ptr::null_mut();
    }
    for (place, module) in made.iter().enumerate() {
        // SAFETY: the array has room for `made.len()` pointers.
        unsafe { array.add(place).write(*module) };
    }
    // SAFETY: Open MPI passes a valid pointer in `count`. The number of modules is small.
    unsafe { *count = made.len() as c_int };
    array
}

fn make(parameters: &Parameters) -> Result<Vec<*mut mca_btl_base_module_t>, String> {
    let mut interfaces = if parameters.test_links > 0 {
        vec![Interface::Loopback; parameters.test_links]
    } else {
        // A socket is opened first, so that a missing kernel module is reported before missing
        // interfaces.
        sockaddr_en::EspSocket::new().map_err(explain)?;
        interfaces::find(&parameters.include, &parameters.exclude).map_err(explain)?
    };
    interfaces.truncate(INTERFACES);
    let mut listeners: Vec<_> = interfaces
        .into_iter()
        // An interface that has just disappeared is skipped.
        .filter_map(|interface| Listener::open(interface, parameters.timeout).ok())
        .collect();
    if listeners.is_empty() {
        return Err(
            "no Ethernet interface is up (btl_esp_if_include, btl_esp_if_exclude)".to_owned(),
        );
    }
    // An older kernel module has no channels. Then the process writes what peers put.
    let domain = if parameters.test_links > 0 {
        None
    } else {
        sockaddr_en::Domain::new().ok()
    };
    if let Some(domain) = &domain {
        for listener in &mut listeners {
            // After an error, the process writes what peers put by this interface.
            let _ = listener.listen_for_channels(domain);
        }
    }
    let cards: Vec<_> = listeners.iter().map(Listener::card).collect();
    let used: Vec<_> = listeners.iter().map(|l| l.interface().clone()).collect();
    // SAFETY: Open MPI sets `opal_process_info` before it opens components, and does not change it.
    let own = unsafe { opal_process_info.my_name };
    // SAFETY: the parameters are registered, and nothing writes to the template after that.
    let template = unsafe { *(&raw const TEMPLATE).cast::<mca_btl_base_module_t>() };
    let settings = Settings {
        polled: parameters.polled,
        timeout: parameters.timeout,
        block: BLOCK * template.btl_max_send_size.max(template.btl_eager_limit),
    };
    let name = Name {
        job: own.jobid,
        rank: own.vpid,
    };
    // The keys of a new hasher are random.
    let token = RandomState::new().hash_one(own.vpid);
    let mut engine = Engine::new(name, token, listeners, settings).map_err(explain)?;
    if let Some(domain) = domain {
        engine.set_domain(domain);
    }
    let bytes = card::encode(token, &cards);
    // SAFETY: the component is static; the call copies the bytes.
    let sent = unsafe {
        enet_modex_send(
            &raw const mca_btl_esp_component.btl_version,
            bytes.as_ptr().cast(),
            bytes.len(),
        )
    };
    if sent != OPAL_SUCCESS {
        return Err(format!(
            "its addresses cannot be told to other ranks (modex: {sent})"
        ));
    }
    let mut modules: Vec<_> = used
        .iter()
        .map(|interface| {
            let mut module = template;
            if module.btl_bandwidth == 0 {
                module.btl_bandwidth = interface.rate();
            }
            Box::into_raw(Box::new(module))
        })
        .collect();
    driver::start(engine, used, &modules, parameters.echoes);
    let mut memory = template;
    remote::fill(&mut memory);
    modules.push(Box::into_raw(Box::new(memory)));
    // SAFETY: `progress` may be called from now on, until `close` unregisters it.
    if unsafe { opal_progress_register(Some(progress)) } == OPAL_SUCCESS {
        PROGRESSING.store(true, Ordering::Relaxed);
    }
    Ok(modules)
}

fn explain(error: std::io::Error) -> String {
    if FamilyMissing::is(&error) {
        "the kernel module enet is not loaded (modprobe enet)".to_owned()
    } else {
        error.to_string()
    }
}
