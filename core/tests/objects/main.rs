//! Verbs objects against a scripted firmware: what they send to it, what happens when it refuses, and what is left
//! over.

#[path = "../rig/mod.rs"]
mod rig;
#[path = "../support/mod.rs"]
mod support;

/// Runs a test body with a device and checks that nothing is left when it is done.
macro_rules! with_device {
    (|$fake:ident, $rig:ident, $device:ident| $body:block) => {
        with_device!(0b11, |$fake, $rig, $device| $body)
    };
    ($issi:expr, |$fake:ident, $rig:ident, $device:ident| $body:block) => {
        let $fake = $crate::rig::fake($issi);
        let mut memory = $crate::rig::Memory::new();
        {
            let $rig = $crate::rig::Rig::new(&$fake);
            let $device = $crate::rig::open(&$fake, &mut memory, $crate::quick());
            $body
            $device.close().expect("closed");
        }
        $fake.assert_clean();
    };
}

mod completion_queues;
mod force_loopback;
mod gid_holders;
mod memory;
mod queue_pairs;
mod refusals;
mod shared_receives;
mod static_rates;

use std::time::Duration;

use bareverbs_core::{Config, Cq, LKey, Qp, QpType, Rc, Sge, Wc};
use bareverbs_firmware_cmds::opcode::Opcode;
use support::Fake;

const SGE: Sge = Sge::new(0x1000, 64, LKey(5));

fn poll(cq: &mut Cq<'_, &Fake>) -> Option<Wc> {
    cq.poll()
        .expect("CQ works")
        .map(|completion| completion.to_wc())
}

fn quick() -> Config {
    let mut config = Config::DEFAULT;
    config.command_timeout = Duration::from_millis(2);
    config.teardown_timeout = Duration::from_millis(2);
    config
}

fn commands(fake: &Fake, opcode: Opcode) -> Vec<Vec<u8>> {
    let inner = fake.lock();
    inner
        .history
        .iter()
        .filter(|posted| posted.is(opcode))
        .map(|posted| posted.input.clone())
        .collect()
}

fn is_send<T: Send>() {}

/// Handles go to other threads.
#[test]
fn handles_are_send() {
    is_send::<Cq<'_, &Fake>>();
    is_send::<Qp<'_, &Fake, Rc>>();
    fn halves<T: QpType>() {
        is_send::<bareverbs_core::SendQueue<'_, &Fake, T>>();
        is_send::<bareverbs_core::RecvQueue<'_>>();
    }
    halves::<Rc>();
}
