// SPDX-License-Identifier: GPL-2.0

//! Sequence numbers: packets counted modulo 2^16.

/// The number of a packet. Comparisons follow serial number arithmetic (RFC 1982), so they are
/// right for numbers less than 2^15 apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seq(pub u16);

impl Seq {
    /// Returns the number `n` packets later.
    // This is not `core::ops::Add`, because callers would need that trait in scope.
    #[allow(clippy::should_implement_trait)]
    #[inline]
    #[must_use]
    pub const fn add(self, n: u16) -> Self {
        Self(self.0.wrapping_add(n))
    }

    /// Returns the number `n` packets earlier.
    #[allow(clippy::should_implement_trait)]
    #[inline]
    #[must_use]
    pub const fn sub(self, n: u16) -> Self {
        Self(self.0.wrapping_sub(n))
    }

    /// Returns the number of steps forward from `self` to `later`: `a.distance(a.add(n)) == n`.
    #[inline]
    pub const fn distance(self, later: Self) -> u16 {
        later.0.wrapping_sub(self.0)
    }

    /// Returns how many numbers, `self` included, remain before the numbers wrap, but at most
    /// [`u16::MAX`]. So the result for number 0 is one too small.
    #[inline]
    pub const fn before_wrap(self) -> u16 {
        (u16::MAX - self.0).saturating_add(1)
    }

    /// Returns whether `self` comes earlier than `other`.
    #[inline]
    pub const fn before(self, other: Self) -> bool {
        let ahead = self.distance(other);
        ahead != 0 && ahead < 1 << 15
    }

    /// Returns whether `self` comes later than `other`.
    #[inline]
    pub const fn after(self, other: Self) -> bool {
        other.before(self)
    }
}
