//! The commands of protection domains and memory keys.

use bareverbs_core::{Access, MrError};
use bareverbs_firmware_cmds::mkey::CreateMkeyIn;
use bareverbs_firmware_cmds::opcode::Opcode;
use zerocopy::FromBytes;

use crate::commands;

#[test]
fn the_default_pd_is_shared_and_counted() {
    with_device!(|fake, _rig, device| {
        let first = device.default_pd().unwrap();
        let second = device.default_pd().unwrap();
        assert_eq!(first.pdn(), second.pdn());
        assert_eq!(commands(&fake, Opcode::AllocPd).len(), 1);
        drop(first);
        assert_eq!(commands(&fake, Opcode::DeallocPd).len(), 0);
        drop(second);
        assert_eq!(commands(&fake, Opcode::DeallocPd).len(), 1);
        let third = device.default_pd().unwrap();
        assert_eq!(commands(&fake, Opcode::AllocPd).len(), 2);
        third.dealloc().map_err(|(_, error)| error).unwrap();
    });
}

#[test]
fn order_is_relaxed_where_the_device_can() {
    for (write, always, enabled) in [
        (false, false, false),
        (true, false, false),
        (false, true, false),
        (false, false, true),
        (true, true, true),
    ] {
        let read = always || enabled;
        let fake = crate::rig::fake(0b11);
        {
            let mut inner = fake.lock();
            inner.hca.set_relaxed_ordering_write(write);
            inner.hca.set_relaxed_ordering_read(always);
            inner.hca.set_relaxed_ordering_read_pci_enabled(enabled);
        }
        let mut memory = crate::rig::Memory::new();
        let _rig = crate::rig::Rig::new(&fake);
        let device = crate::rig::open(&fake, &mut memory, crate::quick());
        {
            let pd = device.alloc_pd().unwrap();
            for asked in [Access::empty(), Access::RELAXED_ORDERING] {
                drop(pd.alloc_buffer(64, asked).unwrap());
                let input = commands(&fake, Opcode::CreateMkey).pop().unwrap();
                let (create, _) = CreateMkeyIn::read_from_prefix(&input).unwrap();
                let mkc = create.memory_key_mkey_entry();
                let asked = !asked.is_empty();
                assert_eq!(mkc.relaxed_ordering_write(), asked && write);
                assert_eq!(mkc.relaxed_ordering_read(), asked && read);
            }
        }
        device.close().expect("closed");
    }
}

#[test]
fn memory_keys_say_what_was_asked() {
    with_device!(|fake, rig, device| {
        let pd = device.alloc_pd().unwrap();
        let all = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        let mut keys = Vec::new();
        for access in [
            Access::empty(),
            Access::LOCAL_WRITE,
            Access::REMOTE_READ,
            all,
            all | Access::RELAXED_ORDERING,
        ] {
            let buffer = pd.alloc_buffer(5000, access).unwrap();
            let input = commands(&fake, Opcode::CreateMkey).pop().unwrap();
            let (create, list) = CreateMkeyIn::read_from_prefix(&input).unwrap();
            let mkc = create.memory_key_mkey_entry();
            assert_eq!(mkc.access_mode_1_0(), 1);
            assert!(mkc.lr());
            assert_eq!(mkc.lw(), access.contains(Access::LOCAL_WRITE));
            assert_eq!(mkc.rr(), access.contains(Access::REMOTE_READ));
            assert_eq!(mkc.rw(), access.contains(Access::REMOTE_WRITE));
            assert_eq!(mkc.a(), access.contains(Access::REMOTE_ATOMIC));
            // This device cannot, so it is not asked to.
            assert!(!mkc.relaxed_ordering_write() && !mkc.relaxed_ordering_read());
            assert_eq!((mkc.start_addr(), mkc.len()), (buffer.addr(), 5000));
            assert_eq!((mkc.pd(), mkc.qpn()), (pd.pdn().number(), 0xff_ffff));
            assert_eq!(
                list.len() as u32,
                create.translations_octword_actual_size() * 16
            );
            assert_eq!(
                mkc.translations_octword_size(),
                create.translations_octword_actual_size()
            );
            // The translations lead from the region's addresses to the buffer's memory.
            let page = 1_u64 << mkc.log_page_size();
            let first = u64::from_be_bytes(list[..8].try_into().unwrap());
            assert_eq!(first + (buffer.addr() & (page - 1)), buffer.addr());
            assert_eq!(buffer.lkey().0, buffer.rkey().0);
            keys.push(buffer.lkey().variant());
            buffer.copy_in(4990, b"0123456789").unwrap();
            let mut back = [0; 10];
            buffer.copy_out(4990, &mut back).unwrap();
            assert_eq!(&back, b"0123456789");
            assert_eq!(
                fake.lock().dma_read(buffer.addr() + 4990, 10),
                b"0123456789"
            );
            assert!(
                buffer.copy_in(4991, b"0123456789").is_err()
                    && buffer.copy_out(usize::MAX, &mut back).is_err()
            );
            assert_eq!(
                buffer.sge(4990, 10).map(|sge| sge.addr),
                Some(buffer.addr() + 4990)
            );
            assert!(buffer.sge(4990, 11).is_none());
        }
        assert!(
            keys.windows(2).all(|pair| pair[0] != pair[1]),
            "a new variant each time"
        );
        assert_eq!(commands(&fake, Opcode::DestroyMkey).len(), 5);
        let error = pd.alloc_buffer(64, Access::REMOTE_WRITE).unwrap_err();
        assert_eq!(
            error,
            MrError::NeedsLocalWrite {
                access: Access::REMOTE_WRITE
            }
        );
        assert_eq!(pd.alloc_buffer(0, all).unwrap_err(), MrError::Empty);
        let refused = pd.alloc_buffer(usize::MAX - 63, all).unwrap_err();
        assert!(matches!(refused, MrError::Memory(_)), "{refused}");
        let _ = rig;
    });
}
