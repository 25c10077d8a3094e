//! Memory keys: what a key gives access to, and the way from its addresses to the host's.

use crate::device::Device;
use crate::host::IommuFault;
use crate::io::Io;
use crate::pages::Place;
use crate::roce::env::{AccessError, RemoteRight};
use bareverbs_firmware_cmds::mkey::Mkc;

/// `access_mode`: the key's addresses are the bus's.
pub(crate) const MODE_PA: u8 = 0;
/// `access_mode`: a list of pages of one size.
pub(crate) const MODE_MTT: u8 = 1;

/// What an access needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    LocalRead,
    LocalWrite,
    RemoteRead,
    RemoteWrite,
    Atomic,
}

impl From<RemoteRight> for Right {
    fn from(right: RemoteRight) -> Self {
        match right {
            RemoteRight::Read => Self::RemoteRead,
            RemoteRight::Write => Self::RemoteWrite,
            RemoteRight::Atomic => Self::Atomic,
        }
    }
}

/// A memory key.
#[derive(Debug)]
pub(crate) struct Mkey {
    pub(crate) context: Mkc,
    pub(crate) mode: u8,
    /// Host addresses of the pages, low bits cleared; the two access bits of each entry in `page_rights`.
    pub(crate) pages: Vec<u64>,
    /// With page access: bit 0 read, bit 1 write, one per page; empty without.
    pub(crate) page_rights: Vec<u8>,
    /// Invalidated by the peer or never validated.
    pub(crate) free: bool,
    pub(crate) place: Place,
}

/// Whose access it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Accessor {
    pub(crate) pd: u32,
    pub(crate) qpn: u32,
    /// Whether the QP may use the reserved key (`rlky`).
    pub(crate) reserved_key: bool,
}

/// The reserved key, which kernels use for memory they know the bus address of.
pub(crate) const RESERVED_LKEY: u32 = 0x0000_0700;

impl Mkey {
    fn start(&self) -> u64 {
        self.context.start_addr()
    }

    /// Checks everything but the translation.
    pub(crate) fn check(
        &self,
        key: u32,
        who: Accessor,
        addr: u64,
        len: u64,
        right: Right,
    ) -> Result<(), AccessError> {
        let context = &self.context;
        if context.mkey_7_0() != key as u8 || self.free {
            return Err(AccessError::Key);
        }
        if context.pd() != who.pd
            || !matches!(context.qpn(), qpn if qpn == 0xff_ffff || qpn == who.qpn)
        {
            return Err(AccessError::Domain);
        }
        let granted = match right {
            Right::LocalRead => context.lr(),
            Right::LocalWrite => context.lw(),
            Right::RemoteRead => context.rr(),
            Right::RemoteWrite => context.rw(),
            Right::Atomic => context.a(),
        };
        if !granted {
            return Err(AccessError::Rights);
        }
        let end = addr.checked_add(len).ok_or(AccessError::Range)?;
        if !context.length64() {
            let limit = u128::from(self.start()) + u128::from(context.len());
            if addr < self.start() || u128::from(end) > limit {
                return Err(AccessError::Range);
            }
        }
        Ok(())
    }

    /// Walks over the host addresses of a range that was checked.
    fn pieces(
        &self,
        addr: u64,
        len: usize,
        write: bool,
        mut each: impl FnMut(u64, core::ops::Range<usize>) -> Result<(), IommuFault>,
    ) -> Result<(), AccessError> {
        if self.mode == MODE_PA {
            return each(addr, 0..len).map_err(|_| AccessError::Fault);
        }
        let page = 1u64 << self.context.log_page_size();
        let base = self.start() & !(page - 1);
        let mut done = 0;
        while done < len {
            let offset = addr.wrapping_add(done as u64).wrapping_sub(base);
            let index = usize::try_from(offset / page).map_err(|_| AccessError::Range)?;
            let inside = offset & (page - 1);
            let run = usize::try_from(page - inside)
                .unwrap_or(usize::MAX)
                .min(len - done);
            let host = *self.pages.get(index).ok_or(AccessError::Range)?;
            if let Some(&rights) = self.page_rights.get(index)
                && rights & (1 << u8::from(write)) == 0
            {
                return Err(AccessError::Rights);
            }
            each(host.wrapping_add(inside), done..done + run).map_err(|_| AccessError::Fault)?;
            done += run;
        }
        Ok(())
    }

    pub(crate) fn read(
        &self,
        io: &mut Io<'_>,
        addr: u64,
        data: &mut [u8],
    ) -> Result<(), AccessError> {
        self.pieces(addr, data.len(), false, |host, range| {
            io.read(host, &mut data[range])
        })
    }

    pub(crate) fn write(&self, io: &mut Io<'_>, addr: u64, data: &[u8]) -> Result<(), AccessError> {
        self.pieces(addr, data.len(), true, |host, range| {
            io.write(host, &data[range])
        })
    }
}

impl Device {
    fn key(&self, key: u32) -> Result<&Mkey, AccessError> {
        self.mkeys.get(key >> 8).ok_or(AccessError::Key)
    }

    /// Checks a range of a key.
    pub(crate) fn check_key(
        &self,
        key: u32,
        who: Accessor,
        addr: u64,
        len: u64,
        right: Right,
    ) -> Result<(), AccessError> {
        if who.reserved_key && key == RESERVED_LKEY {
            return match right {
                Right::LocalRead | Right::LocalWrite => Ok(()),
                _ => Err(AccessError::Rights),
            };
        }
        self.key(key)?.check(key, who, addr, len, right)
    }

    /// Reads memory through a key.
    pub(crate) fn read_key(
        &self,
        io: &mut Io<'_>,
        key: u32,
        who: Accessor,
        addr: u64,
        data: &mut [u8],
        right: Right,
    ) -> Result<(), AccessError> {
        self.check_key(key, who, addr, data.len() as u64, right)?;
        if who.reserved_key && key == RESERVED_LKEY {
            return io.read(addr, data).map_err(|_| AccessError::Fault);
        }
        self.key(key)?.read(io, addr, data)
    }

    /// Writes memory through a key.
    pub(crate) fn write_key(
        &self,
        io: &mut Io<'_>,
        key: u32,
        who: Accessor,
        addr: u64,
        data: &[u8],
        right: Right,
    ) -> Result<(), AccessError> {
        self.check_key(key, who, addr, data.len() as u64, right)?;
        if who.reserved_key && key == RESERVED_LKEY {
            return io.write(addr, data).map_err(|_| AccessError::Fault);
        }
        self.key(key)?.write(io, addr, data)
    }

    /// Invalidates a key for the peer.
    pub(crate) fn invalidate_key(&mut self, key: u32, who: Accessor) -> Result<(), AccessError> {
        let mkey = self.mkeys.get_mut(key >> 8).ok_or(AccessError::Key)?;
        if mkey.context.mkey_7_0() != key as u8 || mkey.free {
            return Err(AccessError::Key);
        }
        if mkey.context.pd() != who.pd
            || !matches!(mkey.context.qpn(), qpn if qpn == 0xff_ffff || qpn == who.qpn)
        {
            return Err(AccessError::Domain);
        }
        if !mkey.context.en_rinval() {
            return Err(AccessError::Rights);
        }
        mkey.free = true;
        Ok(())
    }
}
