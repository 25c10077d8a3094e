//! The driver on a function that VFIO gives it: every test here needs one, bound to vfio-pci and named by the environment
//! variable `BAREVERBS_DEVICE` (`vfio:0000:01:00.0`), root, and the function for itself; one needs a second function,
//! `BAREVERBS_OTHER_DEVICE`. `cargo rig vfio` runs them in a guest:
//!
//! ```text
//! BAREVERBS_DEVICE=vfio:0000:01:00.0 BAREVERBS_OTHER_DEVICE=vfio:0000:02:00.0 \
//!     on_device --ignored --test-threads=1
//! ```

// UNSAFETY: a platform that misplaces what it maps, memory that is mapped by hand.
#![expect(unsafe_code)]

use std::alloc::Layout;
use std::fs;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::Command;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bareverbs_core::platform::{Dma, DmaError, Mapping};
use bareverbs_core::{
    Access, AhAttr, Buffer, Config, Cq, CqInit, Device, DeviceError, Gid, GidEntry, Inline, Mtu,
    Pd, Platform, Qp, QpAttr, QpAttrMask, QpCap, QpInitAttr, QpState, QpType, Rc, Remote,
    Resources, RoceVersion, SendFlags, VectorSet, WcStatus,
};
use bareverbs_vfio::{OpenError, Options, PciAddress, Rebinding, Removal, VfioDevice};
use vmm_sys_util::poll::{EpollContext, EpollEvents};

const LONG: Duration = Duration::from_secs(30);
const HUGE: usize = 2 << 20;
const ENTRY_LIMIT: &str = "/sys/module/vfio_iommu_type1/parameters/dma_entry_limit";

fn address() -> PciAddress {
    let name = std::env::var("BAREVERBS_DEVICE").expect("BAREVERBS_DEVICE names the function");
    let address = name.strip_prefix("vfio:").expect("vfio:ADDRESS");
    address.parse().expect("a PCI address")
}

/// Another function, for tests that need two: `BAREVERBS_OTHER_DEVICE`.
fn other_address() -> PciAddress {
    let name = std::env::var("BAREVERBS_OTHER_DEVICE").expect("another function");
    let address = name.strip_prefix("vfio:").expect("vfio:ADDRESS");
    address.parse().expect("a PCI address")
}

fn open() -> VfioDevice {
    VfioDevice::open(address()).expect("opened")
}

fn sysfs(name: &str) -> PathBuf {
    PathBuf::from(format!("/sys/bus/pci/devices/{}/{name}", address()))
}

/// Whether the function may start DMA, as everybody can see.
fn is_bus_master() -> bool {
    let config = fs::read(sysfs("config")).expect("configuration space");
    config[4] & 4 != 0
}

/// What the kernel counts as locked for this process, in bytes: by a container as locked, by an iommufd as pinned.
fn locked() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("status");
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let words = line.expect(name).split_whitespace().next();
        words.expect("a number").parse::<usize>().expect("a number")
    };
    (kib("VmLck:") + kib("VmPin:")) << 10
}

/// What is left of the device in this process, as the kernel tells everybody: what is pinned for it, mapped, and open.
fn traces() -> Vec<String> {
    let status = fs::read_to_string("/proc/self/status").expect("status");
    let pinned = status.lines().filter(|line| line.starts_with("VmPin:"));
    let pinned = pinned.filter(|line| !line.ends_with(" 0 kB"));
    let maps = fs::read_to_string("/proc/self/maps").expect("maps");
    let maps = maps.lines().filter(|line| line.contains("vfio"));
    let open = fs::read_dir("/proc/self/fd").expect("descriptors");
    let open = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let open = open.map(|link| link.to_string_lossy().into_owned());
    let open = open.filter(|link| link.contains("vfio") || link.contains("iommu"));
    pinned.chain(maps).map(str::to_string).chain(open).collect()
}

/// Runs `work` with a device that was brought up.
fn with_device<P: Platform, T>(
    platform: P,
    interrupts: bool,
    work: impl FnOnce(&Device<'_, P>) -> T,
) -> T {
    let mut config = Config::DEFAULT;
    config.interrupts = interrupts;
    with_device_as(platform, config, work)
}

fn with_device_as<P: Platform, T>(
    platform: P,
    config: Config,
    work: impl FnOnce(&Device<'_, P>) -> T,
) -> T {
    let mut resources = Box::new(Resources::<8, 8, 1, 256>::new());
    let device = Device::open(platform, config, resources.storage()).expect("brought up");
    work(&device)
}

#[test]
#[ignore = "needs a function bound to vfio-pci"]
fn nothing_is_left_behind() {
    assert!(!is_bus_master());
    assert_eq!(traces(), [""; 0]);
    let before = locked();
    for _ in 0..3 {
        let device = open();
        assert!(is_bus_master());
        let dma = device.dma_alloc(Layout::from_size_align(100, 64).unwrap());
        let dma = dma.expect("memory");
        assert!(locked() >= before + HUGE, "{}", locked());
        // The group, the container and the function; the BAR.
        assert!(traces().len() >= 4, "{:?}", traces());
        // Never freed: goes with the device.
        drop(device);
        let _ = dma;
        assert!(!is_bus_master());
        assert_eq!(locked(), before);
        assert_eq!(traces(), [""; 0]);
    }
    // Nor of a device that worked, with memory of the caller's.
    let mut memory = vec![0u8; 1 << 20];
    let region = NonNull::from(&mut memory[..]);
    with_device(open(), false, |device| {
        let pd = device.alloc_pd().expect("PD");
        // SAFETY: the vector outlives the key, and nobody touches it meanwhile.
        let _mr = unsafe { pd.reg_mr(region, ALL) }.expect("registered");
        let _ends = pair(device, &pd);
        assert!(locked() >= before + (1 << 20));
    });
    assert!(!is_bus_master());
    assert_eq!(locked(), before);
    assert_eq!(traces(), [""; 0]);
    // A panic takes the same way out.
    let panicked = std::panic::catch_unwind(|| {
        let _device = open();
        panic!("as programs do");
    });
    assert!(panicked.is_err());
    assert!(!is_bus_master());
    assert_eq!(locked(), before);
    assert_eq!(traces(), [""; 0]);
}

/// The model logs a warning, which fails the rig, for each event that asserts INTx.
#[test]
#[ignore = "needs a function bound to vfio-pci"]
fn event_queues_that_are_polled_do_not_assert_intx() {
    let intx_disabled = || {
        let config = fs::read(sysfs("config")).expect("configuration space");
        config[5] & 4 != 0
    };
    let device = open();
    // The function's own register, not what vfio-pci shows this process. A virtual function has no interrupt pin, and on a
    // card its bit reads 0 (SR-IOV 1.1, 3.4.1.3).
    assert!(intx_disabled() || sysfs("physfn").exists());
    // Its event queues fire, for one when commands complete.
    with_device(device, false, |device| {
        device.query_port().expect("the port");
    });
}

#[test]
#[ignore = "needs a function bound to vfio-pci"]
fn a_function_has_one_user() {
    let _device = open();
    let error = VfioDevice::open(address()).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
}

/// How much of the process's memory is in pages of 2 MiB from the pool.
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
        // SAFETY: it came from here, and nobody uses it.
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
        // SAFETY: as above; no device was told of it.
        match unsafe { device.dma_map(NonNull::slice_from_raw_parts(region, 64)) } {
            Ok(mapping) => mapped.push(mapping),
            Err(error) => break error,
        }
    };
    assert_eq!(error, DmaError::TooManyMappings);
    assert_eq!(mapped.len(), 5);
    // One less makes room for one.
    // SAFETY: mapped above, and no device uses it.
    unsafe { device.dma_unmap(mapped.pop().unwrap()) };
    let layout = Layout::from_size_align(64, 64).unwrap();
    device.dma_alloc(layout).expect("room for a block");
    for mapping in mapped {
        // SAFETY: as above.
        unsafe { device.dma_unmap(mapping) };
    }
}

/// VFIO, except that the device is told a wrong place for the caller's memory while it `misplaces`.
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

// SAFETY: everything is the inner platform's; a wrong address for the device is one that the IOMMU knows nothing at.
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

const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ);

/// One of two QPs of one function, which are connected to each other.
struct End<'d, P: Platform> {
    qp: Qp<'d, P, Rc>,
    cq: Cq<'d, P>,
}

fn end<'d, P: Platform>(device: &'d Device<'d, P>, pd: &Pd<'d, P>) -> End<'d, P> {
    let cq = device.create_cq(CqInit::new(15)).expect("CQ");
    let mut init = QpInitAttr {
        send_cq: &cq,
        recv_cq: &cq,
        srq: None,
        cap: QpCap {
            max_send_wr: 4,
            max_recv_wr: 4,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 16,
        },
        sq_sig_all: true,
    };
    let qp = pd.create_qp::<Rc>(&mut init).expect("QP");
    End { qp, cq }
}

/// Two ends on one function.
fn pair<'d, P: Platform>(device: &'d Device<'d, P>, pd: &Pd<'d, P>) -> [End<'d, P>; 2] {
    let mut ends = [end(device, pd), end(device, pd)];
    let mac = device.mac().expect("MAC");
    let gid = Gid::link_local(mac);
    let index = match device.find_gid(&gid, RoceVersion::V2, None) {
        Some(index) => index,
        None => {
            let index = device.free_gid_index().expect("room for an address");
            let entry = GidEntry::roce_v2(gid, mac);
            device.set_gid(index, entry).expect("an address");
            index
        }
    };
    let qpns = [ends[1].qp.qpn(), ends[0].qp.qpn()];
    for (end, peer) in ends.iter_mut().zip(qpns) {
        let mut attr = QpAttr {
            path_mtu: Mtu::B1024,
            dest_qp_num: peer,
            qp_access_flags: ALL,
            ah_attr: AhAttr {
                dgid: gid,
                sgid_index: index,
                hop_limit: 64,
                dmac: mac,
                ..AhAttr::default()
            },
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 1,
            port_num: 1,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            ..QpAttr::DEFAULT
        };
        for to in [QpState::Init, QpState::Rtr, QpState::Rts] {
            attr.qp_state = to;
            let row = bareverbs_core::qp::transition(Rc::KIND, end.qp.state(), to);
            let required = row.expect("a transition").required;
            end.qp
                .modify(&attr, required | QpAttrMask::STATE)
                .expect("modified");
        }
    }
    ends
}

fn wait<P: Platform>(device: &Device<'_, P>, cq: &mut Cq<'_, P>) -> WcStatus {
    let deadline = device.platform().now() + LONG;
    loop {
        if let Some(completion) = cq.poll().expect("the CQ works") {
            return completion.to_wc().status;
        }
        assert!(device.wait(deadline).expect("the device works"), "late");
    }
}

/// Sends from one end to the other, and compares what arrives.
fn send<P: Platform>(
    device: &Device<'_, P>,
    pd: &Pd<'_, P>,
    ends: &mut [End<'_, P>; 2],
    word: &[u8; 8],
) {
    let buffer = pd.alloc_buffer(64, ALL).expect("buffer");
    let sge = buffer.sge(0, 64).unwrap();
    let [a, b] = ends;
    b.qp.recv_queue().post(1, &[sge]).expect("posted");
    a.qp.send_queue()
        .batch()
        .send(1, SendFlags::SIGNALED, Inline(word))
        .expect("posted");
    for end in [a, b] {
        assert_eq!(wait(device, &mut end.cq), WcStatus::Success);
    }
    let mut arrived = [0; 8];
    buffer.copy_out(0, &mut arrived).unwrap();
    assert_eq!(&arrived, word);
}

/// Each has an address space of its own, with the same addresses in it; what befalls one is nothing to the other.
#[test]
#[ignore = "needs two functions bound to vfio-pci"]
fn two_devices_in_one_process_keep_to_themselves() {
    let other = || VfioDevice::open(other_address()).expect("opened");
    let before = locked();
    let layout = Layout::from_size_align(4096, 4096).unwrap();
    let [first, second] = [open(), other()].map(|device| {
        let dma = device.dma_alloc(layout).expect("memory");
        (device, dma)
    });
    assert_eq!(first.1.iova, second.1.iova);
    assert_ne!(first.1.ptr, second.1.ptr);
    drop(first);
    drop(second);
    with_device(open(), false, |one| {
        let pd = one.alloc_pd().expect("PD");
        let mut ends = pair(one, &pd);
        send(one, &pd, &mut ends, b"at first");
        let alone = locked();
        for round in 0..3 {
            with_device(other(), round == 1, |two| {
                let pd2 = two.alloc_pd().expect("PD");
                let mut ends2 = pair(two, &pd2);
                send(one, &pd, &mut ends, b"to one..");
                send(two, &pd2, &mut ends2, b"to two..");
                assert!(locked() > alone);
            });
            // The other one was closed and reset.
            assert_eq!(locked(), alone);
            send(one, &pd, &mut ends, b"one more");
        }
    });
    assert_eq!(locked(), before);
    assert_eq!(traces(), [""; 0]);
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
            // Blocked, and told to the one who asked for it.
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

/// With interrupts, and no look at the device's health that would wake whoever sleeps for ever.
const ASLEEP: Config = {
    let mut config = Config::DEFAULT;
    config.interrupts = true;
    config.health_interval = Duration::from_secs(3600);
    config
};

/// A program with an event loop of its own sleeps until the channel's descriptor is readable.
#[test]
#[ignore = "needs a function bound to vfio-pci"]
fn interrupts_come_through_a_descriptor_that_can_be_waited_for() {
    let platform = VfioDevice::open_with(address(), Options::with_vectors(1)).expect("opened");
    assert_eq!(platform.interrupt_vectors(), 1);
    let mut channel = platform.event_channel(VectorSet::ALL).expect("channel");
    with_device_as(platform, ASLEEP, |device| {
        let pd = device.alloc_pd().expect("PD");
        let [mut a, mut b] = pair(device, &pd);
        let buffer = pd.alloc_buffer(64, ALL).expect("buffer");
        let epoll = EpollContext::<u32>::new().unwrap();
        epoll.add(&channel, 0).unwrap();
        let woken = |patience| {
            let events = EpollEvents::new();
            epoll
                .wait_timeout(&events, patience)
                .unwrap()
                .iter()
                .count()
                == 1
        };
        let mut looks = 0;
        for round in 0..20 {
            let sge = buffer.sge(0, 64).unwrap();
            b.qp.recv_queue().post(round, &[sge]).unwrap();
            b.cq.arm(false);
            a.qp.send_queue()
                .batch()
                .send(round, SendFlags::SIGNALED, Inline(b"wake up"))
                .unwrap();
            // What came before, commands' interrupts among it, wakes as well.
            while !b.cq.take_event() {
                assert!(woken(LONG), "round {round}");
                assert!(channel.acknowledge().unwrap());
                device.poll().unwrap();
                looks += 1;
            }
            assert_eq!(sleep(device, &mut b.cq), round);
            assert_eq!(sleep(device, &mut a.cq), round);
        }
        // One event for each of the two CQs in a round.
        assert!(looks <= 2 * 20 + 1, "it wakes for nothing");
        // Then nothing happens, until the deadline.
        channel.acknowledge().unwrap();
        device.poll().unwrap();
        assert!(!woken(Duration::ZERO));
        let deadline = device.platform().now() + Duration::from_millis(50);
        channel.set_deadline(Some(deadline)).unwrap();
        assert!(woken(LONG));
        assert!(device.platform().now() >= deadline);
    });
}

/// Threads that sleep for the same vector, each in its own CQ's events: no slices of sleep that could hide an interrupt
/// which one has taken from the other.
#[test]
#[ignore = "needs a function bound to vfio-pci"]
fn threads_share_a_vector() {
    for (vectors, queues) in [(1, 0), (3, 2)] {
        let platform = VfioDevice::open_with(address(), Options::with_vectors(vectors));
        let mut config = ASLEEP;
        config.completion_event_queues = queues;
        with_device_as(platform.expect("opened"), config, |device| {
            let pd = device.alloc_pd().expect("PD");
            let [a, b] = pair(device, &pd);
            std::thread::scope(|scope| {
                for (mut end, first) in [(a, true), (b, false)] {
                    let pd = &pd;
                    scope.spawn(move || {
                        let buffer = pd.alloc_buffer(64, ALL).expect("buffer");
                        let sge = buffer.sge(0, 64).unwrap();
                        end.qp.recv_queue().post(0, &[sge]).unwrap();
                        let mut turn = first;
                        for round in 0..100 {
                            if turn {
                                end.qp
                                    .send_queue()
                                    .batch()
                                    .send(1, SendFlags::SIGNALED, Inline(b"your turn"))
                                    .unwrap();
                                assert_eq!(sleep(device, &mut end.cq), 1, "round {round}");
                            } else {
                                assert_eq!(sleep(device, &mut end.cq), 0, "round {round}");
                                end.qp.recv_queue().post(0, &[sge]).unwrap();
                            }
                            turn = !turn;
                        }
                    });
                }
            });
        });
    }
}

/// Sleeps until there is a completion, and says which work request's.
fn sleep<P: Platform>(device: &Device<'_, P>, cq: &mut Cq<'_, P>) -> u64 {
    let deadline = device.platform().now() + LONG;
    loop {
        for arm in [true, false] {
            if let Some(completion) = cq.poll().expect("the CQ works") {
                assert_eq!(completion.to_wc().status, WcStatus::Success);
                return completion.wr_id();
            }
            if arm {
                cq.take_event();
                cq.arm(false);
            }
        }
        assert!(cq.wait_event(deadline).expect("the device works"), "late");
    }
}

/// What every waiter does until it is told that the device is gone.
fn wait_for_the_end<T>(mut step: impl FnMut() -> Result<T, DeviceError>) -> DeviceError {
    let start = Instant::now();
    loop {
        if let Err(error) = step() {
            return error;
        }
        assert!(start.elapsed() < LONG, "nobody said anything");
    }
}

/// The kernel wants the function back while some sleep, some poll, and some work: each hears of it. The kernel wants it
/// back because it is unbound, or because of what the shell command in `BAREVERBS_LEAVE` does.
#[test]
#[ignore = "needs a function bound to vfio-pci"]
fn whoever_waits_hears_that_the_function_is_to_leave() {
    let from_outside = std::env::var("BAREVERBS_LEAVE").ok();
    for vectors in [0, 1] {
        let platform = VfioDevice::open_with(address(), Options::with_vectors(vectors));
        let platform = platform.expect("opened");
        assert_eq!(platform.removal(), None);
        let plan = Rebinding::to_kernel(address()).expect("a way back");
        let leaver = with_device(platform, vectors != 0, |device| {
            let pd = device.alloc_pd().expect("PD");
            let [mut a, mut b] = pair(device, &pd);
            let buffer = pd.alloc_buffer(64, ALL).expect("buffer");
            let mut idle = device.create_cq(CqInit::new(15)).expect("CQ");
            let far = device.platform().now() + Duration::from_secs(3600);
            let commands = || match device.query_port() {
                Ok(_) => Ok(()),
                Err(error) => {
                    // A command's error has more to say; what it says in the end is the same.
                    assert!(!format!("{error}").is_empty());
                    device.poll()
                }
            };
            let mut rounds = 0;
            // Sends to the other queue pair, which takes each.
            let mut traffic = || {
                let sge = buffer.sge(0, 64).expect("in the buffer");
                b.qp.recv_queue().post(rounds, &[sge]).expect("room");
                let mut batch = a.qp.send_queue().batch();
                batch
                    .send(rounds, SendFlags::SIGNALED, Inline(b"work"))
                    .expect("room");
                drop(batch);
                for cq in [&mut a.cq, &mut b.cq] {
                    loop {
                        if let Some(completion) = cq.poll().expect("the CQ works") {
                            assert_eq!(completion.to_wc().status, WcStatus::Success);
                            break;
                        }
                        device.wait(far)?;
                    }
                }
                rounds += 1;
                Ok(())
            };
            traffic().expect("works before");
            // Blocks until the device is dropped.
            let leaver = match &from_outside {
                None => Some(std::thread::spawn(move || plan.carry_out())),
                Some(command) => {
                    let leaving = Command::new("sh").args(["-c", command]).status();
                    assert!(leaving.expect("a shell").success(), "{command}");
                    None
                }
            };
            let errors = std::thread::scope(|scope| {
                idle.arm(false);
                let waiters = [
                    scope.spawn(|| wait_for_the_end(|| idle.wait_event(far))),
                    scope.spawn(|| wait_for_the_end(|| device.wait(far))),
                    scope.spawn(|| wait_for_the_end(|| device.poll())),
                    scope.spawn(|| wait_for_the_end(commands)),
                    scope.spawn(|| wait_for_the_end(traffic)),
                ];
                waiters.map(|waiter| waiter.join().expect("its error"))
            });
            assert_eq!(errors, [DeviceError::Gone; 5]);
            println!("{} waiters, {rounds} rounds of traffic", errors.len());
            assert_eq!(device.platform().removal(), Some(Removal::Requested));
            if let Some(leaver) = &leaver {
                assert!(!leaver.is_finished());
            }
            leaver
        });
        let Some(leaver) = leaver else {
            // Not to come back.
            return;
        };
        leaver.join().unwrap().expect("unbound");
        assert!(matches!(
            VfioDevice::open(address()).unwrap_err(),
            OpenError::NotBound { .. } | OpenError::BoundTo { .. }
        ));
        let plan = Rebinding::to_vfio(address()).expect("a way to vfio-pci");
        plan.carry_out().expect("bound");
        drop(open());
    }
}

/// Somebody resets the function while it works.
#[test]
#[ignore = "needs a function bound to vfio-pci"]
fn a_reset_behind_the_drivers_back_is_told() {
    with_device(open(), false, |device| {
        fs::write(sysfs("reset"), "1").expect("reset");
        let deadline = device.platform().now() + LONG;
        let error = loop {
            match device.wait(deadline) {
                Ok(true) => {}
                Ok(false) => panic!("nobody noticed"),
                Err(error) => break error,
            }
        };
        assert_eq!(error, DeviceError::WasReset);
        assert!(device.query_port().is_err());
    });
    // It works again for the next one.
    with_device(open(), false, |device| {
        device.query_port().expect("the port");
    });
}
