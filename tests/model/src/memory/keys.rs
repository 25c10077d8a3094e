//! Access by memory keys: from a key's addresses to the host's.

use crate::bus::io::Io;
use crate::device::Device;
use crate::objects::mkey::{Accessor, DUMP_FILL_MKEY, Mkey, RESERVED_LKEY, Right};
use crate::roce::env::AccessError;
use bareverbs_firmware_cmds::values::MkeyAccessMode;

/// Bytes on their way between the transport and the host.
enum Data<'a> {
    FromHost(&'a mut [u8]),
    ToHost(&'a [u8]),
}

impl Data<'_> {
    fn len(&self) -> usize {
        match self {
            Data::FromHost(bytes) => bytes.len(),
            Data::ToHost(bytes) => bytes.len(),
        }
    }

    fn writes(&self) -> bool {
        matches!(self, Data::ToHost(_))
    }

    fn part(&mut self, range: core::ops::Range<usize>) -> Data<'_> {
        match self {
            Data::FromHost(bytes) => Data::FromHost(&mut bytes[range]),
            Data::ToHost(bytes) => Data::ToHost(&bytes[range]),
        }
    }

    fn transfer(self, io: &mut Io<'_>, host: u64) -> Result<(), AccessError> {
        match self {
            Data::FromHost(bytes) => io.read(host, bytes),
            Data::ToHost(bytes) => io.write(host, bytes),
        }
        .map_err(|_| AccessError::Fault)
    }
}

impl Device {
    fn key(&self, key: u32) -> Result<&Mkey, AccessError> {
        self.mkeys.get(key >> 8).ok_or(AccessError::Key)
    }

    /// Checks a range of a key, which is returned.
    #[inline]
    fn check_through(
        &self,
        key: u32,
        who: Accessor,
        addr: u64,
        len: u64,
        right: Right,
        depth: u8,
    ) -> Result<&Mkey, AccessError> {
        let mkey = self.key(key)?;
        mkey.check(key, who, addr, len, right)?;
        if mkey.indirect() {
            self.check_parts(mkey, who, addr, len, right, depth)?;
        }
        Ok(mkey)
    }

    /// Checks the keys that the list of an indirect key names: what a window lets in, the region under it has to let its
    /// owner do.
    #[inline(never)]
    fn check_parts(
        &self,
        mkey: &Mkey,
        who: Accessor,
        addr: u64,
        len: u64,
        right: Right,
        depth: u8,
    ) -> Result<(), AccessError> {
        // A key whose list names keys whose lists name keys: so many in a row. A window is one.
        if depth == self.caps.general.max_indirection().max(1) {
            return Err(AccessError::Key);
        }
        let inner = match right {
            Right::LocalRead | Right::RemoteRead => Right::LocalRead,
            Right::LocalWrite | Right::RemoteWrite | Right::Atomic => Right::LocalWrite,
        };
        mkey.parts(addr, len, |key, addr, part| {
            let len = part.end - part.start;
            self.check_through(key, who, addr, len, inner, depth + 1)
                .map(|_| ())
        })
    }

    /// Moves bytes through a key whose range was checked.
    #[inline]
    fn transfer(
        &self,
        io: &mut Io<'_>,
        mkey: &Mkey,
        addr: u64,
        mut data: Data<'_>,
    ) -> Result<(), AccessError> {
        match mkey.mode {
            MkeyAccessMode::Klms | MkeyAccessMode::Ksm => {
                return self.transfer_parts(io, mkey, addr, data);
            }
            MkeyAccessMode::Memic => return self.transfer_memic(mkey, addr, data),
            _ => {}
        }
        let (len, writes) = (data.len(), data.writes());
        mkey.pages(addr, len, writes, |host, range| {
            data.part(range).transfer(io, host)
        })
    }

    /// The same with memory on the device.
    #[cold]
    fn transfer_memic(&self, mkey: &Mkey, addr: u64, data: Data<'_>) -> Result<(), AccessError> {
        let place = mkey.context.start_addr().wrapping_add(addr);
        let there = match data {
            Data::FromHost(bytes) => self.memic.read(place, bytes),
            Data::ToHost(bytes) => self.memic.write(place, bytes),
        };
        there.then_some(()).ok_or(AccessError::Range)
    }

    /// The same through the keys that the list of an indirect key names.
    #[inline(never)]
    fn transfer_parts(
        &self,
        io: &mut Io<'_>,
        mkey: &Mkey,
        addr: u64,
        mut data: Data<'_>,
    ) -> Result<(), AccessError> {
        mkey.parts(addr, data.len() as u64, |key, addr, part| {
            let part = data.part(part.start as usize..part.end as usize);
            self.transfer(io, self.key(key)?, addr, part)
        })
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
        match self.check_through(key, who, addr, len, right, 0) {
            Err(error) => self.null_region(key, right).ok_or(error),
            Ok(_) => Ok(()),
        }
    }

    /// Allows local access through the null region's key, which the table of keys does not have: its owner uses it as it likes.
    #[cold]
    fn null_region(&self, key: u32, right: Right) -> Option<()> {
        let local = matches!(right, Right::LocalRead | Right::LocalWrite);
        (key == DUMP_FILL_MKEY && local && self.caps.general.dump_fill_mkey()).then_some(())
    }

    /// Checks a range of a key, and moves bytes through it.
    fn access(
        &self,
        io: &mut Io<'_>,
        key: u32,
        who: Accessor,
        addr: u64,
        data: Data<'_>,
        right: Right,
    ) -> Result<(), AccessError> {
        let len = data.len() as u64;
        if who.reserved_key && key == RESERVED_LKEY {
            self.check_key(key, who, addr, len, right)?;
            return data.transfer(io, addr);
        }
        let mkey = match self.check_through(key, who, addr, len, right, 0) {
            Ok(mkey) => mkey,
            Err(error) => {
                self.null_region(key, right).ok_or(error)?;
                if let Data::FromHost(zeros) = data {
                    zeros.fill(0);
                }
                return Ok(());
            }
        };
        self.transfer(io, mkey, addr, data)
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
        self.access(io, key, who, addr, Data::FromHost(data), right)
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
        self.access(io, key, who, addr, Data::ToHost(data), right)
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
