// SPDX-License-Identifier: MIT OR Apache-2.0

//! Generates bindings for Open MPI's internal headers, and compiles shims for their inline
//! functions.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The functions for which bindgen makes bindings, as a pattern: the shims (`enet_*`), and the
/// functions of Open MPI that the component calls.
const FUNCTIONS: &str = concat!(
    "enet_.*|mca_base_component_var_register|mca_btl_base_param_(register|verify)|mca_btl_base_dump",
    "|opal_bitmap_set_bit|opal_convertor_pack|opal_proc_local_get|opal_progress_(un)?register",
);

/// The types for which bindgen makes bindings, as a pattern: the types that the component uses.
const TYPES: &str =
    concat!(
    "mca_btl_base_(component_3_0_0|module|descriptor|segment|receive_descriptor|registration_handle|atomic_op)_t",
    "|mca_btl_base_rdma_completion_fn_t|mca_base_component_t",
);

/// The constants and variables of Open MPI for which bindgen makes bindings, as a pattern.
const VALUES: &str = concat!(
    "MCA_BTL_(FLAGS_(SEND|SEND_INPLACE|PUT|GET|ATOMIC_OPS|ATOMIC_FOPS|RDMA_REMOTE_COMPLETION)|REG_FLAG_REMOTE_.*|ATOMIC_.*)",
    "|MCA_BTL_(EXCLUSIVITY_LOW|NO_ORDER|DES_.*|ERROR_FLAGS_FATAL|TAG_MAX)",
    "|MCA_BASE_(VAR_TYPE_.*|VERSION_M.*|VERSION_R.*)|OPAL_(MAJOR|MINOR|RELEASE)_VERSION",
    "|OPAL_(SUCCESS|ERR_OUT_OF_RESOURCE|ERR_UNREACH|ERR_NOT_AVAILABLE|ERR_NOT_SUPPORTED)",
    "|mca_btl_base_active_message_trigger|mca_btl_base_descriptor_t_class|opal_process_info",
);

fn main() {
    println!("cargo::rerun-if-changed=c");
    let libraries = Path::new("/usr/lib").join(triplet());
    let includes = [
        // This directory is searched first: it replaces headers that Debian's package lacks.
        PathBuf::from("c/include"),
        libraries.join("openmpi/include"),
        libraries.join("openmpi/include/openmpi"),
        libraries.join("pmix2/include"),
    ];
    generate(&includes);
    cc::Build::new()
        .file("c/shims.c")
        .includes(&includes)
        // Open MPI's headers would cause this warning, because they have unused parameters.
        .flag("-Wno-unused-parameter")
        .compile("shims");
    println!("cargo::rustc-link-search=native={}", libraries.display());
    println!("cargo::rustc-link-lib=open-pal");
    println!("cargo::rustc-link-lib=pmix");
}

/// Returns the architecture's name in Debian's paths.
fn triplet() -> String {
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    format!("{architecture}-linux-gnu")
}

fn generate(includes: &[PathBuf]) {
    let output = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it")).join("bindings.rs");
    let mut bindgen = Command::new("bindgen");
    bindgen.args([
        "c/wrapper.h",
        "--no-layout-tests",
        "--no-doc-comments",
        "--merge-extern-blocks",
    ]);
    bindgen.args(["--rust-target", "1.85", "--default-enum-style", "consts"]);
    bindgen.args(["--allowlist-function", FUNCTIONS, "--allowlist-type", TYPES]);
    bindgen.args(["--allowlist-var", VALUES, "--output"]);
    bindgen.arg(&output).arg("--");
    for include in includes {
        bindgen.arg("-I").arg(include);
    }
    let status = bindgen.status().expect("bindgen is installed");
    assert!(status.success(), "bindgen: {status}");
}
