// SPDX-License-Identifier: MIT OR Apache-2.0

//! Chooses pairs of interfaces of two processes. There are as many pairs as possible, and both
//! processes choose the same pairs.

/// Chooses pairs of interfaces. `reach[i][j]` says whether interface `i` of the process with the
/// lower name reaches interface `j` of the other process. Each interface is in at most one pair,
/// and the number of pairs is the largest possible. Lower interface numbers are matched first, so
/// both processes choose the same pairs.
pub fn choose(reach: &[Vec<bool>]) -> Vec<(usize, usize)> {
    let columns = reach.iter().map(Vec::len).max().unwrap_or(0);
    let mut partner: Vec<Option<usize>> = vec![None; columns];
    for row in 0..reach.len() {
        let mut tried = vec![false; columns];
        place(reach, row, &mut partner, &mut tried);
    }
    let mut pairs: Vec<_> = partner
        .iter()
        .enumerate()
        .filter_map(|(column, row)| row.map(|row| (row, column)))
        .collect();
    pairs.sort_unstable();
    pairs
}

/// Finds a partner for interface `row`, and returns whether there is one. Interfaces that already
/// have a partner may get a different one.
fn place(
    reach: &[Vec<bool>],
    row: usize,
    partner: &mut [Option<usize>],
    tried: &mut [bool],
) -> bool {
    let columns = 0..reach[row].len();
    if let Some(free) = columns
        .clone()
        .find(|column| reach[row][*column] && partner[*column].is_none())
    {
        partner[free] = Some(row);
        return true;
    }
    for column in columns {
        if !reach[row][column] || tried[column] {
            continue;
        }
        tried[column] = true;
        if partner[column].is_some_and(|other| place(reach, other, partner, tried)) {
            partner[column] = Some(row);
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_networks_pair_in_order() {
        assert_eq!(choose(&[vec![true; 2], vec![true; 2]]), [(0, 0), (1, 1)]);
        assert_eq!(choose(&[vec![true; 3]]), [(0, 0)]);
        assert_eq!(choose(&[]), []);
    }

    #[test]
    fn crossed_cables_pair_crosswise() {
        assert_eq!(
            choose(&[vec![false, true], vec![true, false]]),
            [(0, 1), (1, 0)]
        );
    }

    #[test]
    fn an_interface_gives_way_to_one_without_a_choice() {
        assert_eq!(
            choose(&[vec![true, true], vec![true, false]]),
            [(0, 1), (1, 0)]
        );
    }

    #[test]
    fn what_nothing_reaches_has_no_pair() {
        assert_eq!(choose(&[vec![false, false], vec![false, true]]), [(1, 1)]);
    }
}
