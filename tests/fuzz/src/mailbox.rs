//! Firmware that answers commands with nonsense, from the first one of bring-up on: an error comes of it, or nothing.

use bareverbs_core::{
    Access, Config, CqInit, Cqs, Device, PageChunks, QpInitAttr, Qps, Rc, Resources, Srqs,
};
use bareverbs_in_process::{Builder, World};
use connectx_model::Config as Card;

use crate::hostile::{Hostile, hostile};

/// Runs an input.
///
/// # Panics
/// If the driver does.
pub fn run(data: &[u8]) {
    let world: World = Builder::new().function(Card::new(1)).stepped();
    let card = hostile(world.platform(0));
    let mut resources = Box::new(Resources::<Qps<4>, Cqs<4>, Srqs<1>, PageChunks<64>>::new());
    // From the first command on, or when the device is up.
    let early = data.first().is_some_and(|first| first & 1 != 0);
    let lies = data.get(1..).unwrap_or_default();
    if early {
        card.lie(lies);
    }
    let Ok(device) = Device::open(&card, Config::DEFAULT, resources.storage()) else {
        return;
    };
    card.lie(lies);
    use_all(&device);
    // What the device does not give back is kept, as it may still be in use.
    let _ = device.close();
}

fn use_all(device: &Device<'_, &Hostile>) {
    let Ok(pd) = device.alloc_pd() else {
        return;
    };
    let _ = device.query_port();
    let _ = device.poll();
    let memory = pd.alloc_buffer(4096, Access::LOCAL_WRITE);
    if let Ok(mut cq) = device.create_cq(CqInit::new(15)) {
        let mut made = pd.create_qp::<Rc>(&mut QpInitAttr::new(&cq, 4));
        if let Ok(qp) = &mut made {
            let _ = qp.query();
        }
        drop(made);
        let _ = cq.poll();
    }
    drop(memory);
    while device.next_async_event().is_some() {}
    let _ = device.poll();
}
