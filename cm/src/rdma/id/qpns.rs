//! Lookup of ids by the number of their QP.

use bareverbs_core::{Platform, Qpn};

use crate::rdma::id::slot::IdSlot;
use crate::rdma::id::table::IdTable;
use crate::rdma::types::id::NIL;

impl<P: Platform> IdTable<'_, '_, P> {
    fn qpn_bucket(&self, qpn: u32) -> usize {
        qpn as usize % self.len().max(1)
    }

    /// Enters an id under the number of the QP that it has got. It stays there until it gets another one.
    pub(crate) fn enter_qpn(&mut self, index: usize) {
        self.leave_qpn(index);
        let Some((qpn, _)) = self[index].objects.qp.number() else {
            return;
        };
        let qpn = qpn.number();
        let bucket = self.qpn_bucket(qpn);
        let next = core::mem::replace(&mut self[bucket].links.qpn_head, index as u32);
        let links = &mut self[index].links;
        (links.qpn, links.qpn_next) = (qpn, next);
    }

    fn leave_qpn(&mut self, index: usize) {
        let links = &mut self[index].links;
        let (qpn, next) = (core::mem::take(&mut links.qpn), links.qpn_next);
        if qpn == 0 {
            return;
        }
        let bucket = self.qpn_bucket(qpn);
        if self[bucket].links.qpn_head == index as u32 {
            self[bucket].links.qpn_head = next;
            return;
        }
        let mut at = self[bucket].links.qpn_head;
        while let Some(slot) = self.get_mut(at as usize) {
            if slot.links.qpn_next == index as u32 {
                slot.links.qpn_next = next;
                return;
            }
            at = slot.links.qpn_next;
        }
    }

    /// The id that has this QP.
    pub(crate) fn find_qpn(&self, qpn: Qpn) -> Option<usize> {
        let own =
            |slot: &IdSlot<'_, P>| slot.objects.qp.number().is_some_and(|(own, _)| own == qpn);
        let mut at = self
            .get(self.qpn_bucket(qpn.number()))
            .map_or(NIL, |slot| slot.links.qpn_head);
        while let Some(slot) = self.get(at as usize) {
            if own(slot) {
                return Some(at as usize);
            }
            at = slot.links.qpn_next;
        }
        None
    }
}
