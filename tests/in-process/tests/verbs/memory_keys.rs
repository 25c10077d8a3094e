//! The memory that a key opens, and the time until it is closed. Wrong use of keys is with the errors.

use bareverbs_core::{Access, MrError, Rc, Remote, WcFlags, WcOpcode, WcStatus};

use crate::lab::{ALL, SIGNALED, got, lab, lab_with, ok, pattern};

/// `log_max_mrw_sz`: the firmware said no with a syndrome that no list explains.
#[test]
fn a_region_beyond_the_largest_is_for_the_firmware_to_refuse() {
    #![expect(unsafe_code)]
    let small = |mut card: connectx_model::Config| {
        for caps in [&mut card.general, &mut card.general_max] {
            caps.set_log_max_mrw_sz(20);
        }
        card
    };
    const LIMIT: usize = 1 << 20;
    let too_long = MrError::TooLong {
        len: LIMIT + 1,
        limit: LIMIT as u64,
    };
    lab_with(small, |lab| {
        let side = &lab.sides[0];
        assert_eq!(side.device.capabilities().max_mr_size(), LIMIT as u64);
        drop(
            side.pd
                .alloc_buffer(LIMIT, ALL)
                .expect("as long as it may be"),
        );
        let refused = side.pd.alloc_buffer(LIMIT + 1, ALL).unwrap_err();
        assert_eq!(refused, too_long);
        assert_eq!(
            refused.to_string(),
            "a region of 1048577 bytes, and up to 1048576 are possible"
        );
        // UNSAFETY: the memory outlives its regions, and no reference to it is held while they exist.
        let mut memory = vec![0_u8; LIMIT + 1];
        let region = std::ptr::NonNull::from(&mut memory[..]);
        // SAFETY: as above.
        let refused = unsafe { side.pd.reg_mr(region, ALL) }.unwrap_err();
        assert_eq!(refused, too_long);
    });
    // The cards that are known have no limit.
    lab(|lab| {
        let caps = lab.sides[0].device.capabilities();
        assert_eq!(
            (caps.hca.log_max_mrw_sz(), caps.max_mr_size()),
            (64, u64::MAX)
        );
    });
}

/// Memory of the caller, registered where it lies and under other addresses.
#[test]
fn memory_of_the_caller() {
    #![expect(unsafe_code)]
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Rc>();
        // UNSAFETY: the memory outlives its regions, and no reference to it is held while they exist.
        let mut memory = vec![0_u8; 5 * 4096 + 123];
        let region = std::ptr::NonNull::from(&mut memory[77..]);
        // SAFETY: as above.
        let mr = unsafe { lab.sides[0].pd.reg_mr(region, ALL) }.expect("registered");
        assert_eq!(
            (mr.addr(), mr.len()),
            (region.cast::<u8>().as_ptr() as u64, 5 * 4096 + 46)
        );
        let elsewhere = 0x7000_0000_0000 | (mr.addr() & 0xfff);
        // SAFETY: as above.
        let same =
            unsafe { lab.sides[0].pd.reg_mr_iova(region, elsewhere, ALL) }.expect("registered");
        b.fill(0, 20_000, 1);
        let (remote, sge) = (b.remote(0), mr.sge(10, 20_000).unwrap());
        a.qp.send_queue()
            .batch()
            .read(1, SIGNALED, remote, &[sge])
            .unwrap();
        ok(lab.wait(&mut a.cq), 1, WcOpcode::RdmaRead);
        let sge = b.sge(30_000, 20_000);
        let remote = Remote {
            addr: elsewhere + 10,
            rkey: same.rkey(),
        };
        b.qp.send_queue()
            .batch()
            .read(2, SIGNALED, remote, &[sge])
            .unwrap();
        ok(lab.wait(&mut b.cq), 2, WcOpcode::RdmaRead);
        b.assert_pattern(30_000, 20_000, 1);
        mr.dereg().map_err(|(_, error)| error).unwrap();
        let remote = Remote {
            addr: elsewhere,
            rkey: same.rkey(),
        };
        drop(same);
        assert!(memory[87..20_087] == pattern(20_000, 1));
        let sge = b.sge(0, 8);
        b.qp.send_queue()
            .batch()
            .read(3, SIGNALED, remote, &[sge])
            .unwrap();
        assert_eq!(
            lab.wait(&mut b.cq).status,
            WcStatus::RemAccessErr,
            "the key is gone"
        );
    });
}

#[test]
fn send_with_invalidate_closes_the_key() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Rc>();
        let pd = &lab.sides[1].pd;
        let open = pd
            .alloc_buffer(64, ALL | Access::REMOTE_INVALIDATE)
            .unwrap();
        let remote = Remote {
            addr: open.addr(),
            rkey: open.rkey(),
        };
        let sge = a.sge(0, 4);
        a.qp.send_queue()
            .batch()
            .write(1, SIGNALED, remote, sge)
            .unwrap();
        ok(lab.wait(&mut a.cq), 1, WcOpcode::RdmaWrite);
        b.receive(2, 0, 64);
        a.qp.send_queue()
            .batch()
            .send_inv(3, SIGNALED, open.rkey(), sge)
            .unwrap();
        ok(lab.wait(&mut a.cq), 3, WcOpcode::Send);
        let wc = got(lab.wait(&mut b.cq), 2, WcOpcode::Recv);
        assert_eq!((wc.flags, wc.imm_data), (WcFlags::WITH_INV, open.rkey().0));
        a.qp.send_queue()
            .batch()
            .write(4, SIGNALED, remote, sge)
            .unwrap();
        assert_eq!(
            lab.wait(&mut a.cq).status,
            WcStatus::RemAccessErr,
            "the key is closed"
        );

        // A key that was not made for it stays open, and the sender gets the refusal.
        let [mut a, mut b] = lab.pair::<Rc>();
        let shut = pd.alloc_buffer(64, ALL).unwrap();
        b.receive(2, 0, 64);
        let sge = a.sge(0, 4);
        a.qp.send_queue()
            .batch()
            .send_inv(3, SIGNALED, shut.rkey(), sge)
            .unwrap();
        let wc = lab.wait(&mut a.cq);
        assert_ne!(wc.status, WcStatus::Success);
        let [mut a, b] = lab.pair::<Rc>();
        let remote = Remote {
            addr: shut.addr(),
            rkey: shut.rkey(),
        };
        let sge = a.sge(0, 4);
        a.qp.send_queue()
            .batch()
            .write(4, SIGNALED, remote, sge)
            .unwrap();
        ok(lab.wait(&mut a.cq), 4, WcOpcode::RdmaWrite);
        drop(b);
    });
}
