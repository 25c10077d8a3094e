//! The groups of capabilities, as QUERY_HCA_CAP and SET_HCA_CAP name them.

use super::CapabilityGroup;

/// The values of a capability group that QUERY_HCA_CAP returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CapabilityMode {
    /// The greatest that may be set.
    Max,
    /// Those in force.
    Current,
}

impl CapabilityGroup {
    /// `op_mod` of QUERY_HCA_CAP: the group, and whether the current values are meant.
    #[must_use]
    pub const fn query(self, mode: CapabilityMode) -> u16 {
        (self as u16) << 1 | matches!(mode, CapabilityMode::Current) as u16
    }

    /// `op_mod` of SET_HCA_CAP.
    #[must_use]
    pub const fn set(self) -> u16 {
        (self as u16) << 1
    }

    /// The group and the values that an `op_mod` of QUERY_HCA_CAP asks for.
    #[must_use]
    pub const fn parse_query(op_mod: u16) -> Option<(Self, CapabilityMode)> {
        let mode = if op_mod & 1 != 0 {
            CapabilityMode::Current
        } else {
            CapabilityMode::Max
        };
        match Self::from_number(op_mod >> 1) {
            Some(group) => Some((group, mode)),
            None => None,
        }
    }
}

/// Size in bytes of every capability group in QUERY_HCA_CAP and SET_HCA_CAP, used or not.
pub const CAPABILITY_GROUP_SIZE: usize = 0x1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capability_op_mods() {
        assert_eq!(CapabilityGroup::General.query(CapabilityMode::Current), 1);
        assert_eq!(CapabilityGroup::Roce.query(CapabilityMode::Max), 8);
        assert_eq!(CapabilityGroup::Atomic.set(), 6);
        let parsed = (CapabilityGroup::Roce, CapabilityMode::Current);
        assert_eq!(CapabilityGroup::parse_query(9), Some(parsed));
        assert_eq!(CapabilityGroup::parse_query(0xffff), None);
    }
}
