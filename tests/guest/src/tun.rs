// SPDX-License-Identifier: GPL-2.0-only

//! Makes devices of the driver `tun`, which have a file in place of a wire. A write to the file
//! makes the device receive a frame. A read returns a frame that the device has transmitted.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::mem::zeroed;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

use crate::netns::finish;
use crate::prelude::*;

/// The frames or packets that a [`Tun`] carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// Whole Ethernet frames.
    Frames,
    /// Whole Ethernet frames, like the frames of a virtual machine. Ten bytes precede each frame,
    /// and describe its segmentation (`struct virtio_net_hdr`).
    SegmentedFrames,
    /// Whole Ethernet frames, which are received by polling (NAPI), so that the core can merge them
    /// (GRO).
    PolledFrames,
    /// Network-layer packets. Four bytes precede each packet, and the last two of them are the
    /// ethertype.
    Packets,
}

/// A device of the driver `tun`; dropping this value removes it.
#[derive(Debug)]
pub struct Tun(File);

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Tun {
    /// Makes the device `name`.
    ///
    /// # Errors
    /// If the driver is missing or refuses it.
    pub fn create(namespace: &Netns, name: &str, carries: Carries) -> Result<Self> {
        // An error of modprobe only goes into messages: the driver may be built into the kernel.
        let loaded = finish(Command::new("modprobe").arg("tun"), "");
        let path = "/dev/net/tun";
        // The device belongs to the namespace in which the file was opened. If writes to the file
        // may block, the driver copies the bytes to memory that GRO cannot merge. So the file is
        // non-blocking for frames that GRO shall merge.
        let flags = match carries {
            Carries::PolledFrames => libc::O_NONBLOCK,
            _ => 0,
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(flags);
        let file = namespace
            .within(|| options.open(path))?
            .with_context(|| format!("{path}; modprobe tun: {loaded:?}"))?;
        // SAFETY: All-zero bytes are a valid ifreq.
        let mut request: libc::ifreq = unsafe { zeroed() };
        let room = request.ifr_name.len() - 1;
        ensure!(name.len() <= room, "{name} is too long for a device");
        for (to, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = byte as libc::c_char;
        }
        let flags = match carries {
            Carries::Frames => libc::IFF_TAP | libc::IFF_NO_PI,
            Carries::SegmentedFrames => libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR,
            Carries::PolledFrames => libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_NAPI,
            Carries::Packets => libc::IFF_TUN,
        };
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes one ifreq, which lives across the call.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &mut request) })
            .context("TUNSETIFF")?;
        Ok(Self(file))
    }

    /// Sets the device's type, `ARPHRD_*`. The device must be down.
    ///
    /// # Errors
    /// The errno of the call.
    pub fn set_type(&self, kind: u16) -> Result<()> {
        let kind = libc::c_ulong::from(kind);
        // SAFETY: TUNSETLINK takes an integer.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TUNSETLINK, kind) })
            .map(drop)
            .context("TUNSETLINK")
    }

    /// Makes the device receive `bytes`.
    ///
    /// # Errors
    /// The errno of `write(2)`.
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        let written = (&self.0).write(bytes).context("write to the device")?;
        ensure!(written == bytes.len(), "{written} of {} bytes", bytes.len());
        Ok(())
    }

    /// Returns the next frame or packet that the device transmits, or `None` if there is none
    /// within `time`.
    ///
    /// # Errors
    /// The errno of the failing call.
    pub fn read(&self, time: Duration) -> Result<Option<Vec<u8>>> {
        let mut entry = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        let limit = PollTimeout::try_from(time).context("a time for poll(2)")?;
        if poll(&mut entry, limit)? == 0 {
            return Ok(None);
        }
        let mut bytes = vec![0; 1 << 16];
        let length = (&self.0).read(&mut bytes).context("read of the device")?;
        bytes.truncate(length);
        Ok(Some(bytes))
    }
}
