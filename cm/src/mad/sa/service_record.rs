//! ServiceRecord: a service that a port offers (IBTA volume 1, chapter 15.2.5.14).

use super::record;

record! {
    /// A service that a port offers. Service, GID and partition are the name of the record.
    ServiceRecord,
    bits {
        /// The service.
        service_id: u64 = 0, 0, 64;
        /// Partition.
        pkey: u16 = 24, 0, 16;
        /// The number of seconds that the record lasts; [`ServiceRecord::FOREVER`].
        lease: u32 = 28, 0, 32;
    }
    gids {
        /// GID of the port.
        service_gid = 8;
        /// The key, with which a port may change the record.
        key = 32;
    }
    bytes {
        /// Name of the service, padded with zeros.
        name: 64 = 48;
        /// The service's own: 64 bytes, of which numbers are made that are 8, 16, 32 and 64 bits wide.
        data: 64 = 112;
    }
    components {
        /// `service_id` counts.
        SERVICE_ID = 1 << 0;
        /// `service_gid` counts.
        SERVICE_GID = 1 << 1;
        /// `pkey` counts.
        PKEY = 1 << 2;
        /// `lease` counts.
        LEASE = 1 << 4;
        /// `key` counts.
        KEY = 1 << 5;
        /// `name` counts.
        NAME = 1 << 6;
        /// All of `data` counts.
        DATA = 0x3fff_ffff << 7;
    }
}

impl ServiceRecord {
    /// Value of [`ServiceRecord::lease`]: until it is deleted.
    pub const FOREVER: u32 = u32::MAX;

    /// A name as the record has it; `None` if it is longer than 64 bytes.
    #[must_use]
    pub fn named(name: &str) -> Option<[u8; 64]> {
        let mut padded = [0; 64];
        padded
            .get_mut(..name.len())?
            .copy_from_slice(name.as_bytes());
        Some(padded)
    }
}
