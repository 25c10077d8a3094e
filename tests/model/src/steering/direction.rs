//! The kinds of tables.

/// The frames that a table is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Receive,
    Transmit,
    /// RoCE packets before their QP is looked for.
    RdmaReceive,
    /// RoCE packets that QPs send.
    RdmaTransmit,
}

impl Direction {
    pub(crate) const COUNT: usize = 4;

    pub(crate) fn is_rdma(self) -> bool {
        matches!(self, Self::RdmaReceive | Self::RdmaTransmit)
    }
}

/// Where frames go that no entry of a table takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Miss {
    /// Nowhere if they were received, to the QPs if they are RDMA's, out of the port if they are sent.
    Default,
    Table(u32),
    /// From the tables of received RDMA packets to those of Ethernet (`MLX5_FLOW_TABLE_MISS_ACTION_SWITCH_DOMAIN`).
    SwitchDomain,
}

impl Miss {
    pub(crate) fn table(self) -> Option<u32> {
        match self {
            Self::Table(number) => Some(number),
            Self::Default | Self::SwitchDomain => None,
        }
    }
}

impl From<Option<u32>> for Miss {
    fn from(table: Option<u32>) -> Self {
        table.map_or(Self::Default, Self::Table)
    }
}
