//! The device's view of memory: it reads what was written here, writes what is read here, and nothing beside it.

// UNSAFETY: registers raw memory.
#![expect(unsafe_code)]

use super::limits::MEMORY_LEN;
use super::loopback::{ACCESS, Pair};
use super::pattern::{self, Differs, Region, UNTOUCHED};
use super::violation::{ConformanceError, Path, Violation};
use crate::device::Device;
use crate::platform::Platform;
use crate::types::sge::Sge;
use crate::verbs::mr::{Buffer, Mr, MrError};
use crate::verbs::pd::Pd;
use crate::verbs::qp::{Remote, SendOp};

/// Bytes around a message that have to stay as they are.
const GUARD: usize = 256;
/// Bytes of a buffer: of the largest message, and around it.
const BUFFER: usize = MEMORY_LEN + 2 * GUARD;
/// Short messages, one after the other.
const ROUNDS: usize = 64;
const SHORT: usize = 64;
/// Parts of the caller's memory, by their distance from the first edge of a page.
const PARTS: [(usize, usize); 5] = [
    (0, 4096),
    (1, 4096),
    (4095, 2),
    (4094, 8195),
    (777, 140_001),
];

/// Bytes that were moved.
pub(super) fn check<P: Platform>(
    device: &Device<'_, P>,
    region: Region,
) -> Result<u64, ConformanceError> {
    let pd = device.alloc_pd()?;
    let from = pd.alloc_buffer(BUFFER, ACCESS)?;
    let to = pd.alloc_buffer(BUFFER, ACCESS)?;
    let mut scene = Scene {
        pair: Pair::new(device, &pd, 0)?,
        seed: 0,
        moved: 0,
    };
    // Without data all that it takes is the doorbell, and the memory that commands use as well.
    let nowhere = SendOp::Write(scene.remote(&to, 0));
    let path = match device.qp_uar() == device.uar() {
        true => Path::Doorbell,
        false => Path::BlueFlame,
    };
    scene.pair.execute(path, nowhere, &[])?;
    for round in 0..ROUNDS {
        scene.between_buffers(&from, &to, round, SHORT)?;
    }
    scene.between_buffers(&from, &to, GUARD, MEMORY_LEN)?;
    let page = region.to_page();
    for (distance, len) in PARTS {
        scene.with_part(&pd, region, page + distance, len, &from, &to)?;
    }
    scene.with_part(&pd, region, 1, MEMORY_LEN - 2, &from, &to)?;
    Ok(scene.moved)
}

struct Scene<'d, P: Platform> {
    pair: Pair<'d, P>,
    seed: u64,
    moved: u64,
}

impl<'d, P: Platform> Scene<'d, P> {
    fn remote(&self, buffer: &Buffer<'_, P>, offset: usize) -> Remote {
        Remote {
            addr: buffer.addr() + offset as u64,
            rkey: buffer.rkey(),
        }
    }

    /// A pattern that was not there before.
    fn next_pattern(&mut self) -> impl Fn(usize) -> u8 + Copy + use<P> {
        self.seed += 1;
        let seed = self.seed;
        move |at| pattern::byte(seed, at)
    }

    fn execute(&mut self, path: Path, op: SendOp<'_>, sge: Sge) -> Result<(), ConformanceError> {
        self.pair.execute(path, op, &[sge])?;
        self.moved += u64::from(sge.length);
        Ok(())
    }

    /// WRITE from one buffer to the other.
    fn between_buffers(
        &mut self,
        from: &Buffer<'_, P>,
        to: &Buffer<'_, P>,
        offset: usize,
        len: usize,
    ) -> Result<(), ConformanceError> {
        let byte = self.next_pattern();
        let path = Path::AllocatedToAllocated;
        fill(from, |at| byte(at.wrapping_sub(offset)));
        fill(to, |_| UNTOUCHED);
        let remote = self.remote(to, offset);
        let sge = piece(from.sge(offset, len))?;
        self.execute(path, SendOp::Write(remote), sge)?;
        let found = find(to, |at| expected(at, offset, len, byte));
        arrived(path, offset, len, found)
    }

    /// All ways between a part of the caller's memory and buffers.
    fn with_part(
        &mut self,
        pd: &Pd<'d, P>,
        region: Region,
        offset: usize,
        len: usize,
        from: &Buffer<'_, P>,
        to: &Buffer<'_, P>,
    ) -> Result<(), ConformanceError> {
        let part = region.part(offset, len);
        // SAFETY: the region is the platform's user's for ever, and there is no reference to it.
        let mr = unsafe { pd.reg_mr(part, ACCESS) }?;
        let mapped = piece(mr.sge(0, len))?;
        let remote_mapped = Remote {
            addr: mr.addr(),
            rkey: mr.rkey(),
        };

        // The part is read, as this end's and as the other's.
        let out = |scene: &mut Self, op: SendOp<'_>, sge: Sge| {
            let byte = scene.next_pattern();
            let path = Path::MappedToAllocated;
            region.bytes().fill(|at| expected(at, offset, len, byte));
            fill(to, |_| UNTOUCHED);
            scene.execute(path, op, sge)?;
            let found = find(to, |at| expected(at, GUARD, len, byte));
            arrived(path, GUARD, len, found)
        };
        let to_remote = self.remote(to, GUARD);
        out(self, SendOp::Write(to_remote), mapped)?;
        let to_local = piece(to.sge(GUARD, len))?;
        out(self, SendOp::Read(remote_mapped), to_local)?;

        // It is written, as the other end's and as this one's.
        let back = |scene: &mut Self, op: SendOp<'_>, sge: Sge| {
            let byte = scene.next_pattern();
            let path = Path::AllocatedToMapped;
            fill(from, |at| byte(at.wrapping_sub(GUARD)));
            region.bytes().fill(|_| UNTOUCHED);
            scene.execute(path, op, sge)?;
            let found = region.bytes().find(|at| expected(at, offset, len, byte));
            arrived(path, offset, len, found)
        };
        let from_local = piece(from.sge(GUARD, len))?;
        back(self, SendOp::Write(remote_mapped), from_local)?;
        let from_remote = self.remote(from, GUARD);
        back(self, SendOp::Read(from_remote), mapped)?;
        deregister(mr)
    }
}

/// Only an order of this module that lies outside is refused.
fn piece(sge: Option<Sge>) -> Result<Sge, ConformanceError> {
    sge.ok_or(ConformanceError::Mr(MrError::Empty))
}

fn deregister<P: Platform>(mr: Mr<'_, P>) -> Result<(), ConformanceError> {
    mr.dereg().map_err(|(_, error)| error.into())
}

/// The byte at a place after a message of a pattern came to `offset`.
fn expected(at: usize, offset: usize, len: usize, byte: impl Fn(usize) -> u8) -> u8 {
    match at.checked_sub(offset) {
        Some(inside) if inside < len => byte(inside),
        _ => UNTOUCHED,
    }
}

fn arrived(
    path: Path,
    offset: usize,
    len: usize,
    found: Result<(), Differs>,
) -> Result<(), ConformanceError> {
    found.map_err(|differs| {
        let Differs {
            at,
            expected,
            found,
        } = differs;
        Violation::Moved {
            path,
            len,
            // Negative in front of the message.
            at: at as isize - offset as isize,
            expected,
            found,
        }
        .into()
    })
}

fn fill<P: Platform>(buffer: &Buffer<'_, P>, byte: impl Fn(usize) -> u8) {
    let mut chunk = [0; 256];
    for start in (0..buffer.len()).step_by(chunk.len()) {
        let len = chunk.len().min(buffer.len() - start);
        for (at, place) in (start..).zip(&mut chunk[..len]) {
            *place = byte(at);
        }
        // It lies inside.
        let _ = buffer.copy_in(start, &chunk[..len]);
    }
}

fn find<P: Platform>(buffer: &Buffer<'_, P>, byte: impl Fn(usize) -> u8) -> Result<(), Differs> {
    let mut chunk = [0; 256];
    for start in (0..buffer.len()).step_by(chunk.len()) {
        let len = chunk.len().min(buffer.len() - start);
        // As above.
        let _ = buffer.copy_out(start, &mut chunk[..len]);
        for (at, &found) in (start..).zip(&chunk[..len]) {
            let expected = byte(at);
            if found != expected {
                return Err(Differs {
                    at,
                    expected,
                    found,
                });
            }
        }
    }
    Ok(())
}
