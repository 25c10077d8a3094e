//! User contexts and user memory.

use crate::memory::pages::Place;
use crate::objects::ObjectKind;
use std::collections::{BTreeMap, HashMap};

/// User memory: a byte range scattered over pages of one size.
#[derive(Debug)]
pub(crate) struct Umem {
    pub(crate) pages: Vec<u64>,
    pub(crate) log_page: u32,
    /// Where it starts in its first page.
    pub(crate) offset: u64,
    /// `true` if the device may read and write all of its pages.
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// As it lies in the host's pages.
    pub(crate) context: bareverbs_firmware_cmds::umem::Umem,
    pub(crate) place: Place,
}

impl Umem {
    /// Its length: up to the end of the last page.
    pub(crate) fn len(&self) -> u64 {
        ((self.pages.len() as u64) << self.log_page) - self.offset
    }

    /// Returns `true` if `len` bytes from `at` on are inside.
    pub(crate) fn has(&self, at: u64, len: u64) -> bool {
        at.checked_add(len).is_some_and(|end| end <= self.len())
    }

    /// The address of a byte, and how many from there on lie in its page.
    pub(crate) fn address(&self, at: u64) -> Option<(u64, u64)> {
        let page = 1u64 << self.log_page;
        let position = self.offset.checked_add(at)?;
        let inside = position & (page - 1);
        let base = self.pages.get((position >> self.log_page) as usize)?;
        Some((base + inside, page - inside))
    }
}

/// The user of what the kernel makes for all users: `MLX5_SHARED_RESOURCE_UID`.
pub(crate) const SHARED_UID: u16 = 0xffff;

/// The user contexts, and which objects are whose. Those of no user are the kernel's: uid 0.
#[derive(Debug, Default)]
pub(crate) struct Users {
    /// The sender of the command that is being executed.
    pub(crate) current: u16,
    /// The capabilities of each user (`uctx.cap`).
    contexts: BTreeMap<u16, u32>,
    owners: HashMap<(ObjectKind, u32), u16>,
}

impl Users {
    /// A context is made under the lowest free number.
    pub(crate) fn create(&mut self, cap: u32) -> Option<u16> {
        let uid = (1..SHARED_UID).find(|uid| !self.contexts.contains_key(uid))?;
        self.contexts.insert(uid, cap);
        Some(uid)
    }

    /// Returns whether there was one.
    pub(crate) fn destroy(&mut self, uid: u16) -> bool {
        self.contexts.remove(&uid).is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.contexts.len()
    }

    pub(crate) fn uids(&self) -> impl Iterator<Item = u32> {
        self.contexts.keys().map(|&uid| u32::from(uid))
    }

    /// Returns `true` if there is such a user context; the kernel's, 0, always exists.
    pub(crate) fn exists(&self, uid: u16) -> bool {
        uid == 0 || self.contexts.contains_key(&uid)
    }

    /// Returns `true` if the current user has one of these capabilities. The kernel has all.
    pub(crate) fn may(&self, cap: u32) -> bool {
        self.current == 0
            || self
                .contexts
                .get(&self.current)
                .is_some_and(|&has| has & cap != 0)
    }

    /// An object is made by the current user.
    pub(crate) fn own(&mut self, kind: ObjectKind, number: u32) {
        if self.current != 0 {
            self.owners.insert((kind, number), self.current);
        }
    }

    /// An object is gone.
    pub(crate) fn forget(&mut self, kind: ObjectKind, number: u32) {
        if !self.owners.is_empty() {
            self.owners.remove(&(kind, number));
        }
    }

    fn owner(&self, kind: ObjectKind, number: u32) -> u16 {
        self.owners.get(&(kind, number)).copied().unwrap_or(0)
    }

    /// Returns `true` if a user has objects.
    pub(crate) fn has_objects(&self, uid: u16) -> bool {
        self.owners.values().any(|&owner| owner == uid)
    }

    /// Returns `true` if the current user may change, destroy or query an object: its own. The kernel may do so to all.
    pub(crate) fn controls(&self, kind: ObjectKind, number: u32) -> bool {
        self.current == 0 || self.owner(kind, number) == self.current
    }

    /// Returns `true` if an object of the current user may name another one: one of its own, or one of the kernel's that
    /// gives no way to memory. Linux has programs' queues name event queues, counters, XRC domains, SRQs and CQs that the
    /// kernel made (`devx_query_eqn`, `create_user_qp`).
    pub(crate) fn may_name(&self, kind: ObjectKind, number: u32) -> bool {
        let shared = !matches!(
            kind,
            ObjectKind::Pd | ObjectKind::TransportDomain | ObjectKind::Mkey | ObjectKind::Umem
        );
        self.controls(kind, number) || shared && self.owner(kind, number) == 0
    }
}
