//! Drawing cards.

use core::fmt;
use std::time::Duration;

use bareverbs_core::firmware_cmds::caps::HcaCap;
use bareverbs_core::firmware_cmds::layout::Layout;
use connectx_model::link::rng::Rng;
use connectx_model::{Card, Config as Model, Quirks};

use crate::refusal::Refusal;
use bareverbs_in_process::subnet::{Fault, Path, SA_LID};

const MICROSECOND: Duration = Duration::from_micros(1);
const MS: Duration = Duration::from_millis(1);

/// UARs that a card with memory on the device has in its BAR at least.
const UARS_BEFORE_MEMORY: u32 = 16;

/// Two cards on one cable.
#[derive(Debug, Clone)]
pub struct PairDraw {
    /// What they were drawn from.
    pub seed: u64,
    /// The subnet, if the ports are InfiniBand.
    pub subnet: Option<SubnetDraw>,
    /// The cards.
    pub cards: [CardDraw; 2],
    /// Interrupt vectors that the platform offers for each card; 0: polling.
    pub vectors: u16,
    /// Which card asks for the connection.
    pub client: usize,
}

/// An InfiniBand subnet between the cards.
#[derive(Debug, Clone)]
pub struct SubnetDraw {
    /// What the way between the cards is like.
    pub path: Path,
    /// What becomes of the first answers of subnet administration.
    pub faults: Vec<Fault>,
}

/// A card, and how its driver is set up.
#[derive(Debug, Clone)]
pub struct CardDraw {
    /// The model's configuration.
    pub model: Model,
    /// The driver's.
    pub driver: bareverbs_core::Config,
    /// Chunks of pages that the driver has.
    pub page_chunks: usize,
    /// Atomic operations work on it, in the host's byte order.
    pub atomics: bool,
    /// Reliable connections can be looped back by force.
    pub force_loopback: bool,
    /// What may be refused on it, and why.
    pub refusals: Vec<Refusal>,
}

/// Draws, and records what a draw allows to be refused.
struct Dice {
    rng: Rng,
    refusals: Vec<Refusal>,
}

impl Dice {
    fn below(&mut self, bound: u32) -> u32 {
        self.rng.below(bound)
    }

    /// From `low` to `high`, both included; the ends come more often.
    fn between(&mut self, low: u32, high: u32) -> u32 {
        match self.below(6) {
            0 => low,
            1 => high,
            _ => low + self.below(high - low + 1),
        }
    }

    fn byte(&mut self, low: u8, high: u8) -> u8 {
        self.between(low.into(), high.into()) as u8
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    fn flip(&mut self) -> bool {
        self.below(2) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u32) as usize]
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        most.mul_f64(f64::from(self.below(1001)) / 1000.0)
    }
}

impl PairDraw {
    /// The two cards of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut dice = Dice {
            rng: Rng::new(seed),
            refusals: Vec::new(),
        };
        // The cable's: both ends of a path are set up for the same frames.
        let mtu = dice.of(&[352, 576, 1024, 1500, 2048, 4200, 9000, 9978]);
        let polled = dice.flip();
        let infiniband = dice.one_in(8);
        let mut cards = [0, 1].map(|unit| card(&mut dice, unit, mtu, polled, infiniband));
        let vectors = cards.iter().map(|card| card.model.msix_vectors).min();
        let vectors = if polled {
            0
        } else {
            vectors.unwrap_or(0).min(8)
        };
        for card in &mut cards {
            card.refuse_event_queues(vectors);
        }
        let client = dice.below(2) as usize;
        let subnet = infiniband.then(|| subnet(&mut dice, &mut cards));
        Self {
            seed,
            subnet,
            vectors,
            client,
            cards,
        }
    }
}

impl CardDraw {
    /// Returns `true` if a step on this card may be refused so.
    #[must_use]
    pub fn may_refuse(&self, refusal: Refusal) -> bool {
        self.refusals.contains(&refusal)
    }

    /// Event queues that the driver requires and the card does not have.
    fn refuse_event_queues(&mut self, vectors: u16) {
        let wanted = match vectors {
            0 => self.driver.completion_event_queues,
            _ => self.driver.completion_event_queues.min(vectors - 1),
        };
        let general = &self.model.general;
        let most = match general.max_num_eqs() {
            0 => 1 << general.log_max_eq(),
            most => most,
        };
        if 1 + wanted > most {
            self.refusals.push(Refusal::EventQueues);
        }
    }
}

fn card(dice: &mut Dice, unit: usize, mtu: u16, polled: bool, infiniband: bool) -> CardDraw {
    dice.refusals.clear();
    let kind = match dice.flip() {
        true => Card::ConnectX5,
        false => dice.of(Card::ALL),
    };
    let mut model = Model::card(kind, unit as u8 + 1);
    // The driver asks for nothing whose answer is not known.
    model.unknown_answers_are_fatal = true;
    model.embedded_cpu = dice.one_in(6);
    model.mtu = mtu;
    model.firmware = (
        dice.between(12, 28) as u16,
        dice.between(0, 99) as u16,
        dice.between(0, 9999) as u16,
    );
    identity(dice, &mut model);
    model.link_up = !dice.one_in(8);
    command_queue(dice, &mut model);
    let page_chunks = pages(dice, &mut model);
    limits(dice, &mut model);
    switches(dice, &mut model);
    if dice.one_in(3) {
        unknown_bits(dice, &mut model);
    }
    if infiniband {
        model = model.infiniband();
    } else {
        roce(dice, &mut model);
    }
    let atomics = atomics(dice, &mut model);
    model.quirks = quirks(dice);
    model.cq_counters_lag = dice.flip();
    if dice.one_in(3) {
        model.latch_time = dice.up_to(5 * MS);
    }
    if !model.quirks.page_period.is_zero() && model.page_chunk == 0 {
        // A firmware that cannot wait for pages cannot play with them either.
        model.quirks.page_period = Duration::ZERO;
    }
    let force_loopback = if infiniband {
        true
    } else if model.general.roce() {
        model.roce.fl_rc_qp_when_roce_enabled()
    } else {
        model.general.fl_rc_qp_when_roce_disabled()
    };
    CardDraw {
        driver: driver(dice, polled),
        page_chunks,
        atomics,
        force_loopback,
        refusals: std::mem::take(&mut dice.refusals),
        model,
    }
}

/// The way between two InfiniBand ports, and how well subnet administration answers.
fn subnet(dice: &mut Dice, cards: &mut [CardDraw; 2]) -> SubnetDraw {
    for (card, lid) in cards.iter_mut().zip(SA_LID + 1..) {
        card.model.lid = lid;
    }
    // Virtual functions may be without GUIDs, but no two ports of a subnet have the same.
    if cards.iter().all(|card| card.model.port_guid == 0) {
        cards[1].model.port_guid = 1;
    }
    let path = Path {
        mtu: dice.byte(1, 5),
        rate: dice.of(&[2, 3, 16, 18]),
        packet_lifetime: dice.byte(8, 18),
        service_level: dice.byte(0, 15),
        hop_limit: match dice.flip() {
            true => 0,
            false => dice.byte(1, 255),
        },
    };
    let faults = (0..dice.below(3))
        .map(|_| match dice.below(5) {
            0 => Fault::QuestionLost,
            1 => Fault::AnswerLost,
            2 => Fault::Late(dice.up_to(500 * MS)),
            3 => Fault::Busy,
            _ => Fault::Twice,
        })
        .collect();
    SubnetDraw { path, faults }
}

/// What the card is, and where its registers are.
fn identity(dice: &mut Dice, model: &mut Model) {
    if !model.is_virtual() && dice.one_in(4) {
        *model = model.clone().virtual_function();
    }
    if model.is_virtual() && dice.one_in(8) {
        *model = model.clone().without_addresses();
    }
    if dice.one_in(3) {
        *model = model.clone().without_netdev();
    }
    if dice.one_in(4) {
        // The platform cannot combine writes: nothing comes of it.
        *model = model.clone().with_blue_flame();
    }
    model.bar_size = 1 << dice.between(16, 26);
    model.first_uar = dice
        .of(&[8, 8, 9, 10])
        .max(dice.below((model.bar_size >> 12) as u32 - 4));
    // Memory on the device is in the last part of the BAR, as far as the UARs leave it some.
    let memory = &mut model.device_memory;
    let begins = model.bar_size - u64::from(memory.memic_bar_size()).min(model.bar_size);
    memory.set_memic_bar_start_addr(begins);
    if begins >> 12 < u64::from(model.first_uar + UARS_BEFORE_MEMORY) {
        for caps in [&mut model.general, &mut model.general_max] {
            caps.set_device_memory(false);
        }
        memory.set_memic(false);
    }
    model.first_eqn = dice.between(0, 32);
    model.msix_vectors = dice.of(&[1, 2, 3, 4, 8, 12, 16, 64]);
    model.supported_issi = match dice.below(100) {
        0 => {
            dice.refusals.push(Refusal::Issi);
            0b100
        }
        1..6 => 0b11,
        6..10 => 0b01,
        10..12 => 0,
        _ => 0b10,
    };
    model.boot_time = match dice.below(8) {
        0 => Duration::ZERO,
        1 => dice.up_to(30_000 * MS),
        _ => dice.up_to(20 * MS),
    };
}

fn command_queue(dice: &mut Dice, model: &mut Model) {
    let (size, stride) = match dice.below(100) {
        0 => {
            dice.refusals.push(Refusal::QueueGeometry);
            dice.of(&[(0, 6), (5, 5), (5, 8), (4, 9), (3, 0)])
        }
        _ => {
            let size = dice.byte(1, 5);
            (size, dice.byte(6, 12 - size))
        }
    };
    model.log_cmdq_size = size;
    model.log_cmdq_stride = stride;
    model.command_time = match dice.below(4) {
        0 => dice.up_to(MS),
        _ => Duration::ZERO,
    };
    let checksum = dice.of(&[0, 3]);
    model.general_max.set_cmdif_checksum(checksum);
}

/// Pages of the firmware, and how many chunks there are for them.
fn pages(dice: &mut Dice, model: &mut Model) -> usize {
    if !model.is_virtual() {
        model.boot_pages = match dice.below(40) {
            0 => dice.between(3000, 5000),
            1..4 => dice.between(100, 1100),
            _ => dice.between(0, 40),
        };
        model.init_pages = match dice.below(60) {
            0 => dice.between(8000, 13_000),
            1..4 => dice.between(100, 1100),
            // It cannot ask for more before there is an event queue.
            _ => dice.between(1, 40),
        };
    }
    model.page_chunk = match dice.below(8) {
        0 => {
            // It never requests pages: then those that it requires at the start have to suffice.
            model.init_pages = model.init_pages.max(40);
            0
        }
        _ => dice.between(1, 70),
    };
    let pages = (model.boot_pages + model.init_pages) as usize;
    let needed = (model.boot_pages.div_ceil(512) + model.init_pages.div_ceil(512)) as usize;
    if pages > 512 && dice.one_in(5) {
        dice.refusals.push(Refusal::PageCapacity);
        return pages.div_ceil(512) - 1;
    }
    // Every request of one page at run time may take a separate chunk.
    needed + 400
}

/// Bits that have no name here: newer firmware has more of them.
fn unknown_bits(dice: &mut Dice, model: &mut Model) {
    let mut named = [0xff_u8; HcaCap::SIZE];
    for field in HcaCap::DESCRIPTOR.fields {
        for bit in field.offset..field.offset + field.width {
            named[bit as usize / 8] &= !(0x80 >> (bit % 8));
        }
    }
    for (index, unnamed) in named.into_iter().enumerate() {
        let bits = dice.below(256) as u8 & unnamed;
        model.general.0[index] |= bits;
        model.general_max.0[index] |= bits;
    }
}

/// How many there can be of each object, and how large it can be.
fn limits(dice: &mut Dice, model: &mut Model) {
    let (eqs, log_eqs) = match dice.below(4) {
        // The binary logarithm counts then.
        0 => (0, dice.byte(0, 7)),
        _ => (dice.of(&[1, 2, 4, 5, 8, 16, 32, 64, 100, 127]), 7),
    };
    let log_eq = if dice.one_in(80) {
        dice.refusals.push(Refusal::EventQueueSize);
        dice.byte(2, 7)
    } else {
        dice.byte(8, 24)
    };
    let log_cq = if dice.one_in(80) {
        dice.refusals.push(Refusal::CompletionQueueSize);
        dice.byte(1, 6)
    } else {
        dice.byte(7, 22)
    };
    let log_qp = if dice.one_in(80) {
        dice.refusals.push(Refusal::QueuePairSize);
        dice.byte(1, 6)
    } else {
        dice.byte(7, 15)
    };
    let send_wqe = if dice.one_in(80) {
        dice.refusals.push(Refusal::QueuePairSize);
        dice.of(&[64, 128, 192])
    } else {
        64 * dice.between(4, 16) as u16
    };
    let receive_wqe = 16 << dice.below(8);
    let number = |dice: &mut Dice, least: u8| dice.byte(least, 18);
    let (qps, cqs, pds, srqs, mkeys) = (
        number(dice, 7),
        number(dice, 4),
        number(dice, 2),
        number(dice, 0),
        number(dice, 6),
    );
    let cqe_version = if dice.one_in(100) {
        dice.refusals.push(Refusal::CqeVersion);
        0
    } else {
        1
    };
    let (requests, responses) = (dice.byte(0, 7), dice.byte(0, 7));
    let (message, ack_delay) = (dice.byte(20, 31), dice.byte(0, 31));
    let (pkeys, gids) = (dice.between(0, 5) as u16, dice.between(0, 4) as u16);
    let frequency = dice.between(50, 2000);
    let more_qps = qps.saturating_add(dice.byte(0, 3));
    for caps in [&mut model.general, &mut model.general_max] {
        caps.set_max_num_eqs(eqs)
            .set_log_max_eq(log_eqs)
            .set_log_max_eq_sz(log_eq)
            .set_log_max_cq_sz(log_cq)
            .set_log_max_qp_sz(log_qp)
            .set_max_wqe_sz_sq(send_wqe)
            .set_max_wqe_sz_rq(receive_wqe)
            .set_log_max_qp(qps)
            .set_log_max_cq(cqs)
            .set_log_max_pd(pds)
            .set_log_max_srq(srqs)
            .set_log_max_mkey(mkeys)
            .set_cqe_version(cqe_version)
            .set_log_max_ra_req_qp(requests)
            .set_log_max_ra_res_qp(responses)
            .set_log_max_msg(message)
            .set_local_ca_ack_delay(ack_delay)
            .set_pkey_table_size(pkeys)
            .set_gid_table_size(gids)
            .set_device_frequency_mhz(frequency)
            .set_device_frequency_khz(frequency * 1000);
    }
    model.general_max.set_log_max_qp(more_qps);
}

/// What it has or has not.
fn switches(dice: &mut Dice, model: &mut Model) {
    let vhca_ports = dice.below(3) as u8;
    let formats = [dice.byte(0, 2), dice.byte(0, 2), dice.byte(0, 2)];
    model.roce.set_qp_ts_format(formats[2]);
    model.roce_max.set_qp_ts_format(formats[2]);
    let on: [bool; 10] = core::array::from_fn(|_| dice.flip());
    for caps in [&mut model.general, &mut model.general_max] {
        caps.set_num_vhca_ports(vhca_ports)
            .set_sq_ts_format(formats[0])
            .set_rq_ts_format(formats[1])
            .set_cq_oi(on[0])
            .set_cq_resize(on[1])
            .set_cq_moderation(on[2])
            .set_block_lb_mc(on[3])
            .set_driver_version(on[4])
            .set_out_of_seq_cnt(on[5])
            .set_retransmission_q_counters(on[5])
            .set_xrc(on[6])
            .set_uc(on[7])
            .set_vport_counters(on[8])
            .set_fl_rc_qp_when_roce_disabled(on[9]);
    }
}

fn roce(dice: &mut Dice, model: &mut Model) {
    if dice.one_in(80) {
        for caps in [&mut model.general, &mut model.general_max] {
            caps.set_roce(false);
        }
        dice.refusals.push(Refusal::NoRoce);
        return;
    }
    let versions = match dice.below(60) {
        0 => {
            dice.refusals.push(Refusal::NoRoceV2);
            0b001
        }
        1..10 => 0b100,
        _ => 0b101,
    };
    let table = match dice.below(100) {
        0 => {
            dice.refusals.push(Refusal::NoRoce);
            0
        }
        _ => dice.of(&[1, 2, 3, 8, 16, 32, 100, 128, 254, 255]),
    };
    let loopback = dice.below(4);
    let first_port = dice.between(0xc000, 0xfff0) as u16;
    let last_port = dice.between(first_port.into(), 0xffff) as u16;
    let own_port = dice.flip();
    for caps in [&mut model.roce, &mut model.roce_max] {
        caps.set_roce_version(versions)
            .set_roce_address_table_size(table)
            .set_fl_rc_qp_when_roce_enabled(loopback & 1 != 0)
            .set_fl_rc_qp_when_roce_disabled(loopback & 2 != 0)
            .set_r_roce_min_src_udp_port(first_port)
            .set_r_roce_max_src_udp_port(last_port);
    }
    model.roce_max.set_sw_r_roce_src_udp_port(own_port);
}

/// Returns `true` if verbs has atomics on it.
fn atomics(dice: &mut Dice, model: &mut Model) -> bool {
    let has = !dice.one_in(4);
    let endianness = !dice.one_in(4);
    let operations = dice.of(&[0b11, 0b11, 0b11, 0b1111, 0b01, 0b10, 0]);
    let sizes = dice.of(&[8, 8, 8, 0x18, 0x1f8, 0]);
    for caps in [&mut model.general, &mut model.general_max] {
        caps.set_atomic(has);
    }
    model
        .atomic
        .set_supported_atomic_req_8B_endianness_mode_1(endianness)
        .set_atomic_operations(operations)
        .set_atomic_size_qp(sizes);
    has && endianness && operations & 0b11 == 0b11 && sizes & 8 != 0
}

/// Each quirk by itself, so that most cards have some.
fn quirks(dice: &mut Dice) -> Quirks {
    let seed = u64::from(dice.below(u32::MAX));
    let mut quirks = Quirks {
        seed,
        ..Quirks::default()
    };
    if dice.flip() {
        let most = dice.of(&[10 * MICROSECOND, MS, 20 * MS]);
        quirks.command_delay = dice.up_to(most);
    }
    if dice.one_in(3) {
        let most = dice.of(&[MS, 1900 * MS]);
        quirks.initialize_again = dice.up_to(most);
    }
    if dice.flip() {
        let most = dice.of(&[10 * MICROSECOND, MS, 50 * MS]);
        quirks.page_period = MICROSECOND + dice.up_to(most);
        quirks.page_most = dice.of(&[1, 2, 7, 33, 64]);
    }
    quirks.keeps_pages = dice.one_in(3);
    if dice.one_in(3) {
        quirks.event_delay = dice.up_to(10 * MS);
    }
    if dice.one_in(3) {
        quirks.interrupt_delay = dice.up_to(10 * MS);
    }
    if dice.one_in(3) {
        quirks.repeated_interrupts = dice.of(&[10, 500, 1000]);
    }
    if dice.one_in(3) {
        quirks.rest = dice.up_to(MS);
    }
    quirks.any_turn = dice.flip();
    quirks
}

fn driver(dice: &mut Dice, polled: bool) -> bareverbs_core::Config {
    let mut config = bareverbs_core::Config::DEFAULT;
    config.interrupts = !polled;
    config.command_signatures = dice.flip();
    config.completion_event_queues = dice.of(&[0, 0, 0, 0, 1, 3]);
    config.event_queue_entries = dice.of(&[1, 64, 512, 1024]);
    config.health_interval = dice.of(&[5 * MS, 100 * MS, 1000 * MS]);
    config
}

impl fmt::Display for PairDraw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (vectors, client) = (self.vectors, self.client);
        writeln!(f, "{vectors} vectors, card {client} connects")?;
        if let Some(subnet) = &self.subnet {
            writeln!(f, "InfiniBand: {subnet:?}")?;
        }
        for (index, card) in self.cards.iter().enumerate() {
            writeln!(f, "card {index}: {card}")?;
        }
        Ok(())
    }
}

impl fmt::Display for CardDraw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let model = &self.model;
        let (caps, roce) = (&model.general, &model.roce);
        writeln!(
            f,
            "{:#x} {:?}, own cores {}, link up {}, MAC {:02x?}, MTU {}, ISSI {:#b}, command queue 2^{} x 2^{} (each at least {:?}), BAR {:#x}, {} vectors, \
             boot {:?}",
            model.device_id,
            model.function,
            model.embedded_cpu,
            model.link_up,
            model.mac,
            model.mtu,
            model.supported_issi,
            model.log_cmdq_size,
            model.log_cmdq_stride,
            model.command_time,
            model.bar_size,
            model.msix_vectors,
            model.boot_time,
        )?;
        writeln!(
            f,
            "  pages {} + {}, then {}; storage for {} chunks",
            model.boot_pages, model.init_pages, model.page_chunk, self.page_chunks
        )?;
        writeln!(
            f,
            "  EQs {} or 2^{} of 2^{}, CQs 2^{} of 2^{}, QPs 2^{} of 2^{}, WQEs {} and {}, CQE version {}, reads 2^{} and 2^{}",
            caps.max_num_eqs(),
            caps.log_max_eq(),
            caps.log_max_eq_sz(),
            caps.log_max_cq(),
            caps.log_max_cq_sz(),
            caps.log_max_qp(),
            caps.log_max_qp_sz(),
            caps.max_wqe_sz_sq(),
            caps.max_wqe_sz_rq(),
            caps.cqe_version(),
            caps.log_max_ra_req_qp(),
            caps.log_max_ra_res_qp(),
        )?;
        writeln!(
            f,
            "  RoCE {} versions {:#b}, {} GIDs, force loopback {}, atomics {}",
            caps.roce(),
            roce.roce_version(),
            roce.roce_address_table_size(),
            self.force_loopback,
            self.atomics,
        )?;
        writeln!(
            f,
            "  counters lag {}, latch {:?}, {:?}",
            model.cq_counters_lag, model.latch_time, model.quirks
        )?;
        writeln!(
            f,
            "  driver: interrupts {}, signatures {}, {} completion EQs, {} entries",
            self.driver.interrupts,
            self.driver.command_signatures,
            self.driver.completion_event_queues,
            self.driver.event_queue_entries,
        )?;
        write!(f, "  may be refused: {:?}", self.refusals)
    }
}
