// SPDX-License-Identifier: MIT OR Apache-2.0

//! Serialization of addresses with serde, as the text that `Display` prints and `FromStr` parses.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Address, MacAddr, NamedAddress};

macro_rules! as_text {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        $(#[$doc])*
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?
                    .parse()
                    .map_err(D::Error::custom)
            }
        }
    };
}

as_text!(
    /// Serializes as text: `02:00:00:00:00:01`.
    MacAddr
);
as_text!(
    /// Serializes as text. Any host can deserialize the text.
    NamedAddress
);
as_text!(
    /// Serializes as text with the interface's name. Deserializing looks up the interface.
    Address
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_texts() {
        let text = "\"02:00:00:00:00:01%eth0:2805\"";
        let named: NamedAddress = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&named).unwrap(), text);
        let address: Address = serde_json::from_str("\"*%lo:7\"").unwrap();
        assert_eq!(serde_json::to_string(&address).unwrap(), "\"*%lo:7\"");
        let mac = serde_json::to_string(&MacAddr::BROADCAST).unwrap();
        assert_eq!(mac, "\"ff:ff:ff:ff:ff:ff\"");
        assert_eq!(
            serde_json::from_str::<MacAddr>(&mac).unwrap(),
            MacAddr::BROADCAST
        );
        assert!(serde_json::from_str::<MacAddr>("\"ff\"").is_err());
        assert!(serde_json::from_str::<NamedAddress>("7").is_err());
    }
}
