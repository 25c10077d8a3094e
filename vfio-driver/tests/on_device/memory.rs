//! Memory: huge pages, the limit on mappings, and what the IOMMU keeps the device from.

// UNSAFETY: a platform that misplaces what it maps, memory that is mapped by hand.
#![expect(unsafe_code)]

use std::alloc::Layout;
use std::fs;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bareverbs_core::platform::{Dma, DmaError, Mapping};
use bareverbs_core::{Buffer, Platform, Remote, SendFlags, VectorSet, WcStatus};
use bareverbs_vfio::VfioDevice;

use crate::pair::{ALL, pair, wait};
use crate::{HUGE, open, with_device};

const ENTRY_LIMIT: &str = "/sys/module/vfio_iommu_type1/parameters/dma_entry_limit";

/// The bytes of the process's memory in pages of 2 MiB from the pool.
fn in_huge_pages() -> usize {
    let smaps = fs::read_to_string("/proc/self/smaps").expect("smaps");
    let kib = |line: &str| -> usize {
        let number = line.split_whitespace().nth(1).expect("a number");
        number.parse().expect("a number")
    };
    let lines = smaps
        .lines()
        .filter(|line| line.starts_with("Private_Hugetlb:"));
    lines.map(kib).sum::<usize>() << 10
}

#[test]
#[ignore = "needs a function bound to vfio-pci"]
fn huge_pages_are_used_if_there_are_some() {
    let pool = "/proc/sys/vm/nr_hugepages";
    let before = fs::read_to_string(pool).unwrap();
    for (pages, expected) in [("0", 0), ("8", 2 * HUGE)] {
        fs::write(pool, pages).unwrap();
        let device = open();
        let layout = Layout::from_size_align(2 * HUGE, HUGE).unwrap();
        let dma = device.dma_alloc(layout).unwrap();
        assert_eq!(dma.iova % HUGE as u64, 0);
        for at in (0..2 * HUGE).step_by(4096) {
            // SAFETY: within the memory that was just allocated, which is this test's alone.
            unsafe { dma.ptr.add(at).write(1) };
        }
        assert_eq!(in_huge_pages(), expected, "{pages} pages in the pool");
        // SAFETY: it came from here, and it is unused.
        unsafe { device.dma_free(dma) };
        with_device(device, false, |device| {
            device.query_port().expect("the port");
        });
    }
    fs::write(pool, before).unwrap();
}

#[test]
#[ignore = "needs a function bound to vfio-pci"]
fn the_limit_on_mappings_is_an_error_that_ends() {
    let before = fs::read_to_string(ENTRY_LIMIT).unwrap();
    fs::write(ENTRY_LIMIT, "5").unwrap();
    let device = open();
    fs::write(ENTRY_LIMIT, before).unwrap();
    let mut pages = vec![0u8; 64 << 12];
    let start = NonNull::new(pages.as_mut_ptr()).unwrap();
    let mut mapped = Vec::new();
    let error = loop {
        // SAFETY: within the vector, which outlives the mapping and is not touched before it ends.
        let region = unsafe { start.add(mapped.len() << 13) };
        // SAFETY: as above; no device has its address.
        match unsafe { device.dma_map(NonNull::slice_from_raw_parts(region, 64)) } {
            Ok(mapping) => mapped.push(mapping),
            Err(error) => break error,
        }
    };
    assert_eq!(error, DmaError::TooManyMappings);
    assert_eq!(mapped.len(), 5);
    // One less leaves space for one. SAFETY: mapped above, and no device uses it.
    unsafe { device.dma_unmap(mapped.pop().unwrap()) };
    let layout = Layout::from_size_align(64, 64).unwrap();
    device.dma_alloc(layout).expect("space for a block");
    for mapping in mapped {
        // SAFETY: as above.
        unsafe { device.dma_unmap(mapping) };
    }
}

/// VFIO, except that the device gets a wrong address for the caller's memory while it `misplaces`.
struct Misplacing {
    inner: VfioDevice,
    misplaces: AtomicBool,
}

impl Deref for Misplacing {
    type Target = VfioDevice;

    fn deref(&self) -> &VfioDevice {
        &self.inner
    }
}

/// Nothing is ever mapped so high: the driver gives out the lowest addresses first.
const NOWHERE: u64 = 1 << 46;

// SAFETY: everything is the inner platform's; a wrong address for the device is one that the IOMMU does not map.
unsafe impl Platform for Misplacing {
    fn bar_len(&self) -> usize {
        self.inner.bar_len()
    }
    fn device_id(&self) -> Option<u16> {
        Some(self.inner.device_id())
    }
    fn read_be32(&self, offset: usize) -> u32 {
        self.inner.read_be32(offset)
    }
    fn write_be32(&self, offset: usize, value: u32) {
        self.inner.write_be32(offset, value);
    }
    fn write_be64(&self, offset: usize, value: u64) {
        self.inner.write_be64(offset, value);
    }
    fn dma_alloc(&self, layout: Layout) -> Result<Dma, DmaError> {
        self.inner.dma_alloc(layout)
    }
    unsafe fn dma_free(&self, dma: Dma) {
        // SAFETY: the caller's promise.
        unsafe { self.inner.dma_free(dma) }
    }
    unsafe fn dma_map(&self, region: NonNull<[u8]>) -> Result<Mapping, DmaError> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.dma_map(region) }
    }
    fn page_iova(&self, mapping: &Mapping, index: usize) -> u64 {
        let right = self.inner.page_iova(mapping, index);
        if self.misplaces.load(Ordering::Relaxed) {
            right | NOWHERE
        } else {
            right
        }
    }
    unsafe fn dma_unmap(&self, mapping: Mapping) {
        // SAFETY: the caller's promise.
        unsafe { self.inner.dma_unmap(mapping) }
    }
    fn now(&self) -> Duration {
        self.inner.now()
    }
    fn relax(&self) {
        self.inner.relax();
    }
    fn interrupt_vectors(&self) -> u16 {
        self.inner.interrupt_vectors()
    }
    fn wait_interrupt(&self, vectors: VectorSet, deadline: Duration) -> bool {
        self.inner.wait_interrupt(vectors, deadline)
    }
}

/// Writes through the IOMMU where something is mapped and where nothing is.
#[test]
#[ignore = "needs a function bound to vfio-pci"]
fn memory_that_is_not_mapped_is_out_of_reach() {
    let platform = Misplacing {
        inner: open(),
        misplaces: AtomicBool::new(false),
    };
    with_device(platform, false, |device| {
        let pd = device.alloc_pd().expect("PD");
        let source: Buffer<'_, _> = pd.alloc_buffer(64, ALL).expect("buffer");
        source.copy_in(0, b"secret").unwrap();
        let mut memory = vec![0u8; 8192];
        let region = NonNull::from(&mut memory[..]);
        for misplaced in [false, true] {
            device
                .platform()
                .misplaces
                .store(misplaced, Ordering::Relaxed);
            // SAFETY: the vector outlives the key, and is read only by raw pointer while there is one.
            let mr = unsafe { pd.reg_mr(region, ALL) }.expect("registered");
            let [mut a, mut b] = pair(device, &pd);
            let remote = Remote {
                addr: mr.addr(),
                rkey: mr.rkey(),
            };
            let sge = source.sge(0, 6).unwrap();
            a.qp.send_queue()
                .batch()
                .write(1, SendFlags::SIGNALED, remote, &[sge][..])
                .unwrap();
            let status = wait(device, &mut a.cq);
            // SAFETY: the vector is there; the device may write to it, but has said that it is done.
            let arrived = unsafe { region.cast::<[u8; 6]>().read_volatile() } == *b"secret";
            if !misplaced {
                assert_eq!((status, arrived), (WcStatus::Success, true));
                // SAFETY: as above.
                unsafe { region.cast::<[u8; 6]>().write_volatile([0; 6]) };
                continue;
            }
            // Blocked, and reported to its requester.
            assert_eq!((status, arrived), (WcStatus::RemOpErr, false));
            // The same for what the device fetches, from the other side.
            let [mut c, _d] = pair(device, &pd);
            let sge = mr.sge(0, 6).unwrap();
            let sink = Remote {
                addr: source.addr(),
                rkey: source.rkey(),
            };
            c.qp.send_queue()
                .batch()
                .write(2, SendFlags::SIGNALED, sink, &[sge][..])
                .unwrap();
            assert_eq!(wait(device, &mut c.cq), WcStatus::LocProtErr);
            // The function itself goes on.
            b.cq.arm(false);
            device.query_port().expect("the port");
            device.poll().expect("in good health");
        }
    });
}
