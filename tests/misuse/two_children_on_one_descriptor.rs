// SPDX-License-Identifier: GPL-2.0

//! Two children are grafted onto one descriptor.

use crate::net::family::NewDescriptor;
use crate::net::sock::{Locked, Protocol};

fn graft_twice<P: Protocol>(new: NewDescriptor<'_>, child: &mut Locked<'_, P>) {
    let _ = new.graft(child);
    #[cfg(misuse)]
    let _ = new.graft(child); //~ E0382
}
