//! Notice: what has happened (IBTA volume 1, chapters 13.4.8.2 and 14.2.5.1).

use super::record;

/// Numbers of what subnet administration reports of GIDs (IBTA volume 1, chapter 14.2.5.1, table of traps).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Trap {
    /// A port can be reached by this GID from now on.
    GidInService = 64,
    /// No port can be reached by this GID any more.
    GidOutOfService = 65,
    /// A multicast group was made.
    GroupMade = 66,
    /// A multicast group was deleted.
    GroupDeleted = 67,
}

record! {
    /// An event. The details are those of [`Trap`].
    Notice,
    bits {
        /// 1 unless it is a vendor's own.
        is_generic: u8 = 0, 0, 1;
        /// The urgency: 0 fatal, 1 urgent, 2 security, 3 subnet management, 4 informational.
        kind: u8 = 0, 1, 7;
        /// Type of who tells, or a vendor: [`Notice::CLASS_MANAGER`] where it is a [`Trap`].
        producer: u32 = 1, 0, 24;
        /// The number of the event: a [`Trap`]'s.
        trap: u16 = 4, 0, 16;
        /// LID of who tells.
        issuer_lid: u16 = 6, 0, 16;
        /// Changes from notice to notice.
        toggle: u8 = 8, 0, 1;
        /// The number of further notices.
        count: u16 = 8, 1, 15;
    }
    gids {
        /// The GID that it is about.
        gid = 16;
        /// GID of who tells.
        issuer_gid = 64;
    }
    components {}
}

impl Notice {
    /// Value of [`Notice::producer`]: managers of classes, which subnet administration is.
    pub const CLASS_MANAGER: u32 = 4;
    /// Value of [`Notice::kind`] of a [`Trap`].
    pub const SUBNET_MANAGEMENT: u8 = 3;

    /// Returns `true` if it is this one of a GID.
    pub const fn is(&self, trap: Trap) -> bool {
        self.is_generic == 1 && self.trap == trap as u16
    }
}
