//! Two more ports, each cabled to one of the forwarder's: they send numbered frames and look for them on the other side.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bareverbs::verbs::{
    Config, Cqs, Device, EthernetInit, EthernetQueue, EthernetSendFlags, PageChunks, Platform, Qps,
    Resources, Srqs,
};
use bareverbs_examples::Result;
use bareverbs_in_process::{Builder, World};
use bareverbs_node::DevicePlatform;
use connectx_model::Config as Card;

use crate::ports::{Forwarding, Rates};

/// The frames that the generator sends each way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    pub(crate) frames: u32,
    /// Bytes of a frame.
    pub(crate) size: usize,
    /// Different UDP ports.
    pub(crate) flows: u16,
    pub(crate) seed: u32,
    /// Frames go to addresses that are not the forwarder's.
    pub(crate) foreign: bool,
}

/// Frames that are between the generator's ports at most: fewer than a single queue holds.
const WINDOW: u32 = 200;
/// The time without a frame after which the generator gives up.
const SILENCE: Duration = Duration::from_secs(10);
/// Where the number of a frame stands: behind the headers of Ethernet, IPv4 and UDP.
const NUMBER_AT: usize = 14 + 20 + 8;

/// The frames that came out of the forwarder.
#[derive(Debug, Clone, Default)]
pub(crate) struct Passed {
    /// Frames that came out once, by where they went in.
    pub(crate) frames: [u32; 2],
    pub(crate) rates: Rates,
}

impl fmt::Display for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [there, back] = self.frames;
        let dropped: u64 = self
            .rates
            .lanes
            .iter()
            .map(|lane| lane.dropped.iter().sum::<u64>())
            .sum();
        writeln!(f, "{}", self.rates)?;
        write!(
            f,
            "{there} frames there and {back} back, each exactly once; {dropped} dropped"
        )
    }
}

/// The models: a pair of cabled ports for each of the forwarder's. Their number in a pair is the generator's, the forwarder's.
pub(crate) struct Bed {
    worlds: [Arc<World>; 2],
}

impl Bed {
    /// With these cards for the forwarder, by their numbers.
    pub(crate) fn with(card: impl Fn(u8) -> Card) -> Self {
        let world = |unit: u8| {
            let builder = Builder::new().function(Card::new(unit));
            Arc::new(builder.function(card(unit + 1)).threaded())
        };
        Self {
            worlds: [world(1), world(3)],
        }
    }

    /// The worlds of the forwarder's ports, which are function 1 of each.
    pub(crate) fn worlds(&self) -> &[Arc<World>; 2] {
        &self.worlds
    }

    /// Forwards, and sends a stream each way through the forwarder.
    pub(crate) fn run(
        &self,
        forwarding: &Forwarding,
        stream: Stream,
        show: impl Fn(&Rates) + Send + Sync,
    ) -> Result<Passed> {
        let ports = [0, 1].map(|at: usize| DevicePlatform::model(&self.worlds[at], 1));
        let over = AtomicBool::new(false);
        let ready = AtomicBool::new(false);
        thread::scope(|scope| {
            let forwarder = scope.spawn(|| {
                let rates = forwarding.run(ports, &mut |rates| {
                    if ready.swap(true, Ordering::Relaxed) {
                        show(rates);
                    }
                    !over.load(Ordering::Relaxed)
                });
                // The generator need not wait for what never comes.
                ready.store(true, Ordering::Relaxed);
                rates
            });
            while !ready.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
            let frames = self.generate(forwarding, stream);
            over.store(true, Ordering::Relaxed);
            let rates = forwarder.join().map_err(|_| "the forwarder panicked")??;
            let frames = frames.map_err(|error| format!("{error}; the forwarder: {rates:?}"))?;
            Ok(Passed { frames, rates })
        })
    }

    fn generate(&self, forwarding: &Forwarding, stream: Stream) -> Result<[u32; 2]> {
        type Memory = Resources<Qps<1>, Cqs<4>, Srqs<1>, PageChunks<256>>;
        let mut memory = [Box::new(Memory::new()), Box::new(Memory::new())];
        let [here, there] = &mut memory;
        let open = |at: usize, storage| {
            let platform = DevicePlatform::model(&self.worlds[at], 0);
            Device::open(platform, Config::DEFAULT, storage)
        };
        let devices = [open(0, here.storage())?, open(1, there.storage())?];
        let came = {
            let pds = [devices[0].alloc_pd()?, devices[1].alloc_pd()?];
            let init = EthernetInit {
                recv_frames: 512,
                send_frames: 128,
                ..EthernetInit::default()
            };
            let mut queues = [
                pds[0].create_ethernet_queue(&init)?,
                pds[1].create_ethernet_queue(&init)?,
            ];
            for queue in &mut queues {
                queue.set_promiscuous(true)?;
            }
            // The forwarder's own addresses, by the numbers of its ports.
            let macs =
                [0, 1].map(|at: usize| self.worlds[at].with_model(1, |model| model.config().mac));
            exchange(&mut queues, forwarding, macs, stream)?
        };
        for device in devices {
            device.close()?;
        }
        Ok(came)
    }
}

/// A frame of UDP over IPv4 with a number.
fn frame(stream: Stream, side: usize, number: u32, [from, to]: [[u8; 6]; 2]) -> Vec<u8> {
    let mixed = (number ^ stream.seed).wrapping_mul(0x9e37_79b9);
    let flow = (mixed >> 16) as u16 % stream.flows;
    let length = (stream.size - 14) as u16;
    let mut frame = match stream.foreign {
        true => vec![2, 0, 0, 0, 7, side as u8],
        false => to.to_vec(),
    };
    frame.extend(from);
    frame.extend([0x08, 0x00, 0x45, 0]);
    frame.extend(length.to_be_bytes());
    frame.extend([
        0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, side as u8, 1, 10, 0, 1, 1,
    ]);
    frame.extend((1000 + flow).to_be_bytes());
    frame.extend([0, 9]);
    frame.extend((length - 20).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(number.to_be_bytes());
    frame.resize(stream.size, number as u8);
    frame
}

/// Sends all frames each way, and looks that each comes out on the other side, once and whole.
fn exchange<P: Platform>(
    queues: &mut [EthernetQueue<'_, P>; 2],
    forwarding: &Forwarding,
    macs: [[u8; 6]; 2],
    stream: Stream,
) -> Result<[u32; 2]> {
    // Where frames that go in on a side come from, and where they go to.
    let addresses = [[queues[0].mac(), macs[0]], [queues[1].mac(), macs[1]]];
    let mut seen = [(); 2].map(|()| vec![false; stream.frames as usize]);
    let (mut sent, mut came) = ([0_u32; 2], [0_u32; 2]);
    let mut last = Instant::now();
    while came != [stream.frames; 2] {
        if last.elapsed() > SILENCE {
            return Err(format!("no frame comes: {sent:?} sent, {came:?} came").into());
        }
        for side in 0..2 {
            let send = queues[side].send_half();
            while sent[side] < stream.frames && sent[side] - came[side] < WINDOW && send.free() > 0
            {
                let frame = frame(stream, side, sent[side], addresses[side]);
                send.send(&frame, EthernetSendFlags::empty())?;
                sent[side] += 1;
            }
            send.poll()?;
            // What went in there comes out here.
            let other = 1 - side;
            let mut got = [0; 2048];
            while let Some(received) = queues[side].receive_half().receive()? {
                let length = received.copy_to(&mut got);
                drop(received);
                let got = &got[..length];
                let number = got
                    .get(NUMBER_AT..NUMBER_AT + 4)
                    .and_then(|it| it.first_chunk());
                let number = u32::from_be_bytes(*number.ok_or("a short frame came")?);
                let mut wanted = frame(stream, other, number, addresses[other]);
                if !forwarding.keep_addresses {
                    wanted[..6].copy_from_slice(&[2, 0, 0, 0, 0, side as u8]);
                    wanted[6..12].copy_from_slice(&macs[side]);
                }
                if got != wanted {
                    return Err(format!("frame {number} was changed: {got:x?}").into());
                }
                match seen[other].get_mut(number as usize) {
                    Some(seen) if !*seen => *seen = true,
                    _ => return Err(format!("frame {number} came twice, or was never sent").into()),
                }
                came[other] += 1;
                last = Instant::now();
            }
        }
        thread::yield_now();
    }
    Ok(came)
}
