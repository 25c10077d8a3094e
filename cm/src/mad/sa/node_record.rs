//! NodeRecord: a node of the subnet by one of its ports (IBTA volume 1, chapters 15.2.5.2 and 14.2.5.3).

use super::record;

record! {
    /// A node of the subnet, by one of its ports.
    NodeRecord,
    bits {
        /// LID of the port.
        lid: u16 = 0, 0, 16;
        /// Version of the MADs that it understands.
        base_version: u8 = 4, 0, 8;
        /// Version of the class of subnet management.
        class_version: u8 = 5, 0, 8;
        /// 1 for a channel adapter, 2 for a switch, 3 for a router.
        node_type: u8 = 6, 0, 8;
        /// The number of its ports.
        num_ports: u8 = 7, 0, 8;
        /// GUID of the system that it is in.
        system_guid: u64 = 8, 0, 64;
        /// GUID of the node.
        node_guid: u64 = 16, 0, 64;
        /// GUID of the port.
        port_guid: u64 = 24, 0, 64;
        /// Entries of its partition tables.
        partition_cap: u16 = 32, 0, 16;
        /// The vendor's number of the device.
        device_id: u16 = 34, 0, 16;
        /// Revision of the device.
        revision: u32 = 36, 0, 32;
        /// The port's number.
        local_port: u8 = 40, 0, 8;
        /// The vendor.
        vendor_id: u32 = 41, 0, 24;
    }
    gids {}
    bytes {
        /// Name of the node, padded with zeros.
        description: 64 = 44;
    }
    components {
        /// `lid` counts.
        LID = 1 << 0;
        /// `node_type` counts.
        NODE_TYPE = 1 << 4;
        /// `node_guid` counts.
        NODE_GUID = 1 << 7;
        /// `port_guid` counts.
        PORT_GUID = 1 << 8;
    }
}
