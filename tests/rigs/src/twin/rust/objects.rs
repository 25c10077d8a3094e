//! The objects of a script.

// UNSAFETY: memory that is registered is reached by the device, and read beside it.
#![expect(unsafe_code)]

use super::line::{Left, error_name};
use bareverbs_cm::rdma::{ChannelId, CmId, PortSpace, RdmaError};
use bareverbs_core::qp::{DestroyQpError, DynQp};
use bareverbs_core::{AddressHandle, Cq, Mr, Mw, Pd, RKey, Srq, Xrcd};
use bareverbs_in_process::ModelPlatform as P;
use std::ptr::NonNull;

/// Bytes of a script's memory.
pub(super) const BUFFER: usize = 64 << 10;

#[derive(Clone, Copy)]
#[repr(align(4096))]
struct Page([u8; 4096]);

/// Memory of the program.
pub(super) struct Memory(NonNull<[Page]>);

impl Memory {
    pub(super) fn new() -> Self {
        let mut pages = vec![Page([0; 4096]); BUFFER / 4096].into_boxed_slice();
        for (index, byte) in pages.iter_mut().flat_map(|page| &mut page.0).enumerate() {
            *byte = (index * 7 + index / 256 * 5) as u8;
        }
        Self(NonNull::from(Box::leak(pages)))
    }

    pub(super) fn addr(&self) -> u64 {
        self.0.cast::<u8>().as_ptr() as u64
    }

    /// A piece of it, if it lies inside.
    pub(super) fn piece(&self, at: usize, len: usize) -> Option<NonNull<[u8]>> {
        let end = at.checked_add(len)?;
        // SAFETY: it lies inside of the allocation.
        let start = (end <= BUFFER).then(|| unsafe { self.0.cast::<u8>().add(at) })?;
        Some(NonNull::slice_from_raw_parts(start, len))
    }

    /// The bytes at an address, as many of them as lie inside.
    pub(super) fn bytes(&self, addr: u64, len: usize) -> Vec<u8> {
        let at = addr.wrapping_sub(self.addr()) as usize;
        let piece = self.piece(at, len.min(BUFFER.saturating_sub(at)));
        // SAFETY: the piece is inside of memory that is there until `self` is dropped. The device runs in this thread, in calls
        // of the driver alone.
        piece.map_or(Vec::new(), |piece| unsafe { piece.as_ref() }.to_vec())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it came from a box, and the regions in it are gone: they are dropped before ([`Objects::clear`]).
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// A region, with the address of what it was made from.
pub(super) struct Region<'d> {
    pub(super) mr: Mr<'d, P>,
    pub(super) at: u64,
}

/// A window, with its key now.
pub(super) struct Window<'d> {
    pub(super) mw: Mw<'d, P>,
    pub(super) rkey: RKey,
}

/// An object.
pub(super) enum Object<'d> {
    Memory(Memory),
    Pd(Pd<'d, P>),
    Region(Box<Region<'d>>),
    Window(Window<'d>),
    /// For completions: there are none in Rust, where a CQ is waited for itself.
    Channel,
    Cq(Box<Cq<'d, P>>, String),
    Srq(Box<Srq<'d, P>>),
    Xrcd(Xrcd<'d, P>),
    Qp(Box<DynQp<'d, P>>),
    Ah(AddressHandle),
    EventChannel(ChannelId),
    Id(Ident),
    /// The QP of an id, and `true` if it is for datagrams.
    QpOfId(CmId, bool),
}

/// An id, with its port space and the number of its QP, 0 without.
#[derive(Clone)]
pub(super) struct Ident {
    pub(super) id: CmId,
    pub(super) port_space: PortSpace,
    pub(super) qpn: u32,
}

impl Ident {
    pub(super) fn new(id: CmId, port_space: PortSpace) -> Self {
        let qpn = 0;
        Self {
            id,
            port_space,
            qpn,
        }
    }
}

/// The result of an error that has no errno in Rust: Linux has to have one as well, and it is not compared.
pub(super) const NO_ERRNO: &str = "E?";

/// The name of an error's errno.
pub(super) fn named<E: Into<RdmaError>>(error: E) -> &'static str {
    error_name(error.into().errno())
}

/// The result of a call that makes nothing.
pub(super) fn done<E: Into<RdmaError>>(result: Result<(), E>) -> String {
    result.map_or_else(named, |()| "0").into()
}

/// The result of destroying an object, which is given back with the errno's name if it stays.
pub(super) type Destroyed<'d> = Result<(), (Object<'d>, &'static str)>;

impl<'d> Object<'d> {
    /// Destroys an object of libibverbs.
    pub(super) fn destroy(self) -> Destroyed<'d> {
        match self {
            Self::Pd(pd) => pd.dealloc().map_err(|(pd, e)| (Self::Pd(pd), named(e))),
            Self::Region(region) => {
                let Region { mr, at } = *region;
                mr.dereg()
                    .map_err(|(mr, e)| (Self::Region(Box::new(Region { mr, at })), named(e)))
            }
            Self::Window(Window { mw, rkey }) => mw
                .dealloc()
                .map_err(|(mw, e)| (Self::Window(Window { mw, rkey }), named(e))),
            Self::Cq(cq, channel) => cq
                .destroy()
                .map_err(|(cq, e)| (Self::Cq(Box::new(cq), channel), named(e))),
            Self::Srq(srq) => srq
                .destroy()
                .map_err(|(srq, e)| (Self::Srq(Box::new(srq)), named(e))),
            Self::Xrcd(xrcd) => xrcd.close().map_err(|(x, e)| (Self::Xrcd(x), named(e))),
            Self::Qp(qp) => qp.destroy().map_err(|(qp, error)| {
                let name = match error {
                    DestroyQpError::Command(error) => named(error),
                    _ => NO_ERRNO,
                };
                (Self::Qp(Box::new(qp)), name)
            }),
            Self::Memory(_)
            | Self::Channel
            | Self::Ah(_)
            | Self::EventChannel(_)
            | Self::Id(_)
            | Self::QpOfId(..) => Ok(()),
        }
    }
}

/// An object by its name; `None` if it was not made, or is gone.
pub(super) struct Entry<'d> {
    pub(super) name: String,
    pub(super) object: Option<Object<'d>>,
}

/// The objects of a script, in the order in which they were made.
#[derive(Default)]
pub(super) struct Objects<'d> {
    pub(super) entries: Vec<Entry<'d>>,
    /// Memory that is gone for the script, and may be registered still.
    pub(super) memory: Vec<Object<'d>>,
}

/// The result of looking for an object: the word is not the name of one, or the object is not there.
pub(super) enum Missing {
    Gone,
    Unknown(Left),
}

impl From<Left> for Missing {
    fn from(left: Left) -> Self {
        Self::Unknown(left)
    }
}

/// Names the object of a kind.
macro_rules! finds {
    ($($function:ident, $variant:pat => $found:expr, $type:ty;)*) => {$(
        pub(super) fn $function(&mut self, name: &str) -> Result<&mut $type, Missing> {
            match self.find(name)? {
                $variant => Ok($found),
                _ => Err(Missing::Unknown("an object of another kind")),
            }
        }
    )*};
}

impl<'d> Objects<'d> {
    pub(super) fn find(&mut self, name: &str) -> Result<&mut Object<'d>, Missing> {
        let entry = self.entries.iter_mut().rev().find(|it| it.name == name);
        let entry = entry.ok_or("null, or a number, for an object")?;
        entry.object.as_mut().ok_or(Missing::Gone)
    }

    finds! {
        memory, Object::Memory(it) => it, Memory;
        pd, Object::Pd(it) => it, Pd<'d, P>;
        region, Object::Region(it) => it, Region<'d>;
        window, Object::Window(it) => it, Window<'d>;
        cq, Object::Cq(it, _) => it, Cq<'d, P>;
        srq, Object::Srq(it) => it, Srq<'d, P>;
        xrcd, Object::Xrcd(it) => it, Xrcd<'d, P>;
        pair, Object::Qp(it) => it, DynQp<'d, P>;
        ah, Object::Ah(it) => it, AddressHandle;
    }

    /// The bytes at an address of one of the script's memories.
    pub(super) fn bytes(&self, addr: u64, len: usize) -> Vec<u8> {
        let mut memories = self.entries.iter().filter_map(|entry| match &entry.object {
            Some(Object::Memory(memory)) => Some(memory),
            _ => None,
        });
        let inside =
            |memory: &&Memory| (memory.addr()..memory.addr() + BUFFER as u64).contains(&addr);
        memories
            .find(inside)
            .map_or(Vec::new(), |memory| memory.bytes(addr, len))
    }

    /// The objects of a kind, with their names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Object<'d>)> {
        let there = self.entries.iter();
        there.filter_map(|entry| Some((entry.name.as_str(), entry.object.as_ref()?)))
    }

    /// Drops all that is left, memory last.
    pub(super) fn clear(&mut self) {
        while let Some(entry) = self.entries.pop() {
            match entry.object {
                Some(object @ Object::Memory(_)) => self.memory.push(object),
                object => drop(object),
            }
        }
        self.memory.clear();
    }
}
