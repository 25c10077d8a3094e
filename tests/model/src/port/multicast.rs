//! Multicast groups: which datagram QPs are attached to which group.

/// All attachments.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    members: Vec<([u8; 16], u32)>,
}

impl Groups {
    pub(crate) fn contains(&self, group: &[u8; 16], qpn: u32) -> bool {
        self.members.contains(&(*group, qpn))
    }

    pub(crate) fn attach(&mut self, group: [u8; 16], qpn: u32) {
        self.members.push((group, qpn));
    }

    /// Returns whether it was attached.
    pub(crate) fn detach(&mut self, group: &[u8; 16], qpn: u32) -> bool {
        let before = self.members.len();
        self.members.retain(|member| *member != (*group, qpn));
        self.members.len() != before
    }

    pub(crate) fn has_qp(&self, qpn: u32) -> bool {
        self.members.iter().any(|&(_, member)| member == qpn)
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// The `nth` QP of a group.
    pub(crate) fn member(&self, group: &[u8; 16], nth: usize) -> Option<u32> {
        self.members
            .iter()
            .filter(|(of, _)| of == group)
            .nth(nth)
            .map(|&(_, qpn)| qpn)
    }
}
