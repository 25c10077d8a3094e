//! Small messages in the entries of their completions, found where libmlx5 looks (`mlx5_copy_to_recv_wqe` of `cqe` or of
//! `cqe - 1`, `mlx5_parse_cqe` in rdma-core's `providers/mlx5/cq.c`).

use connectx_model::{Config, Syndrome};

use crate::common::Node;
use crate::common::queues::*;
use crate::{SEND, refused};

/// Two cards that do not offer it.
fn lacking() -> Pair {
    Pair::of([1, 2].map(|unit| {
        let mut config = Config::new(unit);
        config.general.set_sctr_data_cqe(false);
        config.general_max.set_sctr_data_cqe(false);
        config
    }))
}

/// Creates a QP with these values of `cs_res` and `cs_req`, on a CQ with entries of this size.
fn create(
    node: &mut Node,
    pd: u32,
    (st, cqe_sz): (u8, u8),
    [cs_res, cs_req]: [u8; 2],
) -> Result<(Qp, Cq), connectx_model::Syndrome> {
    let plan = CqPlan {
        cqe_sz,
        compressed: None,
    };
    let cq = node.try_create_cq_as(6, 1, plan).unwrap();
    let plan = QpPlan {
        st,
        pd,
        send_cq: cq.number,
        receive_cq: cq.number,
        srq: None,
        user_index: 0x11,
    };
    let made = node.try_create_qp(plan, |qpc| {
        qpc.set_cs_res(cs_res).set_cs_req(cs_req);
    });
    match made {
        Ok(qp) => Ok((qp, cq)),
        Err(failure) => {
            assert_eq!(failure, refused(Syndrome::QpScatter));
            Err(Syndrome::QpScatter)
        }
    }
}

#[test]
fn data_lie_where_a_library_looks() {
    for (cqe_sz, cs_res, most) in [(0, 1, 32), (1, 1, 32), (1, 2, 64), (2, 2, 64)] {
        let mut pair = Pair::new();
        let [pd_a, pd_b] = pair.pd;
        let (mut a, _) = create(&mut pair.a, pd_a, (RC, cqe_sz), [0, 0]).unwrap();
        let (mut b, cq) = create(&mut pair.b, pd_b, (RC, cqe_sz), [cs_res, 0]).unwrap();
        pair.a.make_init(&a);
        pair.b.make_init(&b);
        let macs = [&pair.a, &pair.b].map(|node| node.model.config().mac);
        pair.a.make_rtr(&a, b.number, 200, Some((gid(2), macs[1])));
        pair.b.make_rtr(&b, a.number, 100, Some((gid(1), macs[0])));
        pair.a.make_rts(&a, 100);
        pair.b.make_rts(&b, 200);
        let memory = pair.b.host.alloc(4096, 4096);
        let key = pair.b.register(pd_b, memory, 0, 4096, ALL);
        for (index, len) in [1, 31, 32, 33, 64, 65].into_iter().enumerate() {
            let data: Vec<u8> = (1..=len).map(|byte| byte as u8 ^ 0x5a).collect();
            pair.b
                .post_receive(&mut b, &[(key, 128 * index as u64, 128)]);
            pair.a.post_send(&mut a, SEND, 0, 0, &inline_segment(&data));
            pair.a.ring_send(&a);
            pair.run();
            let entry = cq.ring + index as u64 * cq.stride + (cq.stride - 64);
            let last = pair.b.host.bytes(entry, 64)[63];
            let found = match last & 0xc {
                0 => pair.b.host.bytes(memory + 128 * index as u64, len),
                4 => pair.b.host.bytes(entry, len),
                8 => pair.b.host.bytes(entry - 64, len),
                _ => panic!("{last:#x}"),
            };
            assert_eq!(found, data, "{cqe_sz} {cs_res} {len}");
            assert_eq!(last & 0xc != 0, len <= most, "{cqe_sz} {cs_res} {len}");
        }
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let mut pair = Pair::new();
    let pd = pair.pd[0];
    for (kind, codes, allowed) in [
        ((RC, 0), [1, 0x11], true),
        ((RC, 1), [2, 0x22], true),
        ((RC, 0), [2, 0], false),
        ((RC, 0), [0, 0x22], false),
        ((RC, 1), [3, 0], false),
        ((RC, 1), [0, 1], false),
        ((UC, 0), [1, 0], true),
        ((UC, 0), [0, 0x11], false),
        ((UD, 0), [1, 0], false),
    ] {
        let made = create(&mut pair.a, pd, kind, codes);
        assert_eq!(made.is_ok(), allowed, "{kind:?} {codes:x?}");
    }
    let mut without = lacking();
    let pd = without.pd[0];
    assert!(create(&mut without.a, pd, (RC, 0), [1, 0]).is_err());
}
