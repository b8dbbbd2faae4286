// SPDX-License-Identifier: MIT OR Apache-2.0

//! The channels of puts: windows as regions of the kernel, and puts to the regions of peers.
//!
//! Each process opens a channel to a peer with its first put there. If the channel breaks, the
//! process asks the peer's process to close it, and from then on writes by the peer's process.

use std::io;

use sockaddr_en::Domain;

use super::{Engine, Event, LinkId, Sent};
use crate::channel::{self, Incoming, Outgoing, Put};
use crate::link::Payload;
use crate::wire::{Hello, Kind, Purpose, Target, DETACH};

/// Maximum number of accepted channels whose hello has not arrived. The oldest are closed first.
const SILENT: usize = 64;

/// The channel to a peer.
#[derive(Debug, Default)]
pub(super) enum Outlet<P> {
    /// Nothing was put to the peer.
    #[default]
    Unused,
    /// It is connected or connecting.
    Open(Outgoing<P>),
    /// The peer has no channels, or the channel broke. It is not opened again.
    Closed,
}

impl<P: Payload> Engine<P> {
    /// Sets the domain of this process, for whose channels the engine's listeners listen.
    pub fn set_domain(&mut self, domain: Domain) {
        self.domain = Some(domain);
    }

    /// Pins an open window, so that the kernel writes what peers put there. Returns the key of the
    /// region; `None` if there are no channels.
    ///
    /// # Safety
    ///
    /// `start` and `length` must be those of the window.
    ///
    /// # Errors
    ///
    /// The errors of [`Domain::pin`].
    pub unsafe fn pin_window(
        &mut self,
        key: u64,
        start: *mut u8,
        length: usize,
    ) -> Option<io::Result<u64>> {
        let domain = self.domain.as_ref()?;
        // SAFETY: the memory is the window's, which stays allocated and unused until the window is
        // closed. `close_window` ends the region before.
        let region = unsafe { domain.pin(start, length) };
        if let Ok(region) = region {
            self.regions.insert(key, region);
        }
        Some(region)
    }

    /// Ends the peers' access to the memory with the key `key`.
    pub fn close_window(&mut self, key: u64) {
        if let (Some(region), Some(domain)) = (self.regions.remove(&key), &self.domain) {
            domain.end(region);
        }
        self.windows.close(key);
    }

    /// Writes the bytes of `payload` to a region of the peer, which is also known to the peer's
    /// process as `target`. The message completes once the bytes are there.
    pub fn put_to_region(
        &mut self,
        link: LinkId,
        region: u64,
        target: &Target,
        payload: P,
    ) -> Sent<P> {
        let Some(usable) = self.usable(link) else {
            return Sent::Refused(payload);
        };
        let peer = self.links[link].peer;
        let Some(channel) = self.channel(usable) else {
            return self.write(link, target, payload);
        };
        channel.push(Put::new(region, *target, payload));
        if !self.putting.contains(&peer) {
            self.putting.push(peer);
        }
        self.advance_channel(peer);
        Sent::Queued
    }

    /// Returns the channel to the peer of `link`. Opens it if nothing was put to the peer yet.
    fn channel(&mut self, link: LinkId) -> Option<&mut Outgoing<P>> {
        let peer = self.links[link].peer;
        if matches!(self.peers[peer].outlet, Outlet::Unused) {
            self.peers[peer].outlet = self.open_channel(link).map_or(Outlet::Closed, Outlet::Open);
        }
        match &mut self.peers[peer].outlet {
            Outlet::Open(channel) => Some(channel),
            _ => None,
        }
    }

    fn open_channel(&self, link: LinkId) -> Option<Outgoing<P>> {
        let link = &self.links[link];
        let address = self.listeners[link.module].channel_address(&link.card?)?;
        let hello = Hello {
            caller: self.name,
            interface: u16::try_from(link.module).expect("there are few interfaces"),
            purpose: Purpose::Puts,
            token: self.peers[link.peer].token,
        };
        let domain = self.domain.as_ref()?;
        let timeout = self.settings.timeout;
        channel::connect(domain, address, &hello, timeout).ok()
    }

    /// Advances the channels with puts that are not complete.
    pub(super) fn advance_channels(&mut self) {
        for peer in self.putting.clone() {
            self.advance_channel(peer);
        }
    }

    fn advance_channel(&mut self, peer: usize) {
        let Outlet::Open(channel) = &mut self.peers[peer].outlet else {
            return self.putting.retain(|other| *other != peer);
        };
        let mut done = Vec::new();
        let result = channel.advance(&mut done);
        let is_busy = channel.has_puts();
        self.report(done, true);
        if let Err(error) = result {
            self.break_channel(peer, &error);
        } else if !is_busy {
            self.putting.retain(|other| *other != peer);
        }
    }

    /// Writes the puts of a broken channel by the peer's process. This process cannot know which of
    /// them the peer's kernel has already written, and may yet write. So the peer's process first
    /// closes its end, and nothing old can overwrite what comes later.
    fn break_channel(&mut self, peer: usize, why: &io::Error) {
        let puts = self.close_channel(peer);
        let name = self.peers[peer].name;
        let links = self.peers[peer].links.iter().copied();
        let Some(link) = links.into_iter().find_map(|link| self.usable(link)) else {
            return self.report(puts.into_iter().map(|put| put.payload), false);
        };
        self.events.push(Event::Degraded(format!(
            "the channel to {name} broke ({why}); its process writes what is put there"
        )));
        self.request(link, Kind::Detach, vec![0; DETACH], None);
        for put in puts {
            if let Sent::Refused(payload) = self.write(link, &put.target, put.payload) {
                self.report([payload], false);
            }
        }
    }

    /// Gives up the channel to a peer that is lost.
    pub(super) fn abandon_channel(&mut self, peer: usize) {
        let puts = self.close_channel(peer);
        self.report(puts.into_iter().map(|put| put.payload), false);
    }

    /// Closes the channel to a peer. Returns the puts that are not complete.
    fn close_channel(&mut self, peer: usize) -> Vec<Put<P>> {
        self.putting.retain(|other| *other != peer);
        match std::mem::replace(&mut self.peers[peer].outlet, Outlet::Closed) {
            Outlet::Open(mut channel) => channel.abandon(),
            _ => Vec::new(),
        }
    }

    /// Takes channels from the accept queues, and reads their hellos. The kernel writes what comes
    /// over a channel before that, too.
    pub(super) fn accept_channels(&mut self) {
        if self.regions.is_empty() && self.incoming.is_empty() {
            return;
        }
        for listener in &self.listeners {
            while let Some(channel) = listener.accept_channel() {
                self.incoming.push(channel);
            }
        }
        let token = self.token;
        self.incoming.retain_mut(|channel| channel.greet(token));
        // Strangers that say nothing must not take all descriptors.
        let silent = self
            .incoming
            .iter()
            .filter(|channel| channel.hello.is_none());
        let mut excess = silent.count().saturating_sub(SILENT);
        self.incoming.retain(|channel| {
            let goes = excess > 0 && channel.hello.is_none();
            excess -= usize::from(goes);
            !goes
        });
    }

    /// Closes the channels that a peer has opened.
    pub(super) fn detach_channels(&mut self, peer: usize) {
        self.accept_channels();
        let name = self.peers[peer].name;
        let is_other = |channel: &Incoming| channel.hello.is_none_or(|hello| hello.caller != name);
        self.incoming.retain(is_other);
    }
}
