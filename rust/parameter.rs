// SPDX-License-Identifier: GPL-2.0

//! Numeric module parameters, shown in `/sys/module/NAME/parameters`.
//!
//! `module!` has parameters too, but gives each of them mode 0, so sysfs does not show them. The
//! parameters here behave like those of `module_param(NAME, ushort, 0444)` in C. The kernel's own
//! functions parse and print them.
//!
//! C header: [`include/linux/moduleparam.h`](srctree/include/linux/moduleparam.h)

use core::{
    ptr::{addr_of, addr_of_mut},
    sync::atomic::{AtomicU16, Ordering::Relaxed},
};
use kernel::{
    bindings,
    module_param::KernelParam,
    str::{as_char_ptr_in_const_context, CStr},
};

/// Readable by all and writable by none, so the value does not change after the module is loaded.
const MODE: u16 = 0o444;

/// A parameter's value, created by [`parameter`].
pub(crate) struct Parameter(AtomicU16);

impl Parameter {
    #[doc(hidden)]
    pub(crate) const fn new(default: u16) -> Self {
        Self(AtomicU16::new(default))
    }

    /// Returns the number that the module was loaded with, or else the default.
    #[inline]
    pub(crate) fn value(&self) -> u16 {
        self.0.load(Relaxed)
    }

    /// Creates the entry by which the kernel finds the parameter.
    ///
    /// The kernel reads and writes the value through this pointer to an `unsigned short`, which
    /// lives as long as the module. The kernel writes the value while it loads the module, before
    /// any code of the module runs. It never writes afterwards, because [`MODE`] does not permit
    /// it.
    #[doc(hidden)]
    pub(crate) const fn entry(&'static self, name: &'static CStr) -> KernelParam {
        KernelParam::new(bindings::kernel_param {
            name: as_char_ptr_in_const_context(name),
            mod_: addr_of_mut!(bindings::__this_module),
            ops: addr_of!(bindings::param_ops_ushort),
            perm: MODE,
            level: -1,
            flags: 0,
            __bindgen_anon_1: bindings::kernel_param__bindgen_ty_1 {
                arg: self.0.as_ptr().cast(),
            },
        })
    }
}

/// Returns `text` as an array, the form in which the section `.modinfo` stores it. Only the
/// compiler evaluates this function.
#[doc(hidden)]
pub(crate) const fn array<const N: usize>(text: &str) -> [u8; N] {
    match text.as_bytes().first_chunk() {
        Some(bytes) => *bytes,
        None => panic!(),
    }
}

/// Defines a string that `modinfo` shows.
#[doc(hidden)]
macro_rules! modinfo {
    ($($part:expr),*) => {
        const _: () = {
            const TEXT: &str = concat!($($part,)* "\0");
            #[used]
            #[link_section = ".modinfo"]
            static INFO: [u8; TEXT.len()] = $crate::net::parameter::array(TEXT);
        };
    };
}
pub(crate) use modinfo;

/// `static NAME: Parameter = parameter("name", default, "description for modinfo");`
macro_rules! parameter {
    ($(#[$doc:meta])* static $static:ident = parameter($name:literal, $default:expr, $description:literal);) => {
        $(#[$doc])*
        static $static: $crate::net::parameter::Parameter = $crate::net::parameter::Parameter::new($default);
        const _: () = {
            #[used]
            #[link_section = "__param"]
            static ENTRY: ::kernel::module_param::KernelParam = $static.entry(::kernel::c_str!($name));
        };
        $crate::net::parameter::modinfo!("parmtype=", $name, ":ushort");
        $crate::net::parameter::modinfo!("parm=", $name, ":", $description);
    };
}
pub(crate) use parameter;
