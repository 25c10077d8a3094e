//! Memory and objects that are left over when the firmware refuses or does not answer, or when memory runs out.

use bareverbs_core::{Access, CqInit, Device, QpInitAttr, Rc, SrqAttr};
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::status::Status;

use crate::rig::cap;
use crate::support::Fake;
use crate::support::firmware::Action;

/// Each creation refused, undelivered and unanswered: a typed error, and everything comes back in the end.
#[test]
fn refused_creations_leave_nothing() {
    let actions = [Action::Fail(Status::LimitExceeded, 0xabc), Action::Drop];
    for opcode in [
        Opcode::AllocPd,
        Opcode::CreateCq,
        Opcode::CreateQp,
        Opcode::CreateMkey,
        Opcode::CreateRmp,
    ] {
        for action in &actions {
            with_device!(|fake, rig, device| {
                rig.lock().instead.push((opcode, action.clone()));
                let failed = create_everything(&device);
                assert!(failed.is_err(), "{opcode:?} {action:?}");
                assert!(rig.lock().instead.is_empty());
                create_everything(&device).expect("works the second time");
                let _ = fake.live();
            });
        }
    }
}

/// Each destruction refused or unanswered: memory that the device may still use stays until the device is closed.
#[test]
fn refused_destructions_keep_memory_until_close() {
    let actions = [Action::Fail(Status::ResourceBusy, 0xabc), Action::Drop];
    for opcode in [
        Opcode::DeallocPd,
        Opcode::DestroyCq,
        Opcode::DestroyQp,
        Opcode::DestroyMkey,
        Opcode::DestroyRmp,
    ] {
        for action in &actions {
            with_device!(|fake, rig, device| {
                let before = fake.live();
                rig.lock().instead.push((opcode, action.clone()));
                create_everything(&device).expect("created");
                assert!(rig.lock().instead.is_empty());
                if opcode != Opcode::DeallocPd {
                    assert!(device.bytes_quarantined() > 0, "{opcode:?} {action:?}");
                    assert!(fake.live() > before);
                }
            });
        }
    }
}

fn create_everything(device: &Device<'_, &Fake>) -> Result<(), String> {
    fn text(error: impl std::fmt::Display) -> String {
        error.to_string()
    }
    let pd = device.alloc_pd().map_err(text)?;
    let _buffer = pd.alloc_buffer(64, Access::LOCAL_WRITE).map_err(text)?;
    let _srq = pd
        .create_srq(&mut SrqAttr {
            max_wr: 3,
            max_sge: 1,
            srq_limit: 0,
        })
        .map_err(text)?;
    let cq = device.create_cq(CqInit::new(8)).map_err(text)?;
    let mut init = QpInitAttr {
        send_cq: &cq,
        recv_cq: &cq,
        srq: None,
        cap: cap(1, 1, 1, 0),
        sq_sig_all: true,
    };
    pd.create_qp::<Rc>(&mut init).map(|_| ()).map_err(text)
}

#[test]
fn memory_runs_out_at_each_allocation() {
    for budget in 0.. {
        let done;
        with_device!(|fake, _rig, device| {
            fake.lock().budget = budget;
            done = create_everything(&device).is_ok();
            fake.lock().budget = usize::MAX;
        });
        if done {
            assert!(budget > 3);
            return;
        }
    }
}
