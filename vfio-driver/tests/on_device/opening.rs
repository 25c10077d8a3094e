//! Opening and closing: one user of a function, and nothing left behind.

// UNSAFETY: memory that is mapped by hand.
#![expect(unsafe_code)]

use std::alloc::Layout;
use std::fs;
use std::ptr::NonNull;

use bareverbs_core::Platform;
use bareverbs_vfio::{OpenError, PciAddress, VfioDevice};

use crate::pair::{ALL, pair, send};
use crate::{HUGE, address, open, sysfs, with_device};

/// Another function, for tests that need two: `BAREVERBS_OTHER_DEVICE`.
fn other_address() -> PciAddress {
    let name = std::env::var("BAREVERBS_OTHER_DEVICE").expect("another function");
    let address = name.strip_prefix("vfio:").expect("vfio:ADDRESS");
    address.parse().expect("a PCI address")
}

/// `true` if the function may start DMA, as other processes see it.
fn is_bus_master() -> bool {
    let config = fs::read(sysfs("config")).expect("configuration space");
    config[4] & 4 != 0
}

/// The bytes that the kernel counts as locked for this process: by a container as locked, by an iommufd as pinned.
fn locked() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("status");
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let words = line.expect(name).split_whitespace().next();
        words.expect("a number").parse::<usize>().expect("a number")
    };
    (kib("VmLck:") + kib("VmPin:")) << 10
}

/// The traces of the device in this process, as the kernel reports them: what is pinned for it, mapped, and open.
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
        // SAFETY: the vector outlives the key, and it is not accessed meanwhile.
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

/// Each has its own address space, with the same addresses in it; a fault of one has no effect on the other.
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
            // The other function was closed and reset.
            assert_eq!(locked(), alone);
            send(one, &pd, &mut ends, b"one more");
        }
    });
    assert_eq!(locked(), before);
    assert_eq!(traces(), [""; 0]);
}
