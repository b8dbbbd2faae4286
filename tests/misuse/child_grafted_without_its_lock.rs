// SPDX-License-Identifier: GPL-2.0

//! An unlocked child is grafted, although another task may be grafting it onto a different
//! descriptor at the same time.

use crate::net::family::NewDescriptor;
use crate::net::sock::{Protocol, SockRef};

fn graft<P: Protocol>(new: NewDescriptor<'_>, mut child: SockRef<P>) {
    let _: &mut SockRef<P> = &mut child;
    #[cfg(misuse)]
    let _ = new.graft(&mut child); //~ E0308
    #[cfg(not(misuse))]
    let _ = new.graft(&mut child.lock().locked());
}
