// SPDX-License-Identifier: MIT OR Apache-2.0

//! The protocol between two processes on a stream: a greeting in each direction, then frames.
//!
//! Numbers are little-endian. The caller sends a [`Hello`] and waits for the [`Answer`]; frames
//! follow in both directions. A frame is a [`Header`] and as many bytes as the header states.

use std::fmt;

/// Number of bytes of a [`Header`].
pub const HEADER: usize = 16;

/// Number of bytes of a [`Hello`].
pub const HELLO: usize = 24;

/// Number of bytes of an [`Answer`].
pub const ANSWER: usize = 4;

/// Number of bytes of a [`Target`].
pub const TARGET: usize = 24;

/// Number of bytes of a call's number. Requests and replies begin with this number.
pub const CALL: usize = 8;

/// Number of bytes of an [`Atomic`].
pub const ATOMIC: usize = 40;

/// Number of bytes of a [`Kind::Detach`], which are 0.
pub const DETACH: usize = 1;

/// The version of this protocol.
pub const VERSION: u8 = 4;

/// The first bytes of a hello and of an answer.
const MAGIC: [u8; 3] = *b"MPI";

/// The bit of a header's flags that asks for an acknowledgement.
const PROTECTED: u16 = 1;

/// The name of a process: Open MPI's job and rank. If two processes connect to each other at once,
/// the order of their names decides which connection they keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// The job.
    pub job: u32,
    /// The rank in the job.
    pub rank: u32,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.rank)
    }
}

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Bytes for the receiver that Open MPI registered under the header's tag.
    Send = 1,
    /// The number of protected frames (frames that the sender keeps until they are acknowledged)
    /// that were received on this stream.
    Acknowledgement = 2,
    /// The sender closes the connection cleanly. No frame follows.
    End = 3,
    /// A [`Target`], and as many bytes as the target states. The receiver writes these bytes to the
    /// target. The header's length counts the target only.
    Put = 4,
    /// A call's number, a [`Target`], and as many bytes as the target states. The receiver writes
    /// these bytes to the target, and replies. The header's length counts the number and the target
    /// only.
    Write = 5,
    /// A call's number and a [`Target`]. The receiver replies with the bytes of the target.
    Read = 6,
    /// A call's number and an [`Atomic`]. The receiver replies with the old value, in eight bytes.
    Atomic = 7,
    /// A call's number, and the bytes that the call asks for. The number is the caller's.
    Reply = 8,
    /// The receiver closes the channels that the sender has opened to it, so that nothing which the
    /// sender has put there arrives after this frame.
    Detach = 9,
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number of bytes that follow the header.
    pub length: u32,
    /// The tag under which Open MPI registered the receiver of the frame's message.
    pub tag: u8,
    /// The frame's kind.
    pub kind: Kind,
    /// Whether the sender keeps the frame until it is acknowledged, and may retransmit it on
    /// another stream.
    pub protected: bool,
    /// The frame's number among all protected frames to this peer. In an acknowledgement, the
    /// number of protected frames that were received on this stream.
    pub number: u64,
}

/// The error for bytes that are not a valid greeting or frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it speaks another protocol or version")]
pub struct Foreign;

impl Header {
    /// Returns the header of a frame without bytes.
    pub const fn control(kind: Kind, number: u64) -> Self {
        Self {
            length: 0,
            tag: 0,
            kind,
            protected: false,
            number,
        }
    }

    /// Encodes the header.
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4] = self.tag;
        bytes[5] = self.kind as u8;
        let flags = if self.protected { PROTECTED } else { 0 };
        bytes[6..8].copy_from_slice(&flags.to_le_bytes());
        bytes[8..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    /// Decodes a header.
    ///
    /// # Errors
    ///
    /// [`Foreign`] for an unknown kind or unknown flags.
    pub fn decode(bytes: &[u8; HEADER]) -> Result<Self, Foreign> {
        let [l0, l1, l2, l3, tag, kind, f0, f1, number @ ..] = *bytes;
        let kind = match kind {
            1 => Kind::Send,
            2 => Kind::Acknowledgement,
            3 => Kind::End,
            4 => Kind::Put,
            5 => Kind::Write,
            6 => Kind::Read,
            7 => Kind::Atomic,
            8 => Kind::Reply,
            9 => Kind::Detach,
            _ => return Err(Foreign),
        };
        let flags = u16::from_le_bytes([f0, f1]);
        if flags & !PROTECTED != 0 {
            return Err(Foreign);
        }
        Ok(Self {
            length: u32::from_le_bytes([l0, l1, l2, l3]),
            tag,
            kind,
            protected: flags & PROTECTED != 0,
            number: u64::from_le_bytes(number),
        })
    }
}

/// The part of the receiver's memory into which a put writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The key under which the receiver opened the memory.
    pub key: u64,
    /// Offset of the write in that memory, in bytes.
    pub offset: u64,
    /// Number of bytes to write.
    pub length: u64,
}

impl Target {
    /// Encodes the target.
    pub fn encode(&self) -> [u8; TARGET] {
        let mut bytes = [0; TARGET];
        bytes[..8].copy_from_slice(&self.key.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    /// Decodes a target.
    pub fn decode(bytes: &[u8; TARGET]) -> Self {
        Self {
            key: word(bytes, 0),
            offset: word(bytes, 8),
            length: word(bytes, 16),
        }
    }
}

/// Returns the number in the eight bytes of `bytes` from `place` on.
fn word(bytes: &[u8], place: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[place..place + 8]);
    u64::from_le_bytes(word)
}

/// The calculation of an atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Calculation {
    /// Adds the operand.
    Add = 1,
    /// Keeps the bits that the operand has.
    And = 2,
    /// Sets the bits that the operand has.
    Or = 3,
    /// Inverts the bits that the operand has.
    Xor = 4,
    /// Stores the operand.
    Swap = 5,
    /// Stores the operand if the old value is the expected one.
    CompareSwap = 6,
}

/// The width of the number on which an atomic operation works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Width {
    /// Four bytes.
    Four = 4,
    /// Eight bytes.
    Eight = 8,
}

/// An atomic operation on a number in the receiver's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atomic {
    /// The calculation.
    pub calculation: Calculation,
    /// The width of the number.
    pub width: Width,
    /// The key under which the receiver opened the memory.
    pub key: u64,
    /// Offset of the number in that memory, in bytes.
    pub offset: u64,
    /// The operand. Only the lower half counts for a number of four bytes.
    pub operand: u64,
    /// The expected old value of [`Calculation::CompareSwap`].
    pub expected: u64,
}

impl Atomic {
    /// Encodes the operation.
    pub fn encode(&self) -> [u8; ATOMIC] {
        let mut bytes = [0; ATOMIC];
        bytes[0] = self.calculation as u8;
        bytes[1] = self.width as u8;
        let words = [self.key, self.offset, self.operand, self.expected];
        for (place, word) in bytes[8..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Decodes an operation.
    ///
    /// # Errors
    ///
    /// [`Foreign`] for an unknown calculation or width.
    pub fn decode(bytes: &[u8; ATOMIC]) -> Result<Self, Foreign> {
        let calculation = match bytes[0] {
            1 => Calculation::Add,
            2 => Calculation::And,
            3 => Calculation::Or,
            4 => Calculation::Xor,
            5 => Calculation::Swap,
            6 => Calculation::CompareSwap,
            _ => return Err(Foreign),
        };
        let width = match bytes[1] {
            4 => Width::Four,
            8 => Width::Eight,
            _ => return Err(Foreign),
        };
        if bytes[2..8] != [0; 6] {
            return Err(Foreign);
        }
        Ok(Self {
            calculation,
            width,
            key: word(bytes, 8),
            offset: word(bytes, 16),
            operand: word(bytes, 24),
            expected: word(bytes, 32),
        })
    }
}

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Purpose {
    /// It is a stream of frames.
    Frames = 0,
    /// It is a channel of puts, which the receiver's kernel writes.
    Puts = 1,
}

/// The first message of the process that opens a connection, which is called the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The caller's name.
    pub caller: Name,
    /// The number of the caller's interface, in the order of its cards.
    pub interface: u16,
    /// The purpose of the connection.
    pub purpose: Purpose,
    /// The token of the called process, which only the processes of the job know.
    pub token: u64,
}

impl Hello {
    /// Encodes the hello.
    pub fn encode(&self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        bytes[..3].copy_from_slice(&MAGIC);
        bytes[3] = VERSION;
        bytes[4..8].copy_from_slice(&self.caller.job.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.caller.rank.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.interface.to_le_bytes());
        bytes[14] = self.purpose as u8;
        bytes[16..].copy_from_slice(&self.token.to_le_bytes());
        bytes
    }

    /// Decodes a hello.
    ///
    /// # Errors
    ///
    /// [`Foreign`] if the bytes are not a hello of this version.
    pub fn decode(bytes: &[u8; HELLO]) -> Result<Self, Foreign> {
        let [m0, m1, m2, version, j0, j1, j2, j3, r0, r1, r2, r3, i0, i1, purpose, 0, token @ ..] =
            *bytes
        else {
            return Err(Foreign);
        };
        let purpose = match purpose {
            0 => Purpose::Frames,
            1 => Purpose::Puts,
            _ => return Err(Foreign),
        };
        if [m0, m1, m2] != MAGIC || version != VERSION {
            return Err(Foreign);
        }
        Ok(Self {
            caller: Name {
                job: u32::from_le_bytes([j0, j1, j2, j3]),
                rank: u32::from_le_bytes([r0, r1, r2, r3]),
            },
            interface: u16::from_le_bytes([i0, i1]),
            purpose,
            token: u64::from_le_bytes(token),
        })
    }
}

/// The called process's answer to a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Answer {
    /// Frames may follow.
    Accepted = 1,
    /// The called process is opening a connection itself, and both processes use that connection
    /// instead.
    Refused = 2,
    /// The called process has given this pair of interfaces up.
    Broken = 3,
}

impl Answer {
    /// Encodes the answer.
    pub const fn encode(self) -> [u8; ANSWER] {
        [MAGIC[0], MAGIC[1], MAGIC[2], self as u8]
    }

    /// Decodes an answer.
    ///
    /// # Errors
    ///
    /// [`Foreign`] if the bytes are not an answer.
    pub fn decode(bytes: &[u8; ANSWER]) -> Result<Self, Foreign> {
        match bytes {
            [m0, m1, m2, 1] if [*m0, *m1, *m2] == MAGIC => Ok(Self::Accepted),
            [m0, m1, m2, 2] if [*m0, *m1, *m2] == MAGIC => Ok(Self::Refused),
            [m0, m1, m2, 3] if [*m0, *m1, *m2] == MAGIC => Ok(Self::Broken),
            _ => Err(Foreign),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_they_were_written() {
        let kinds = [
            Kind::Send,
            Kind::Acknowledgement,
            Kind::End,
            Kind::Put,
            Kind::Write,
            Kind::Read,
            Kind::Atomic,
            Kind::Reply,
            Kind::Detach,
        ];
        for kind in kinds {
            for protected in [false, true] {
                let header = Header {
                    length: 0x0102_0304,
                    tag: 65,
                    kind,
                    protected,
                    number: u64::MAX - 7,
                };
                assert_eq!(Header::decode(&header.encode()), Ok(header));
            }
        }
        assert_eq!(Header::decode(&[0; HEADER]), Err(Foreign));
        assert_eq!(Header::decode(&[0xff; HEADER]), Err(Foreign));
    }

    #[test]
    fn targets_are_read_as_they_were_written() {
        let target = Target {
            key: u64::MAX - 1,
            offset: 0x0102_0304_0506_0708,
            length: 9,
        };
        assert_eq!(Target::decode(&target.encode()), target);
    }

    #[test]
    fn atomic_operations_are_read_as_they_were_written() {
        let calculations = [
            Calculation::Add,
            Calculation::And,
            Calculation::Or,
            Calculation::Xor,
            Calculation::Swap,
            Calculation::CompareSwap,
        ];
        for calculation in calculations {
            for width in [Width::Four, Width::Eight] {
                let atomic = Atomic {
                    calculation,
                    width,
                    key: u64::MAX - 1,
                    offset: 0x0102_0304_0506_0708,
                    operand: 3,
                    expected: u64::MAX,
                };
                assert_eq!(Atomic::decode(&atomic.encode()), Ok(atomic));
                for (place, wrong) in [(0, 0), (0, 7), (1, 2), (1, 0), (2, 1), (7, 1)] {
                    let mut bytes = atomic.encode();
                    bytes[place] = wrong;
                    assert_eq!(Atomic::decode(&bytes), Err(Foreign));
                }
            }
        }
    }

    #[test]
    fn greetings_are_read_as_they_were_written() {
        let caller = Name { job: 77, rank: 3 };
        let hello = Hello {
            caller,
            interface: 1,
            purpose: Purpose::Puts,
            token: u64::MAX - 5,
        };
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        let mut other = hello.encode();
        other[14] = 2;
        assert_eq!(Hello::decode(&other), Err(Foreign));
        let mut other = hello.encode();
        other[3] += 1;
        assert_eq!(Hello::decode(&other), Err(Foreign));
        for answer in [Answer::Accepted, Answer::Refused, Answer::Broken] {
            assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        }
        assert_eq!(Answer::decode(b"HTTP"), Err(Foreign));
    }
}
