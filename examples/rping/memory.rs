//! Memory for messages that is not plainly registered: behind memory windows, behind indirect keys, and on the device.
//!
//! The regions behind windows and indirect keys allow nothing to the other end, so that it reaches the bytes through those
//! keys only. A key is open from its advertisement to the server's answer.

use bareverbs::cm::rdma::{CmId, QpInit, RdmaCm, RdmaError, Resolver, SendFlags};
use bareverbs::verbs::mr::{Access, Buffer, OutOfRange, Sge};
use bareverbs::verbs::{
    AllocDmAttr, DM_WORD, Dm, DmMr, Mkey, MkeyInitAttr, MrError, Mw, MwBind, MwType, Platform, RKey,
};

use super::ping::{Advert, End, Memory, PingError, Supply};

type Result<T> = std::result::Result<T, PingError>;
type Copied = std::result::Result<(), OutOfRange>;

fn refused(error: MrError) -> PingError {
    RdmaError::from(error).into()
}

/// The capabilities of a QP for pings, with space for such requests.
fn with_space<'a, 'd: 'a, P: Platform>(space: u32) -> QpInit<'a, 'd, P> {
    let mut init = End::<P>::queues();
    init.cap.max_inline_data = init.cap.max_inline_data.max(space);
    init
}

/// Windows of type 2, each bound before it is advertised, and invalidated when it was used.
#[derive(Debug)]
pub(crate) struct Windows;

impl<'d, P: Platform + 'd> Supply<'d, P> for Windows {
    type Memory = Window<'d, P>;

    fn queues<'a>(&self) -> QpInit<'a, 'd, P>
    where
        'd: 'a,
    {
        with_space(MwBind::SPACE)
    }

    fn make<R: Resolver>(
        &mut self,
        cm: &RdmaCm<'_, 'd, P, R>,
        id: CmId,
        len: usize,
        access: Access,
    ) -> Result<Window<'d, P>> {
        let pd = cm.pd(id)?;
        let window = pd.alloc_mw(MwType::Type2).map_err(refused)?;
        Ok(Window {
            rkey: window.rkey(),
            _window: window,
            region: pd.alloc_buffer(len, Access::LOCAL_WRITE).map_err(refused)?,
            access: access | Access::LOCAL_WRITE,
        })
    }
}

/// A window that leads to the whole of a region.
#[derive(Debug)]
pub(crate) struct Window<'d, P: Platform> {
    // It goes before what it leads to.
    _window: Mw<'d, P>,
    region: Buffer<'d, P>,
    access: Access,
    /// The key of the last bind.
    rkey: RKey,
}

impl<'d, P: Platform + 'd> Memory<'d, P> for Window<'d, P> {
    fn copy_in(&self, at: usize, bytes: &[u8]) -> Copied {
        self.region.copy_in(at, bytes)
    }

    fn copy_out(&self, at: usize, bytes: &mut [u8]) -> Copied {
        self.region.copy_out(at, bytes)
    }

    fn clear(&self, len: usize) -> Copied {
        self.region.fill(0, len, 0)
    }

    fn piece(&self, len: usize) -> std::result::Result<Sge, OutOfRange> {
        self.region.slice(..len)
    }

    fn open<R: Resolver>(
        &mut self,
        cm: &mut RdmaCm<'_, 'd, P, R>,
        end: &End<'d, P>,
    ) -> Result<Advert> {
        // Another low byte each time, so that a key that was used opens nothing.
        self.rkey = RKey(self.rkey.0 & !0xff | u32::from((self.rkey.0 as u8).wrapping_add(1)));
        let bind = MwBind {
            kind: MwType::Type2,
            rkey: self.rkey,
            lkey: self.region.lkey(),
            addr: self.region.addr(),
            len: self.region.len() as u64,
            access: self.access,
        };
        let queue = cm.endpoint(end.id)?.qp.send_queue();
        let posted = queue.batch().bind_mw(0, SendFlags::SIGNALED, &bind);
        posted.map_err(RdmaError::from)?;
        end.sent(cm, "bind")?;
        Ok(Advert {
            addr: bind.addr,
            rkey: bind.rkey,
            size: bind.len as u32,
        })
    }

    fn close<R: Resolver>(
        &mut self,
        cm: &mut RdmaCm<'_, 'd, P, R>,
        end: &End<'d, P>,
    ) -> Result<()> {
        let queue = cm.endpoint(end.id)?.qp.send_queue();
        let posted = queue.batch().local_inv(0, SendFlags::SIGNALED, self.rkey);
        posted.map_err(RdmaError::from)?;
        Ok(end.sent(cm, "invalidation")?)
    }
}

/// Indirect keys, whose lists work requests give to the device.
#[derive(Debug)]
pub(crate) struct Indirect;

/// The regions behind an indirect key.
const REGIONS: usize = 2;

impl<'d, P: Platform + 'd> Supply<'d, P> for Indirect {
    type Memory = Listed<'d, P>;

    fn queues<'a>(&self) -> QpInit<'a, 'd, P>
    where
        'd: 'a,
    {
        with_space(MkeyInitAttr::space(REGIONS as u32))
    }

    fn make<R: Resolver>(
        &mut self,
        cm: &RdmaCm<'_, 'd, P, R>,
        id: CmId,
        len: usize,
        access: Access,
    ) -> Result<Listed<'d, P>> {
        let pd = cm.pd(id)?;
        let region = |len| pd.alloc_buffer(len, Access::LOCAL_WRITE).map_err(refused);
        let attr = MkeyInitAttr::klm(REGIONS as u32);
        let mkey = pd.create_mkey(attr).map_err(refused)?;
        // The seam lies where neither a packet nor a page ends.
        let first = len / 3;
        Ok(Listed {
            mkey,
            regions: [region(first)?, region(len - first)?],
            access: access | Access::LOCAL_WRITE,
        })
    }
}

/// An indirect key to regions that follow one another in its addresses.
#[derive(Debug)]
pub(crate) struct Listed<'d, P: Platform> {
    // It goes before what it leads to.
    mkey: Mkey<'d, P>,
    regions: [Buffer<'d, P>; REGIONS],
    access: Access,
}

impl<P: Platform> Listed<'_, P> {
    fn len(&self) -> usize {
        self.regions.iter().map(Buffer::len).sum()
    }

    /// Refuses what does not lie inside. How many of these bytes lie in the first region, if any do.
    fn split(&self, offset: usize, len: usize) -> std::result::Result<usize, OutOfRange> {
        let size = self.len();
        match offset.checked_add(len) {
            Some(end) if end <= size => Ok(self.regions[0].len().saturating_sub(offset).min(len)),
            _ => Err(OutOfRange { offset, len, size }),
        }
    }

    /// Where the rest of such a piece lies in the second region.
    fn rest(&self, at: usize) -> usize {
        at.saturating_sub(self.regions[0].len())
    }
}

impl<'d, P: Platform + 'd> Memory<'d, P> for Listed<'d, P> {
    fn copy_in(&self, at: usize, bytes: &[u8]) -> Copied {
        let (first, second) = bytes.split_at(self.split(at, bytes.len())?);
        if !first.is_empty() {
            self.regions[0].copy_in(at, first)?;
        }
        self.regions[1].copy_in(self.rest(at), second)
    }

    fn copy_out(&self, at: usize, bytes: &mut [u8]) -> Copied {
        let (first, second) = bytes.split_at_mut(self.split(at, bytes.len())?);
        if !first.is_empty() {
            self.regions[0].copy_out(at, first)?;
        }
        self.regions[1].copy_out(self.rest(at), second)
    }

    fn clear(&self, len: usize) -> Copied {
        let first = self.split(0, len)?;
        self.regions[0].fill(0, first, 0)?;
        self.regions[1].fill(0, len - first, 0)
    }

    fn piece(&self, len: usize) -> std::result::Result<Sge, OutOfRange> {
        self.split(0, len)?;
        Ok(self.mkey.sge(0, len as u32))
    }

    fn open<R: Resolver>(
        &mut self,
        cm: &mut RdmaCm<'_, 'd, P, R>,
        end: &End<'d, P>,
    ) -> Result<Advert> {
        let mut list = [self.mkey.sge(0, 0); REGIONS];
        for (sge, region) in list.iter_mut().zip(&self.regions) {
            *sge = region.slice(..).map_err(RdmaError::from)?;
        }
        let queue = cm.endpoint(end.id)?.qp.send_queue();
        let posted = queue
            .batch()
            .mr_list(0, SendFlags::SIGNALED, &self.mkey, self.access, &list);
        posted.map_err(RdmaError::from)?;
        end.sent(cm, "list of an indirect key")?;
        Ok(Advert {
            addr: 0,
            rkey: self.mkey.rkey(),
            size: self.len() as u32,
        })
    }

    fn close<R: Resolver>(
        &mut self,
        cm: &mut RdmaCm<'_, 'd, P, R>,
        end: &End<'d, P>,
    ) -> Result<()> {
        let queue = cm.endpoint(end.id)?.qp.send_queue();
        let posted = queue
            .batch()
            .local_inv_mkey(0, SendFlags::SIGNALED, &self.mkey);
        posted.map_err(RdmaError::from)?;
        Ok(end.sent(cm, "invalidation")?)
    }
}

/// Allocates device memory for both messages of a client, each of so many bytes.
pub(crate) fn device_memory<'d, P: Platform, R: Resolver>(
    cm: &RdmaCm<'_, 'd, P, R>,
    len: usize,
) -> Result<[Dm<'d, P>; 2]> {
    let attr = AllocDmAttr {
        length: len.next_multiple_of(DM_WORD),
        log_align_req: 0,
    };
    let alloc = || cm.device().alloc_dm(attr).map_err(refused);
    Ok([alloc()?, alloc()?])
}

/// Device memory, registered in turns.
#[derive(Debug)]
pub(crate) struct OnDevice<'m, 'd, P: Platform> {
    pub(crate) memories: &'m [Dm<'d, P>; 2],
    /// The number of registrations.
    pub(crate) made: usize,
}

impl<'m, 'd, P: Platform + 'd> Supply<'d, P> for OnDevice<'m, 'd, P> {
    type Memory = Words<'m, 'd, P>;

    fn make<R: Resolver>(
        &mut self,
        cm: &RdmaCm<'_, 'd, P, R>,
        id: CmId,
        len: usize,
        access: Access,
    ) -> Result<Words<'m, 'd, P>> {
        let memory = &self.memories[self.made % 2];
        self.made += 1;
        let access = access | Access::LOCAL_WRITE | Access::ZERO_BASED;
        let region = cm.pd(id)?.reg_dm_mr(memory, 0, len, access);
        Ok(Words {
            memory,
            region: region.map_err(refused)?,
        })
    }
}

/// Registered device memory, which the host reaches by words.
#[derive(Debug)]
pub(crate) struct Words<'m, 'd, P: Platform> {
    memory: &'m Dm<'d, P>,
    region: DmMr<'m, 'd, P>,
}

impl<'d, P: Platform + 'd> Memory<'d, P> for Words<'_, 'd, P> {
    fn copy_in(&self, at: usize, bytes: &[u8]) -> Copied {
        let whole = bytes.len() / DM_WORD * DM_WORD;
        self.memory.copy_in(at, &bytes[..whole])?;
        if whole < bytes.len() {
            let mut last = [0; DM_WORD];
            last[..bytes.len() - whole].copy_from_slice(&bytes[whole..]);
            self.memory.copy_in(at + whole, &last)?;
        }
        Ok(())
    }

    fn copy_out(&self, at: usize, bytes: &mut [u8]) -> Copied {
        let whole = bytes.len() / DM_WORD * DM_WORD;
        self.memory.copy_out(at, &mut bytes[..whole])?;
        if whole < bytes.len() {
            let mut last = [0; DM_WORD];
            self.memory.copy_out(at + whole, &mut last)?;
            let rest = bytes.len() - whole;
            bytes[whole..].copy_from_slice(&last[..rest]);
        }
        Ok(())
    }

    fn clear(&self, len: usize) -> Copied {
        (0..len)
            .step_by(DM_WORD)
            .try_for_each(|at| self.memory.copy_in(at, &[0; DM_WORD]))
    }

    fn piece(&self, len: usize) -> std::result::Result<Sge, OutOfRange> {
        self.region.sge(0, len).ok_or(OutOfRange {
            offset: 0,
            len,
            size: self.region.len(),
        })
    }

    fn open<R: Resolver>(
        &mut self,
        _: &mut RdmaCm<'_, 'd, P, R>,
        _: &End<'d, P>,
    ) -> Result<Advert> {
        Ok(Advert {
            addr: 0,
            rkey: self.region.rkey(),
            size: self.region.len() as u32,
        })
    }

    fn close<R: Resolver>(&mut self, _: &mut RdmaCm<'_, 'd, P, R>, _: &End<'d, P>) -> Result<()> {
        Ok(())
    }
}
