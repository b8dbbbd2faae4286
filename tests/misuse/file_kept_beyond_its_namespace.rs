// SPDX-License-Identifier: GPL-2.0

//! A function that adds files to a namespace's directory keeps the directory, which is freed with
//! the namespace.

use crate::net::errno::Result;
use crate::net::procfs::{Directory, Show};

fn keep<T: 'static>(_: T) {}

fn make<S: Show>(directory: &mut Directory) -> Result {
    let made = directory.add::<S>();
    #[cfg(misuse)]
    keep(directory); //~ E0521
    made
}
