// SPDX-License-Identifier: MIT OR Apache-2.0

//! The form of a picture, by the name of its file.

use std::path::{Path, PathBuf};

/// The error message of a netgauge that was built without pictures.
pub const WITHOUT: &str =
    "this netgauge draws no pictures: it was built without the cargo feature `pictures`";

/// The form of a picture, by the extension of the file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// SVG.
    Svg,
    /// PNG.
    Png,
}

impl Form {
    /// Returns the form of the picture at `path`.
    ///
    /// # Errors
    ///
    /// Fails if the name ends in neither `.svg` nor `.png`.
    pub fn of(path: &Path) -> Result<Self, String> {
        let extension = path.extension().and_then(|extension| extension.to_str());
        match extension.map(str::to_ascii_lowercase).as_deref() {
            Some("svg") => Ok(Self::Svg),
            Some("png") => Ok(Self::Png),
            _ => Err("pictures are SVG or PNG: let the name end in .svg or .png".to_owned()),
        }
    }
}

/// Parses the name of a picture's file on the command line.
///
/// # Errors
///
/// Fails like [`Form::of`]. If this program was built without pictures, fails for every name.
pub fn parse_path(text: &str) -> Result<PathBuf, String> {
    if !cfg!(feature = "pictures") {
        return Err(WITHOUT.to_owned());
    }
    let path = PathBuf::from(text);
    Form::of(&path).map(|_| path)
}
