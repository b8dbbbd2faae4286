// SPDX-License-Identifier: GPL-2.0

//! A set of small numbers, which are distances from a sequence number.

/// Number of words of a set.
const WORDS: usize = 6;

/// Number of bytes of a set.
pub(super) const BYTES: usize = WORDS * 8;

/// Exclusive upper bound of the numbers in a set.
pub(super) const MOST: u16 = 384;

/// A set of numbers below [`MOST`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Bits([u64; WORDS]);

impl Bits {
    /// Returns whether the set is empty.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    /// Returns whether the set contains `n`.
    #[inline]
    pub(super) fn has(&self, n: u16) -> bool {
        (self.word(n / 64) >> (n % 64)) & 1 != 0
    }

    /// Returns the set of all numbers below `n`.
    pub(super) fn below(n: u16) -> Self {
        let mut left = n;
        Self([(); WORDS].map(|()| {
            let here = left.min(64);
            left = left.saturating_sub(here);
            u64::MAX
                .checked_shr(64_u32.saturating_sub(here.into()))
                .unwrap_or(0)
        }))
    }

    /// Returns the set of `count` consecutive numbers from `first` on. Numbers from [`MOST`] on are
    /// left out.
    pub(super) fn run(first: u16, count: u16) -> Self {
        Self::below(first.saturating_add(count)).without(Self::below(first))
    }

    /// Returns the union of both sets.
    pub(super) fn union(self, other: Self) -> Self {
        self.by_words(other, |a, b| a | b)
    }

    /// Returns the intersection of both sets.
    pub(super) fn intersection(self, other: Self) -> Self {
        self.by_words(other, |a, b| a & b)
    }

    /// Returns this set without the numbers of `other`.
    pub(super) fn without(self, other: Self) -> Self {
        self.by_words(other, |a, b| a & !b)
    }

    fn by_words(self, other: Self, op: impl Fn(u64, u64) -> u64) -> Self {
        let mut words = self.0;
        for (to, from) in words.iter_mut().zip(other.0) {
            *to = op(*to, from);
        }
        Self(words)
    }

    /// Returns the numbers from `n` on, each reduced by `n`.
    pub(super) fn from(self, n: u16) -> Self {
        let (words, bits) = (n / 64, u32::from(n % 64));
        let mut at = words;
        Self([(); WORDS].map(|()| {
            let low = self.word(at) >> bits;
            at = at.saturating_add(1);
            let high = self.word(at).checked_shl(64_u32.saturating_sub(bits));
            low | high.unwrap_or(0)
        }))
    }

    /// Returns how many numbers the set contains.
    pub(super) fn count(&self) -> u16 {
        let ones = self.0.iter().map(|word| word.count_ones()).sum::<u32>();
        u16::try_from(ones).unwrap_or(MOST)
    }

    /// Returns the lowest number.
    pub(super) fn first(&self) -> Option<u16> {
        (0..).zip(self.0).find_map(|(place, word)| {
            (word != 0).then(|| Self::place(place, word.trailing_zeros()))
        })
    }

    /// Returns the highest number.
    pub(super) fn last(&self) -> Option<u16> {
        let mut last = None;
        for (place, word) in (0..).zip(self.0) {
            if word != 0 {
                last = Some(Self::place(
                    place,
                    63_u32.saturating_sub(word.leading_zeros()),
                ));
            }
        }
        last
    }

    /// Returns the highest number that remains after the `others` highest ones are removed; 0 if
    /// none remains.
    pub(super) fn highest_but(&self, others: u16) -> u16 {
        let mut set = *self;
        for _ in 0..others {
            let Some(last) = set.last() else { return 0 };
            set = set.intersection(Self::below(last));
        }
        set.last().unwrap_or(0)
    }

    /// Returns how many consecutive numbers the set contains from `first` on.
    pub(super) fn run_from(&self, first: u16) -> u16 {
        Self::below(MOST)
            .without(self.from(first))
            .first()
            .unwrap_or(MOST)
    }

    /// Returns the set as packets carry it: bit n of byte m (the value 1 << n) stands for the
    /// number 8 m + n.
    pub(super) fn emit(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let all = self.0.iter().flat_map(|word| word.to_le_bytes());
        for (to, byte) in bytes.iter_mut().zip(all) {
            *to = byte;
        }
        bytes
    }

    /// Reads a set from at most [`BYTES`] bytes; missing bytes count as 0.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let mut bytes = bytes.iter().copied();
        Self([(); WORDS].map(|()| u64::from_le_bytes([(); 8].map(|()| bytes.next().unwrap_or(0)))))
    }

    #[inline]
    fn word(&self, place: u16) -> u64 {
        self.0.get(usize::from(place)).copied().unwrap_or(0)
    }

    fn place(word: u16, bit: u32) -> u16 {
        word.saturating_mul(64)
            .saturating_add(u16::try_from(bit).unwrap_or(0))
    }
}
