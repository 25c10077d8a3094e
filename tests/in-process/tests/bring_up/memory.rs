//! PORTING.md says how much memory connections take; here it is measured.

use std::mem::size_of;
use std::sync::{Mutex, OnceLock};

use bareverbs_cm::ip::{self, Addresses, Groups, Neighbours, Routes};
use bareverbs_cm::rdma::{self, Channels, Ids, NeighbourDiscovery, RdmaCm, RdmaError, Resolver};
use bareverbs_core::{
    Access, Config, CqInit, CqSlot, Cqs, Device, DeviceSlot, PageChunk, PageChunks, QpCap,
    QpInitAttr, QpSlot, Qps, Rc, Resources, Srqs, Storage,
};
use bareverbs_in_process::ModelPlatform;
use connectx_model::Config as Card;
use connectx_model::card::Card as Kind;

use crate::support::world;

const PAGE: &str = include_str!("../../../../PORTING.md");
const BEGIN: &str = "<!-- memory:begin -->\n";
const END: &str = "<!-- memory:end -->";

type Driver<const QPS: usize, const CQS: usize> =
    Resources<Qps<QPS>, Cqs<CQS>, Srqs<1>, PageChunks<64>>;
type Manager<const IDS: usize> = rdma::Resources<Ids<'static, ModelPlatform, IDS>, Channels<1>>;
type Host = ip::Resources<Addresses<2>, Neighbours<16>, Routes<1>, Groups<8>>;

/// In KiB, as everything in the table: rounded up.
fn kib(bytes: usize) -> String {
    let digits = bytes.div_ceil(1024).to_string();
    let (thousands, rest) = digits.split_at(digits.len().saturating_sub(3));
    match thousands {
        "" => rest.to_owned(),
        thousands => format!("{thousands},{rest}"),
    }
}

/// The words, and a number to a tenth of it: the page need not change with each field of a structure.
fn close(written: &str, measured: &str) -> bool {
    let number = |cell: &str| cell.replace([',', '|', ' '], "").parse::<usize>();
    match (number(written), number(measured)) {
        (Ok(written), Ok(measured)) => written.abs_diff(measured) * 10 <= measured.max(10),
        _ => written == measured,
    }
}

/// Measures what the driver has from `dma_alloc` with so many connections' queues, and how much of it the firmware has.
fn dma(card: Card, connections: usize) -> [usize; 2] {
    let world = world(card);
    let mut slot = DeviceSlot::new();
    let mut qps: Vec<_> = (0..connections).map(|_| QpSlot::new()).collect();
    let mut cqs: Vec<_> = (0..2 * connections).map(|_| CqSlot::new()).collect();
    let mut chunks: Vec<_> = (0..64).map(|_| PageChunk::new()).collect();
    let storage = Storage::new(&mut slot, &mut qps, &mut cqs, &mut [], &mut chunks);
    let device = Device::open(world.platform(0), Config::DEFAULT, storage).expect("bring-up");
    let pd = device.alloc_pd().expect("PD");
    let cqs: Vec<_> = (0..2 * connections)
        .map(|_| device.create_cq(CqInit::new(16)).expect("CQ"))
        .collect();
    let _qps: Vec<_> = cqs
        .chunks_exact(2)
        .map(|pair| {
            let mut init = QpInitAttr {
                send_cq: &pair[0],
                recv_cq: &pair[1],
                srq: None,
                cap: QpCap {
                    max_send_wr: 16,
                    max_recv_wr: 16,
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline_data: 0,
                },
                sq_sig_all: false,
            };
            pd.create_qp::<Rc>(&mut init).expect("QP")
        })
        .collect();
    let firmware = device.pages_given() as usize * 4096;
    [world.accounting(0).allocated, firmware]
}

#[test]
fn the_page_says_how_much() {
    let recorded = || Card::card(Kind::ConnectX4Lx, 1);
    let counts = [1, 16, 1000];
    let mut rows = Vec::new();
    let mut row = |name: &str, sizes: [usize; 3]| {
        rows.push(format!("| {name} | {} |\n", sizes.map(kib).join(" | ")));
    };
    // The page counts them so: four QPs and eight CQs are the manager's and its Ethernet queue's, and one id listens.
    row(
        "`Resources` of the driver",
        [
            size_of::<Driver<5, 10>>(),
            size_of::<Driver<20, 40>>(),
            size_of::<Driver<1004, 2008>>(),
        ],
    );
    row(
        "`rdma::Resources` of the manager",
        [
            size_of::<Manager<2>>(),
            size_of::<Manager<17>>(),
            size_of::<Manager<1001>>(),
        ],
    );
    row("`ip::Resources`", [size_of::<Host>(); 3]);
    let own = counts.map(|count| dma(Card::new(1), count));
    row(
        "DMA memory: the driver's queues",
        own.map(|[all, firmware]| all - firmware),
    );
    row(
        "DMA memory: pages of the firmware, default model",
        own.map(|[_, firmware]| firmware),
    );
    row(
        "DMA memory: pages of the firmware, recorded ConnectX-4 Lx",
        counts.map(|count| dma(recorded(), count)[1]),
    );
    let head = "| KiB, by connections | 1 | 16 | 1,000 |\n| --- | --: | --: | --: |\n";
    let table = format!("{head}{}", rows.concat());
    println!("{table}");
    let (_, rest) = PAGE.split_once(BEGIN).expect("the table's begin");
    let (written, _) = rest.split_once(END).expect("the table's end");
    let same = written.lines().count() == table.lines().count()
        && written
            .lines()
            .zip(table.lines())
            .all(|(written, measured)| {
                let cells = |line| str::split(line, " | ");
                cells(written)
                    .zip(cells(measured))
                    .all(|(written, measured)| close(written, measured))
            });
    assert!(same, "PORTING.md says\n{written}and it is\n{table}");
}

/// The page's statics: all of it is made by `const` functions, and may be shared.
static DRIVER: Mutex<Driver<20, 40>> = Mutex::new(Resources::new());
static DEVICE: OnceLock<Device<'static, ModelPlatform>> = OnceLock::new();
static MANAGER: Mutex<Manager<17>> = Mutex::new(rdma::Resources::new());

/// The page's manager lives as long as the program.
fn manager<R: Resolver>(
    device: &'static Device<'static, ModelPlatform>,
    resolver: R,
    resources: &'static mut Manager<17>,
) -> Result<RdmaCm<'static, 'static, ModelPlatform, R>, RdmaError> {
    RdmaCm::new(device, resolver, rdma::Config::new(1), resources.storage())
}

#[test]
fn a_device_may_be_a_static() {
    let world = world(Card::new(1));
    // Of the standard library's guards none leaks, and a box does what the page's does.
    let resources: &'static mut Driver<20, 40> = Box::leak(Box::new(Resources::new()));
    let device = DEVICE.get_or_init(|| {
        let storage = resources.storage();
        Device::open(world.platform(0), Config::DEFAULT, storage).expect("bring-up")
    });
    let pd = device.alloc_pd().expect("PD");
    let thread = std::thread::spawn(move || {
        let buffer = pd.alloc_buffer(64, Access::LOCAL_WRITE).expect("memory");
        buffer.len()
    });
    assert_eq!(thread.join().expect("the thread"), 64);
    let _: fn(_, NeighbourDiscovery<'static, 'static, ModelPlatform>, _) -> _ = manager;
    assert!(DRIVER.try_lock().is_ok() && MANAGER.try_lock().is_ok());
}
