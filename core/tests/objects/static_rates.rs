//! Static rates: the bits of a QP's path and of an address handle, on devices that have the rates and that do not.

use bareverbs_core::qp::transition;
use bareverbs_core::{
    AhAttr, CqInit, QpAttr, QpAttrMask, QpInitAttr, QpState, QpType, Qpn, Rc, StaticRate,
};
use bareverbs_firmware_cmds::opcode::Opcode;

use crate::rig::{Memory, Rig, cap, fake, open};
use crate::{commands, quick};

/// Returns what the device finds in the contexts of a QP and in an address vector, where it has these rates.
fn programmed(rate: StaticRate, supported: u16) -> [u8; 2] {
    let fake = fake(0b11);
    {
        let mut inner = fake.lock();
        let inner = &mut *inner;
        for caps in [&mut inner.hca, &mut inner.hca_max] {
            caps.set_stat_rate_support(supported);
        }
    }
    let mut memory = Memory::new();
    let of_handle;
    {
        let _rig = Rig::new(&fake);
        let device = open(&fake, &mut memory, quick());
        let ah_attr = AhAttr {
            dmac: [2; 6],
            static_rate: rate,
            ..AhAttr::NONE
        };
        // The rate has the upper four bits of the first byte behind the destination's QP number.
        of_handle = device.create_ah(&ah_attr).unwrap().vector(0, 0)[12] >> 4;
        {
            let pd = device.alloc_pd().unwrap();
            let cq = device.create_cq(CqInit::new(8)).unwrap();
            let mut init = QpInitAttr {
                send_cq: &cq,
                recv_cq: &cq,
                srq: None,
                cap: cap(4, 4, 1, 0),
                sq_sig_all: true,
            };
            let mut qp = pd.create_qp::<Rc>(&mut init).unwrap();
            for to in [QpState::Init, QpState::Rtr] {
                let attr = QpAttr {
                    qp_state: to,
                    dest_qp_num: Qpn::from_low_bits(0x777),
                    ah_attr,
                    ..QpAttr::DEFAULT
                };
                let row = transition(Rc::KIND, qp.state(), to).unwrap();
                qp.modify(&attr, row.required | QpAttrMask::STATE).unwrap();
            }
        }
        device.close().expect("closed");
    }
    fake.assert_clean();
    // The path is at 0x30 of the command. Bits 11:8 of its third dword are the rate.
    let input = commands(&fake, Opcode::Init2rtrQp).pop().unwrap();
    [input[0x30 + 10] & 15, of_handle]
}

#[test]
fn the_device_gets_its_own_numbers() {
    // `enum ib_rate`, and what Linux's mlx5 makes of it: 2.5, 10, 40, 56, 25, 100, 200, 50 and 400 Gb/s, and the port's own.
    let rates = [
        (2, 7),
        (3, 8),
        (7, 12),
        (12, 1),
        (15, 2),
        (16, 3),
        (17, 4),
        (20, 5),
        (21, 6),
        (0, 0),
    ];
    for (number, value) in rates {
        let rate = StaticRate::from_number(number).unwrap();
        assert_eq!(programmed(rate, u16::MAX), [value; 2], "{number}");
        assert_eq!(programmed(rate, 1), [0; 2], "{number} on a ConnectX-7");
    }
    // 100 Gb/s where there is nothing between 56 and 200.
    let hundred = StaticRate::from_number(16).unwrap();
    assert_eq!(programmed(hundred, 0b1_0010), [1; 2]);
}
