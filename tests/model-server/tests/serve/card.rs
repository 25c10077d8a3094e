//! A function of the server as the driver's platform: registers, memory and interrupts all by vfio-user messages.
//!
//! Every allocation is a separate DMA map, another offset of the same file, as a client behind an IOMMU has them.

// UNSAFETY: implements the driver's platform, and shares memory with the server.
#![expect(unsafe_code)]

use bareverbs_core::platform::{Dma, DmaError, Mapping, Platform, VectorSet};
use memmap2::{MmapOptions, MmapRaw};
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use vfio_user::Client;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

pub(crate) const BAR0: u32 = 0;
pub(crate) const CONFIG: u32 = 7;
pub(crate) const MSIX: u32 = 2;
/// Interrupt data by descriptor, and none; the action is always to trigger.
pub(crate) const BY_EVENT: u32 = 1 << 2 | 1 << 5;
pub(crate) const NO_DATA: u32 = 1 | 1 << 5;
pub(crate) const VECTORS: u16 = 16;
const PAGE: u64 = 4096;
const MEMORY: u64 = 64 << 20;
/// Device addresses are offsets in the file, moved up by this.
pub(crate) const IOVA: u64 = 0x12_0000_0000;

/// Memory in a file without a name, in which pieces are allocated.
pub(crate) struct Arena {
    pub(crate) file: File,
    /// Part of what the file is called in `/proc`.
    pub(crate) name: String,
    map: MmapRaw,
    /// Free pieces: offset and length.
    free: BTreeMap<u64, u64>,
}

impl Arena {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "connectx-memory-{}-{}.",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(&name);
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .expect("a file");
        std::fs::remove_file(&path).expect("it was there");
        file.set_len(MEMORY).expect("space");
        let map = MmapOptions::new()
            .len(MEMORY as usize)
            .map_raw(&file)
            .expect("a mapping");
        Self {
            file,
            name,
            map,
            free: BTreeMap::from([(0, MEMORY)]),
        }
    }

    /// A piece at a multiple of `align`.
    fn take(&mut self, len: u64, align: u64) -> Option<u64> {
        let (start, size, at) = self.free.iter().find_map(|(&start, &size)| {
            let at = start.next_multiple_of(align);
            (at + len <= start + size).then_some((start, size, at))
        })?;
        self.free.remove(&start);
        if at > start {
            self.free.insert(start, at - start);
        }
        if at + len < start + size {
            self.free.insert(at + len, start + size - at - len);
        }
        Some(at)
    }

    fn give(&mut self, at: u64, len: u64) {
        let (mut at, mut len) = (at, len);
        if let Some((&before, &size)) = self.free.range(..at).next_back()
            && before + size == at
        {
            self.free.remove(&before);
            at = before;
            len += size;
        }
        if let Some(size) = self.free.remove(&(at + len)) {
            len += size;
        }
        self.free.insert(at, len);
    }

    fn ptr(&self, at: u64) -> NonNull<u8> {
        NonNull::new(self.map.as_mut_ptr().wrapping_add(at as usize)).expect("a mapping")
    }
}

/// One function, held by this client.
pub(crate) struct Card {
    client: Mutex<Client>,
    arena: Mutex<Arena>,
    events: Vec<EventFd>,
    started: Instant,
}

impl Card {
    /// Connects to a server's socket, and switches decoding, bus mastering and interrupts on.
    pub(crate) fn open(socket: &Path) -> Self {
        let client = Client::new(socket).expect("a server");
        let card = Self {
            client: Mutex::new(client),
            arena: Mutex::new(Arena::new()),
            events: (0..VECTORS)
                .map(|_| EventFd::new(EFD_NONBLOCK).expect("a descriptor"))
                .collect(),
            started: Instant::now(),
        };
        let mut client = card.client();
        client
            .region_write(CONFIG, 4, &[6, 4])
            .expect("the command register");
        for (vector, event) in (0..).zip(&card.events) {
            client
                .set_irqs(MSIX, BY_EVENT, vector, 1, &[event.as_raw_fd()])
                .expect("a vector");
        }
        drop(client);
        card
    }

    pub(crate) fn client(&self) -> MutexGuard<'_, Client> {
        self.client.lock().unwrap()
    }

    pub(crate) fn event(&self, vector: usize) -> &EventFd {
        &self.events[vector]
    }

    /// The name in `/proc` of the file behind its memory.
    pub(crate) fn memory_name(&self) -> String {
        self.arena.lock().unwrap().name.clone()
    }

    /// Vendor and device.
    pub(crate) fn identity(&self) -> (u16, u16) {
        let mut ids = [0; 4];
        self.client()
            .region_read(CONFIG, 0, &mut ids)
            .expect("configuration space");
        let [a, b, c, d] = ids;
        (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]))
    }

    /// Reads a register; fails when the server is gone.
    pub(crate) fn register(&self, offset: u64) -> Result<u32, vfio_user::Error> {
        let mut data = [0; 4];
        self.client().region_read(BAR0, offset, &mut data)?;
        Ok(u32::from_be_bytes(data))
    }
}

// SAFETY: registers are reached by one message each, in order, and the server answers a message when it has done it; memory
// comes from an arena that keeps a piece until it is given back, and the server reaches it by the map made for it.
unsafe impl Platform for Card {
    fn bar_len(&self) -> usize {
        32 << 20
    }

    fn read_be32(&self, offset: usize) -> u32 {
        // A server that is gone is a card that is.
        self.register(offset as u64).unwrap_or(!0)
    }

    fn write_be32(&self, offset: usize, value: u32) {
        std::sync::atomic::fence(Ordering::SeqCst);
        // Reads detect whether the device is still present.
        let _ = self
            .client()
            .region_write(BAR0, offset as u64, &value.to_be_bytes());
    }

    fn write_be64(&self, offset: usize, value: u64) {
        std::sync::atomic::fence(Ordering::SeqCst);
        let _ = self
            .client()
            .region_write(BAR0, offset as u64, &value.to_be_bytes());
    }

    fn dma_alloc(&self, layout: Layout) -> Result<Dma, DmaError> {
        let len = (layout.size().max(1) as u64).next_multiple_of(PAGE);
        let mut arena = self.arena.lock().unwrap();
        let at = arena
            .take(len, PAGE.max(layout.align() as u64))
            .ok_or(DmaError::OutOfMemory)?;
        let ptr = arena.ptr(at);
        // SAFETY: the piece is allocated to this caller only, and mapped for no device yet.
        unsafe { ptr.write_bytes(0, len as usize) };
        let iova = IOVA + at;
        self.client()
            .dma_map(at, iova, len, arena.file.as_raw_fd())
            .map_err(|_| DmaError::Os(5))?;
        Ok(Dma { ptr, iova, layout })
    }

    unsafe fn dma_free(&self, dma: Dma) {
        let len = (dma.layout.size().max(1) as u64).next_multiple_of(PAGE);
        // A server that has ended has no mappings.
        let _ = self.client().dma_unmap(dma.iova, len);
        self.arena.lock().unwrap().give(dma.iova - IOVA, len);
    }

    unsafe fn dma_map(&self, _: NonNull<[u8]>) -> Result<Mapping, DmaError> {
        // Only what lies in a file can be shared with the server.
        Err(DmaError::Os(95))
    }

    fn page_iova(&self, _: &Mapping, _: usize) -> u64 {
        unreachable!("nothing is ever mapped")
    }

    unsafe fn dma_unmap(&self, _: Mapping) {}

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn relax(&self) {
        std::thread::yield_now();
    }

    fn interrupt_vectors(&self) -> u16 {
        VECTORS
    }

    /// For one thread, which is all that the tests here have: reading the event takes it from any other.
    fn wait_interrupt(&self, vectors: VectorSet, deadline: Duration) -> bool {
        let waited: Vec<_> = (0..)
            .zip(&self.events)
            .filter(|&(vector, _)| vectors.contains(vector))
            .map(|(_, event)| event)
            .collect();
        let left = deadline.saturating_sub(self.now());
        let epoll = Epoll::new().expect("epoll");
        for event in &waited {
            epoll
                .ctl(
                    ControlOperation::Add,
                    event.as_raw_fd(),
                    EpollEvent::new(EventSet::IN, 0),
                )
                .expect("epoll");
        }
        // Rounded up, so that a short time is no busy loop. A signal may end it early.
        let timeout = i32::try_from(left.as_millis()).map_or(i32::MAX, |left| left + 1);
        let _ = epoll.wait(timeout, &mut [EpollEvent::default()]);
        waited
            .iter()
            .fold(false, |any, event| event.read().is_ok() | any)
    }
}
