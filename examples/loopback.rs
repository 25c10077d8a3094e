//! Raw verbs: two queue pairs of one device, connected to each other without a connection manager, and an RDMA WRITE from
//! one to the other. On a device model, or on the card that `--device` names.

use std::process::ExitCode;

use bareverbs_examples::{Result, program};
use bareverbs_node::Cm;
use bareverbs_node::verbs::{Access, CqInit, QpInitAttr, Rc, SendFlags};

fn main() -> ExitCode {
    let about = "An RDMA WRITE from one queue pair of a device to another one of it";
    // Without a command line: `Node::from_env(ADDRESS)?.run(loopback)`.
    program::on_devices("loopback", about, |devices| {
        devices.node([10, 0, 0, 1])?.run(loopback)
    })
}

fn loopback(cm: &mut Cm) -> Result<()> {
    let device = cm.device();
    let pd = device.alloc_pd()?;
    let mut cq = device.create_cq(CqInit::new(16))?;
    let mut ours = pd.create_qp::<Rc>(&mut QpInitAttr::new(&cq, 1))?;
    let mut theirs = pd.create_qp::<Rc>(&mut QpInitAttr::new(&cq, 1))?;
    // Two hosts would send each other theirs, with `Endpoint::to_bytes`.
    let (here, there) = (ours.endpoint(0, 100)?, theirs.endpoint(0, 200)?);
    ours.connect(&here, &there)?;
    theirs.connect(&there, &here)?;

    let source = pd.alloc_buffer(64, Access::LOCAL_WRITE)?;
    let sink = pd.alloc_buffer(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    source.copy_in(0, b"hello")?;
    let (local, remote) = (source.slice(..5)?, sink.remote(32));
    let mut batch = ours.send_queue().batch();
    batch.write(1, SendFlags::SIGNALED, remote, local)?;
    drop(batch); // Rings the doorbell.
    let wc = loop {
        match cq.poll()? {
            Some(completion) => break completion.to_wc().ok()?,
            None => device.wait(cm.now())?,
        };
    };
    let mut arrived = [0; 5];
    sink.copy_out(32, &mut arrived)?;
    println!("{:?} of {}", wc.opcode, arrived.escape_ascii());
    Ok(())
}
