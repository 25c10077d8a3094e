//! Counts the frames of two receive queues, each by a thread of its own: the card spreads flows over them by a hash of
//! addresses and ports (RSS). Another port sends flows to be counted. On two device models, or on two cards that `--device`
//! names, the one that counts first.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;

use bareverbs_examples::{Result, program};
use bareverbs_node::DevicePlatform;
use bareverbs_node::verbs::{
    Config, Cqs, Device, EthernetInit, EthernetReceive, EthernetSendFlags, FlowAction, FlowMatch,
    FlowRuleInit, FlowSlot, HashedPackets, Mac, PageChunks, Qps, Resources, RssHash, Srqs,
};

const FLOWS: u16 = 64;
const FRAMES: u32 = 20_000;

type Memory = Resources<Qps<1>, Cqs<8>, Srqs<1>, PageChunks<256>>;

fn main() -> ExitCode {
    let about = "Counts the frames of two queues between which a card spreads flows";
    program::on_devices("count_frames", about, |devices| {
        let [counting, sending] = devices.platforms()?;
        let (ready, is_ready) = mpsc::channel();
        let total = AtomicU32::new(0);
        let counted = thread::scope(|scope| {
            let counter = scope.spawn(|| count(counting, &total, ready));
            // If the counter fails before it is ready, it says why itself.
            if let Ok(mac) = is_ready.recv() {
                send(sending, mac, &total)?;
            }
            counter.join().map_err(|_| "the counter panicked")?
        })?;
        println!("{FRAMES} frames of {FLOWS} flows: {counted:?} came to the two queues");
        Ok(())
    })
}

/// Counts until all frames have come. Frames by queue.
fn count(
    platform: DevicePlatform,
    total: &AtomicU32,
    ready: mpsc::Sender<Mac>,
) -> Result<[u32; 2]> {
    let mut memory = Box::new(Memory::new());
    let device = Device::open(platform, Config::DEFAULT, memory.storage())?;
    let counted = {
        let pd = device.alloc_pd()?;
        let domain = device.alloc_ethernet_domain()?;
        let init = EthernetInit::default();
        let (_, mut first) = domain.create_queues(&pd, &init)?;
        let (_, mut second) = domain.create_queues(&pd, &init)?;
        let table = domain.create_indirection_table(&[first.number(), second.number()], 2)?;
        let hash = RssHash::all_of(HashedPackets::UdpIpv4);
        let target = domain.create_hashed_target(&table, &hash)?;
        let mut slots = [FlowSlot::new(); 8];
        let mut flows = domain.create_flow_table(&mut slots, 1)?;
        let to = [target.number()];
        let udp = FlowMatch::ANY.ipv4().ip_protocol(17);
        let _ = flows.add(&FlowRuleInit::new(udp, FlowAction::Forward(&to)))?;
        ready.send(domain.mac())?;
        thread::scope(|scope| {
            let threads =
                [&mut first, &mut second].map(|queue| scope.spawn(|| drain(queue, total)));
            while threads.iter().any(|thread| !thread.is_finished()) {
                device.poll()?;
                thread::yield_now();
            }
            let [first, second] =
                threads.map(|thread| thread.join().map_err(|_| "a queue's thread panicked"));
            Result::Ok([first??, second??])
        })?
    };
    device.close()?;
    Ok(counted)
}

/// Counts what comes to one queue, until all frames have come to either.
fn drain(queue: &mut EthernetReceive<'_, DevicePlatform>, total: &AtomicU32) -> Result<u32> {
    let mut frames = 0;
    while total.load(Ordering::Relaxed) < FRAMES {
        match queue.receive()? {
            Some(_) => {
                frames += 1;
                total.fetch_add(1, Ordering::Relaxed);
            }
            None => thread::yield_now(),
        }
    }
    Ok(frames)
}

/// Sends the flows, no faster than they are counted.
fn send(platform: DevicePlatform, to: Mac, total: &AtomicU32) -> Result<()> {
    let mut memory = Box::new(Memory::new());
    let device = Device::open(platform, Config::DEFAULT, memory.storage())?;
    let pd = device.alloc_pd()?;
    let mut queue = pd.create_ethernet_queue(&EthernetInit::default())?;
    // Ethernet, IPv4 with 32 bytes from 10.0.0.2 to 10.0.0.1, UDP with 4 bytes, then the number.
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&queue.mac());
    frame[12..42].copy_from_slice(&[
        8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0x66, 0xcb, 10, 0, 0, 2, 10, 0, 0, 1, 0, 0, 0, 9,
        0, 12, 0, 0,
    ]);
    for number in 0..FRAMES {
        frame[34..36].copy_from_slice(&(number as u16 % FLOWS).to_be_bytes());
        while number - total.load(Ordering::Relaxed) >= 64 {
            device.poll()?;
            thread::yield_now();
        }
        queue.send_half().send(&frame, EthernetSendFlags::empty())?;
    }
    Ok(())
}
