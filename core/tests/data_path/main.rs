//! Posting and polling against a device that the test plays itself, byte by byte.

#[path = "../rig/mod.rs"]
mod rig;
#[path = "../support/mod.rs"]
mod support;

/// A test body with a device, its firmware, and a PD.
macro_rules! with_device {
    (|$fake:ident, $rig:ident, $device:ident, $pd:ident| $body:block) => {
        with_device!(0b11, |$fake, $rig, $device, $pd| $body)
    };
    ($issi:expr, |$fake:ident, $rig:ident, $device:ident, $pd:ident| $body:block) => {
        let $fake = $crate::rig::fake($issi);
        let mut memory = $crate::rig::Memory::new();
        {
            let $rig = $crate::rig::Rig::new(&$fake);
            let $device = $crate::rig::open(&$fake, &mut memory, bareverbs_core::Config::DEFAULT);
            {
                let $pd = $device.alloc_pd().expect("PD");
                $body
            }
            $device.close().expect("closed");
        }
        $fake.assert_clean();
    };
}

mod completions;
mod compressed;
mod forwarding;
mod forwarding_compressed;
mod open_batches;
mod queues;
mod requests;
mod tasks;
mod xrc;

use bareverbs_core::{Completion, Cq, LKey, RKey, Remote, SendFlags, Sge, Wc};
use bareverbs_firmware_cmds::opcode::Opcode;
use support::Fake;

const SIGNALED: SendFlags = SendFlags::SIGNALED;
const SGE: Sge = Sge::new(0x7f00_0000_1000, 0x1000, LKey(0x0011_2201));
const REMOTE: Remote = Remote {
    addr: 0x1122_3344_5566_7788,
    rkey: RKey(0xaabb_cc01),
};

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes
        .chunks(4)
        .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
        .collect()
}

fn poll(cq: &mut Cq<'_, &Fake>) -> Option<Wc> {
    cq.poll()
        .expect("CQ works")
        .map(|completion: Completion<'_>| completion.to_wc())
}

/// The number of commands of this kind that the firmware was given.
fn count(fake: &Fake, opcode: Opcode) -> usize {
    let inner = fake.lock();
    let of_kind = inner.history.iter().filter(|posted| posted.is(opcode));
    of_kind.count()
}
