//! Creating the objects of an id, with each firmware command failing once: a typed error, after which the id is as it was
//! and nothing is left.

use crate::pair::*;
use bareverbs_cm::rdma::*;
use connectx_model::fault::{CommandFault, CommandRule};
use connectx_model::syndrome::Status;

/// SRQ and QP of one id.
fn create(cm: &mut Cm, id: CmId) -> Result<(), RdmaError> {
    let mut attr = SrqAttr {
        max_wr: 4,
        max_sge: 1,
        srq_limit: 0,
    };
    if !matches!(cm.srq(id), Ok(srq) if srq.max_wr() > 0) {
        cm.create_srq(id, None, &mut attr)?;
    }
    cm.create_qp(id, None, &mut qp())
}

fn destroy(cm: &mut Cm, id: CmId) {
    cm.destroy_qp(id).unwrap();
    match cm.destroy_srq(id) {
        Ok(()) | Err(RdmaError::NoSrq) => {}
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn every_command_of_creation_may_fail() {
    let kinds = [
        // SRQ, two CQs, QP, INIT.
        (PortSpace::Tcp, IdType::Rc, 5),
        (PortSpace::Ib, IdType::Uc, 5),
        // And RTR and RTS.
        (PortSpace::Udp, IdType::Ud, 7),
        (PortSpace::Ib, IdType::Ud, 7),
        // Domain, CQ, SRQ; four objects that a target names; QP, INIT.
        (PortSpace::Ib, IdType::XrcRecv, 9),
    ];
    for (port_space, id_type, commands) in kinds {
        let mut pair = Pair::new();
        let cm = &mut pair.cms[0];
        let id = cm.create_id_of(None, 0, port_space, id_type).unwrap();
        cm.bind_addr(id, address(0, 0)).unwrap();
        let objects = |pair: &Pair| pair.world.with_model(0, |model| model.objects());
        let before = objects(&pair);
        let executed = |pair: &Pair| pair.cms[0].device().commands_executed();
        let start = executed(&pair);
        create(&mut pair.cms[0], id).unwrap();
        let used = executed(&pair) - start;
        destroy(&mut pair.cms[0], id);
        assert_eq!(objects(&pair), before);
        assert_eq!(used, commands, "{id_type:?}");
        for nth in 0..used as u32 {
            let rule = CommandRule::nth(
                nth,
                CommandFault::Fail {
                    status: Status::InternalError,
                    syndrome: 0xabc,
                },
            );
            pair.world
                .with_model(0, |model| model.faults_mut().commands.push(rule));
            let outcome = create(&mut pair.cms[0], id);
            let what = format!("{id_type:?}, command {nth} of {used}: {outcome:?}");
            assert_eq!(
                outcome.map_err(|error| error.errno()),
                Err(errno::EIO),
                "{what}"
            );
            pair.world
                .with_model(0, |model| model.faults_mut().commands.clear());
            // What was complete before is there, and goes on from there.
            create(&mut pair.cms[0], id).expect(&what);
            destroy(&mut pair.cms[0], id);
            assert_eq!(objects(&pair), before, "{what}");
        }
    }
}
