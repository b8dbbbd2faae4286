// SPDX-License-Identifier: MIT OR Apache-2.0

//! Formats tables whose columns are as wide as their contents.

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// The column has words, which are aligned to the left.
    Left,
    /// The column has numbers, which are aligned to the right.
    Right,
}

/// Formats `rows`, each of which has a cell for each column. The last column is not padded.
pub fn print(columns: &[Align], rows: &[Vec<String>]) -> String {
    let mut widths = vec![0; columns.len()];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for ((align, width), cell) in columns.iter().zip(&widths).zip(row) {
            match align {
                Align::Left => line += &format!("{cell:<width$}  "),
                Align::Right => line += &format!("{cell:>width$}  "),
            }
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fit_their_widest_cell() {
        let rows = [["a", "1"], ["long", "100"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(
            print(&[Align::Left, Align::Right], &rows),
            "a       1\nlong  100\n"
        );
        assert_eq!(print(&[Align::Left], &[]), "");
    }
}
