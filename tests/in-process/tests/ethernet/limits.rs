//! Capabilities that cards lack, sizes, and headers that have to be inline.

use bareverbs_core::firmware_cmds::vport::ModifyNicVportContextIn;
use bareverbs_core::{
    Config, Cqs, EthernetError, EthernetInit, EthernetSendError, PageChunks, Qps, Resources, Srqs,
};
use bareverbs_in_process::Builder;
use connectx_model::Config as Card;

use crate::lab::lab;
use crate::lab::lab_with;
use crate::support::{INIT, NONE, padded, send};

/// Why a queue cannot be made on this card.
fn refusal(card: Card, init: &EthernetInit) -> EthernetError {
    let world = Builder::new()
        .function(card)
        .function(Card::new(2))
        .stepped();
    let mut resources = Box::new(Resources::<Qps<1>, Cqs<4>, Srqs<1>, PageChunks<256>>::new());
    let device = world.open(0, Config::DEFAULT, resources.storage(), &[]);
    let pd = device.alloc_pd().unwrap();
    let error = pd.create_ethernet_queue(init).expect_err("refused");
    drop(pd);
    device.close().expect("closed");
    error
}

#[test]
fn cards_that_have_no_such_queues() {
    let world = Builder::new()
        .function(Card::new(1).infiniband())
        .function(Card::new(2).infiniband())
        .stepped();
    let mut resources = Box::new(Resources::<Qps<1>, Cqs<4>, Srqs<1>, PageChunks<256>>::new());
    let device =
        bareverbs_core::Device::open(world.platform(0), Config::DEFAULT, resources.storage())
            .unwrap();
    let pd = device.alloc_pd().unwrap();
    let error = pd.create_ethernet_queue(&INIT).expect_err("InfiniBand");
    assert_eq!(error, EthernetError::NotEthernet);
    assert_eq!(error.to_string(), "not an Ethernet port");
    assert_eq!(device.ethernet_mtu(), Err(EthernetError::NotEthernet));
    assert_eq!(
        device.set_ethernet_mtu(1500),
        Err(EthernetError::NotEthernet)
    );

    let rdma_only = refusal(Card::new(1).without_netdev(), &INIT);
    assert!(matches!(rdma_only, EthernetError::Unsupported { .. }));
    let mut card = Card::new(1);
    for caps in [&mut card.general, &mut card.general_max] {
        caps.set_nic_flow_table(false);
    }
    assert_eq!(
        refusal(card, &INIT),
        EthernetError::Unsupported {
            what: "flow tables"
        }
    );
    let mut card = Card::new(1);
    card.flow_table
        .flow_table_properties_nic_receive_mut()
        .set_ft_support(false);
    assert!(matches!(
        refusal(card, &INIT),
        EthernetError::Unsupported { .. }
    ));
}

#[test]
fn sizes_have_limits() {
    let size = |init| match refusal(Card::new(1), &init) {
        EthernetError::Size { field, limit, .. } => (field, limit),
        other => panic!("{other}"),
    };
    for frames in [0, 1 << 20] {
        let mut init = INIT;
        init.send_frames = frames;
        assert_eq!(size(init).0, "send_frames");
        init = INIT;
        init.recv_frames = frames;
        assert_eq!(size(init).0, "recv_frames");
    }
    for length in [0, 17, 1 << 15] {
        let mut init = INIT;
        init.frame_len = Some(length);
        assert_eq!(size(init), ("frame_len", 1 << 14));
    }
    let mut init = INIT;
    init.max_groups = 1 << 20;
    assert_eq!(size(init).0, "max_groups");
}

#[test]
fn one_queue_at_a_time() {
    lab(|lab| {
        let first = lab.queue(0, INIT);
        let again = || lab.sides[0].pd.create_ethernet_queue(&INIT);
        assert_eq!(again().expect_err("taken"), EthernetError::Busy);
        drop(first);
        again().unwrap().destroy().unwrap();
        let mut none = INIT;
        none.max_groups = 0;
        let mut queue = lab.queue(0, none);
        assert_eq!(
            queue.join([1, 0, 0x5e, 0, 0, 1]),
            Err(EthernetError::GroupsFull { limit: 0 })
        );
    });
}

#[test]
fn a_device_without_completion_queues_left() {
    let world = Builder::new()
        .function(Card::new(1))
        .function(Card::new(2))
        .stepped();
    let mut resources = Box::new(Resources::<Qps<1>, Cqs<1>, Srqs<1>, PageChunks<256>>::new());
    let device = world.open(0, Config::DEFAULT, resources.storage(), &[]);
    let pd = device.alloc_pd().unwrap();
    let error = pd
        .create_ethernet_queue(&INIT)
        .expect_err("no completion queue left");
    assert!(matches!(error, EthernetError::Cq(_)), "{error}");
    drop(pd);
    device.close().expect("closed");
}

/// The device says how much of a frame has to be in the request itself; with every value, frames arrive whole.
#[test]
fn headers_go_inline_as_the_device_requires() {
    for (capability, mode, inline) in [
        (2, 3, 14),
        (0, 0, 18),
        (1, 0, 14),
        (1, 1, 18),
        (1, 2, 78),
        (1, 3, 138),
    ] {
        let card = |mut card: Card| {
            card.ethernet.set_wqe_inline_mode(capability);
            card
        };
        lab_with(card, |lab| {
            for side in &lab.sides {
                let mut modify = ModifyNicVportContextIn::new();
                modify.field_select_mut().set_min_inline(true);
                modify.nic_vport_context_mut().set_min_wqe_inline_mode(mode);
                side.device.execute(&modify).unwrap();
            }
            let [mut a, mut b] = lab.queues();
            assert_eq!(a.send_half().min_inline(), inline, "{capability}, {mode}");
            let lengths = (14..150).chain([500, 1517, 1518]);
            for (seed, len) in lengths.enumerate() {
                let sent = lab.frame(0, len, seed as u64);
                send(&mut a, &sent);
                assert_eq!(
                    lab.receive(&mut b),
                    padded(sent),
                    "{capability}, {mode}: {len}"
                );
            }
            let data = lab.sides[0]
                .pd
                .alloc_buffer(1024, bareverbs_core::Access::empty())
                .unwrap();
            data.fill(0, 1024, 0x77).unwrap();
            let sge = [data.sge(0, 1000).unwrap()];
            let header = lab.frame(0, inline, 5);
            a.send_half().send_gather(&header, &sge, NONE).unwrap();
            assert_eq!(lab.receive(&mut b), [&header[..], &[0x77; 1000]].concat());
            if inline > 14 {
                assert_eq!(
                    a.send_half().send_gather(&header[..14], &sge, NONE),
                    Err(EthernetSendError::HeaderTooShort {
                        length: 14,
                        needed: inline
                    })
                );
            }
        });
    }
}

/// All of the Ethernet header counts, tags included: a ConnectX-4 Lx stopped the queue.
#[test]
fn frames_with_two_tags_go_out_with_half_a_header_inline() {
    let card = |mut card: Card| {
        card.ethernet.set_wqe_inline_mode(1);
        card
    };
    for mode in 0..=3 {
        let with_mode = |mut card: Card| {
            card.min_wqe_inline_mode = mode;
            card
        };
        lab_with(
            |it| with_mode(card(it)),
            |lab| {
                let [mut a, mut b] = lab.queues();
                for kinds in [[0x88a8_u16, 0x8100], [0x8100, 0x8100], [0x88a8, 0x88a8]] {
                    for len in [18, 21, 22, 60, 500] {
                        let mut sent = lab.frame(0, len - 8, 7);
                        let tags = kinds.map(|kind| [kind.to_be_bytes(), [0, 5]].concat());
                        sent.splice(12..12, tags.concat());
                        send(&mut a, &sent);
                        // The receiving card takes the outer tag off if it is a customer's.
                        let got = lab.receive(&mut b);
                        assert!(
                            padded(sent).ends_with(&got[16..]),
                            "{mode}, {kinds:x?}, {len}"
                        );
                        assert_eq!(a.send_half().failure(), None);
                    }
                }
                let data = lab.sides[0]
                    .pd
                    .alloc_buffer(64, bareverbs_core::Access::empty())
                    .unwrap();
                let sge = [data.sge(0, 64).unwrap()];
                let mut header = lab.frame(0, 14, 7);
                header.splice(12..12, [0x88, 0xa8, 0, 5, 0x81, 0, 0, 5]);
                let short = a.send_half().send_gather(&header[..20], &sge, NONE);
                let min = a.send_half().min_inline();
                if mode == 0 {
                    assert!(short.is_ok() && min == 14);
                } else {
                    let wanted = EthernetSendError::HeaderTooShort {
                        length: 20,
                        needed: 84.min(min + 4),
                    };
                    assert_eq!(short, Err(wanted));
                }
            },
        );
    }
}

#[test]
fn jumbo_frames_after_the_mtu_was_set() {
    lab(|lab| {
        let ports = [0, 1].map(|node: usize| lab.sides[node].device);
        for port in ports {
            let mtu = port.ethernet_mtu().unwrap();
            assert_eq!((mtu.current, mtu.max), (4200, 10_218));
            for wrong in [0, 67, 10_219] {
                assert!(matches!(
                    port.set_ethernet_mtu(wrong),
                    Err(EthernetError::Size { field: "MTU", .. })
                ));
            }
            port.set_ethernet_mtu(9000).unwrap();
            assert_eq!(port.ethernet_mtu().unwrap().current, 9000);
        }
        let mut init = INIT;
        init.frame_len = None;
        let [mut a, mut b] = [0, 1].map(|node| lab.queue(node, init));
        assert_eq!(a.frame_len(), 9018);
        for len in [9018, 9000, 4097] {
            let sent = lab.frame(0, len, 5);
            send(&mut a, &sent);
            assert_eq!(lab.receive(&mut b), sent);
        }
    });
}
