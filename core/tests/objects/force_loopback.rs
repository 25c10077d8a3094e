//! Force loopback: which fields of a path the firmware gets, and which QPs may not have it.

use bareverbs_core::qp::transition;
use bareverbs_core::{
    AhAttr, AhError, CqInit, Device, Gid, ModifyError, Mtu, QpAttr, QpAttrMask, QpInitAttr,
    QpState, QpType, Qpn, Rc, StaticRate, Uc,
};
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::qp::Qpc;

use crate::rig::{Memory, Rig, cap, fake, open};
use crate::support::Fake;
use crate::{commands, quick};

/// By force, and everything else that an address vector can say, which does not matter then.
const FORCED: AhAttr = AhAttr {
    dgid: Gid([7; 16]),
    // There is no such entry, and no MAC.
    sgid_index: 9,
    dmac: [0; 6],
    hop_limit: 64,
    traffic_class: 4,
    flow_label: 0x12345,
    sl: 3,
    static_rate: StaticRate::from_number(2).unwrap(),
    dlid: 5,
    src_path_bits: 1,
    port_num: 1,
    force_loopback: true,
};

/// Opens a device whose port is `ethernet` and whose RoCE capabilities are with or without, moves a queue pair to RTR,
/// and queries it.
fn attempt<T: QpType>(ethernet: bool, capable: bool) -> (Fake, Result<bool, ModifyError>) {
    let fake = fake(0b11);
    {
        let mut inner = fake.lock();
        inner.roce.set_fl_rc_qp_when_roce_enabled(capable);
        let inner = &mut *inner;
        for caps in [&mut inner.hca, &mut inner.hca_max] {
            caps.set_port_type(u8::from(ethernet)).set_roce(ethernet);
        }
    }
    let mut memory = Memory::new();
    let result = {
        let rig = Rig::new(&fake);
        let mut qpc = Qpc::ZERO;
        qpc.set_state(2).primary_address_path_mut().set_fl(true);
        rig.lock().queried = qpc.0.to_vec();
        let device = if ethernet {
            open(&fake, &mut memory, quick())
        } else {
            Device::open(&fake, quick(), memory.storage()).expect("bring-up")
        };
        assert_eq!(
            device.capabilities().has_force_loopback(),
            capable || !ethernet
        );
        let result = to_rtr::<T>(&device);
        device.close().expect("closed");
        result
    };
    fake.assert_clean();
    (fake, result)
}

fn to_rtr<T: QpType>(device: &Device<'_, &Fake>) -> Result<bool, ModifyError> {
    let pd = device.alloc_pd().unwrap();
    let cq = device.create_cq(CqInit::new(8)).unwrap();
    let mut init = QpInitAttr {
        send_cq: &cq,
        recv_cq: &cq,
        srq: None,
        cap: cap(4, 4, 1, 0),
        sq_sig_all: true,
    };
    let mut qp = pd.create_qp::<T>(&mut init).unwrap();
    for to in [QpState::Init, QpState::Rtr] {
        let attr = QpAttr {
            qp_state: to,
            path_mtu: Mtu::B4096,
            dest_qp_num: Qpn::from_low_bits(0x777),
            ah_attr: FORCED,
            ..QpAttr::DEFAULT
        };
        let row = transition(T::KIND, qp.state(), to).unwrap();
        qp.modify(&attr, row.required | QpAttrMask::STATE)?;
    }
    Ok(qp.query()?.attr.ah_attr.force_loopback)
}

#[test]
fn the_firmware_gets_the_bit_and_no_path() {
    for ethernet in [true, false] {
        let (fake, result) = attempt::<Rc>(ethernet, true);
        assert_eq!(result, Ok(true));
        let input = commands(&fake, Opcode::Init2rtrQp).pop().unwrap();
        // The context is at 0x18 and the path 0x18 into it: `fl` first, `vhca_port_num` in its tenth dword.
        let mut golden = [0; 0x2c];
        golden[0] = 0x80;
        golden[0x25] = 1;
        assert_eq!(input[0x30..0x5c], golden);
        // MTU 4096 and messages of 2^30 bytes, then the peer.
        assert_eq!(input[0x20], 5 << 5 | 30);
        assert_eq!(input[0x2c..0x30], [0, 0, 7, 0x77]);
    }
}

#[test]
fn a_card_without_it_says_so() {
    let (fake, result) = attempt::<Rc>(true, false);
    assert_eq!(result, Err(ModifyError::Path(AhError::NoForceLoopback)));
    assert!(commands(&fake, Opcode::Init2rtrQp).is_empty());
    // InfiniBand has no such capability.
    assert_eq!(attempt::<Rc>(false, false).1, Ok(true));
}

#[test]
fn it_is_for_reliable_connections() {
    let refused = ModifyError::Path(AhError::ForceLoopbackNotRc);
    assert_eq!(attempt::<Uc>(true, true).1, Err(refused));
}
