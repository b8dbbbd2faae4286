// SPDX-License-Identifier: MIT OR Apache-2.0

//! ESP, PF_ENET's streams.

use anyhow::{Context as _, Result};
use sockaddr_en::{Address, EspListener, EspStream, MacAddr};

use super::stream::Stream;
use super::{explain_family, peer_address, wait_for_peer};
use super::{Context, Kind, Prepared, Role, Transport};
use crate::control::Endpoint;
use crate::host::Interface;

pub(super) const KIND: Kind = Kind {
    name: "esp",
    about: "PF_ENET streams, Ethernet Streaming Protocol",
    prepare,
};

struct Esp {
    interface: Interface,
    context: Context,
    /// The follower's.
    listener: Option<EspListener>,
}

fn prepare(context: &Context) -> Result<Box<dyn Prepared>> {
    let interface = context.ethernet()?;
    let listener = match context.role {
        Role::Leader => None,
        Role::Follower => {
            let local = Address::new(MacAddr::UNSPECIFIED, interface.index, 0);
            let listener = EspListener::bind_with(context.family, local)
                .map_err(explain_family)
                .with_context(|| format!("listening by ESP on {}", interface.name))?;
            Some(listener)
        }
    };
    Ok(Box::new(Esp {
        interface,
        context: context.clone(),
        listener,
    }))
}

impl Prepared for Esp {
    fn endpoint(&self) -> Result<Endpoint> {
        let port = match &self.listener {
            None => 0,
            Some(listener) => listener.local_addr()?.port,
        };
        Ok(Endpoint {
            port,
            mac: Some(self.interface.mac.to_string()),
        })
    }

    fn open(self: Box<Self>, peer: &Endpoint) -> Result<Box<dyn Transport>> {
        let Context {
            family, give_up, ..
        } = self.context;
        let stream = match &self.listener {
            None => {
                let address = peer_address(peer, &self.interface)?;
                EspStream::connect_timeout_with(family, &address, give_up)
                    .map_err(explain_family)
                    .with_context(|| format!("connecting to {address} by ESP"))?
            }
            Some(listener) => {
                wait_for_peer(listener, give_up)?;
                listener.accept()?.0
            }
        };
        stream.set_read_timeout(Some(give_up))?;
        stream.set_write_timeout(Some(give_up))?;
        Ok(Box::new(Stream(stream)))
    }
}
