//! Queries subnet administration: the program offers a service and subscribes to GIDs and groups, shows the paths, nodes,
//! services and subscriptions that there are, and then what is reported.
//!
//! ```text
//! cargo run --example subnet -- --device vfio:0000:3b:00.0 2
//! ```
//!
//! on an InfiniBand port of a subnet that has a manager. It leaves after so many reports of GIDs; without a number it does not
//! wait for any.

use std::net::Ipv6Addr;
use std::process::ExitCode;
use std::time::Duration;

use bareverbs_examples::devices::function;
use bareverbs_examples::function::with_function;
use bareverbs_examples::{Result, program};
use bareverbs_node::cm::mad::sa::{InformInfoRecord, NodeRecord, PathRecord, ServiceRecord, Trap};
use bareverbs_node::cm::rdma::{
    self, Members, Paths, Questions, RdmaCm, SubnetAdministration, SubnetResources, WithSaUser,
};
use bareverbs_node::cm::sa::{
    Answer, Client, Config, InformQuestion, Question, QuestionSlot, ReportSlot, ServiceQuestion,
    ServiceSlot, ServiceStanding, Services, Standing, SubscriptionSlot, Subscriptions, TableReader,
    TableRecord,
};
use bareverbs_node::verbs::{Device, Platform};
use bareverbs_node::vfio::PciAddress;
use bareverbs_node::{DevicePlatform, ManagerStorage};
use bpaf::Bpaf;

const TRAPS: [Trap; 4] = [
    Trap::GidInService,
    Trap::GidOutOfService,
    Trap::GroupMade,
    Trap::GroupDeleted,
];
const PATIENCE: Duration = Duration::from_secs(30);
/// "bareverbs" without its last letter.
const SERVICE: u64 = 0x6261_7265_7665_7262;
/// Seconds that the service stays when this program dies.
const LEASE: u32 = 600;
const TABLE: usize = 64 * 1024;

type User<'s> = (
    Subscriptions<'s>,
    (Services<'s>, (TableReader<'s>, Client<'s>)),
);
type Cm<'s, 'd> = RdmaCm<'s, 'd, DevicePlatform, WithSaUser<SubnetAdministration<'s>, User<'s>>>;

/// Shows what the subnet administration of an InfiniBand subnet knows, and what it reports.
#[derive(Bpaf, Debug)]
#[bpaf(options)]
struct Options {
    #[bpaf(external)]
    function: PciAddress,
    /// Leave after so many reports of GIDs; 0 if not given.
    #[bpaf(positional("REPORTS"), fallback(0))]
    reports: usize,
}

fn main() -> ExitCode {
    program::main("subnet", &options(), |options| {
        with_function(options.function, PATIENCE, |device, _| {
            on_device(device, options.reports)
        })
    })
}

fn on_device(device: &Device<'_, DevicePlatform>, reports: usize) -> Result<()> {
    // Different at each start, and for each user.
    let seed = u64::from(std::process::id()) << 32;
    let mut paths = SubnetResources::<Questions<4>, Paths<4>, Members<4>>::new();
    let mut inform = [QuestionSlot::<InformQuestion>::EMPTY; 4];
    let mut subscriptions = [SubscriptionSlot::EMPTY; 4];
    let mut arrived = [ReportSlot::EMPTY; 16];
    let mut service_questions = [QuestionSlot::<ServiceQuestion>::EMPTY; 2];
    let mut services = [ServiceSlot::EMPTY; 1];
    let mut table = vec![0; TABLE];
    let mut questions = [QuestionSlot::<Question>::EMPTY; 1];
    let config = |number| Config::new(seed | number);
    let resolver = WithSaUser {
        resolver: SubnetAdministration::new(config(1), paths.storage()),
        user: (
            Subscriptions::new(config(2), &mut inform, &mut subscriptions, &mut arrived),
            (
                Services::new(config(3), &mut service_questions, &mut services),
                (
                    TableReader::new(config(4), &mut table),
                    Client::new(config(5), &mut questions),
                ),
            ),
        ),
    };
    let mut memory = ManagerStorage::for_connections(4);
    let mut cm = RdmaCm::new(device, resolver, rdma::Config::new(seed), memory.storage())?;
    watch(&mut cm, reports)
}

fn watch(cm: &mut Cm<'_, '_>, reports: usize) -> Result<()> {
    let gid = cm.device().query_infiniband_gid(0)?.0;
    let record = ServiceRecord {
        service_id: SERVICE,
        service_gid: gid,
        pkey: 0xffff,
        lease: LEASE,
        name: ServiceRecord::named("bareverbs").unwrap_or([0; 64]),
        ..ServiceRecord::ZERO
    };
    let now = cm.now();
    for trap in TRAPS {
        cm.resolver_mut().user.0.subscribe(now, trap)?;
    }
    cm.resolver_mut().user.1.0.offer(now, &record)?;
    until(cm, PATIENCE, |(subscriptions, (services, _))| {
        for trap in TRAPS {
            match subscriptions.standing(trap) {
                Some(Standing::Active) => {}
                Some(Standing::Failed(error)) => return Err(error.into()),
                _ => return Ok(None),
            }
        }
        match services.standing(&record) {
            Some(ServiceStanding::Known) => Ok(Some(())),
            Some(ServiceStanding::Failed(error)) => Err(error.into()),
            _ => Ok(None),
        }
    })?;
    show(cm, &PathRecord::ZERO, |path| {
        let [to, from] = [path.dgid, path.sgid].map(Ipv6Addr::from);
        format!("path {to} {from} {} {}", path.dlid, path.slid)
    })?;
    show(cm, &NodeRecord::ZERO, |node| {
        let (lid, guid, port) = (node.lid, node.node_guid, node.port_guid);
        format!("node {lid} {guid:#018x} {port:#018x}")
    })?;
    show(cm, &ServiceRecord::ZERO, |service| {
        let (id, gid) = (service.service_id, Ipv6Addr::from(service.service_gid));
        let name = service.name.iter().take_while(|&&byte| byte != 0);
        let name: String = name.map(|&byte| byte as char).collect();
        format!("service {id:#018x} {gid} {name}")
    })?;
    show(cm, &InformInfoRecord::ZERO, |info| {
        let subscriber = Ipv6Addr::from(info.subscriber_gid);
        format!("subscription {subscriber} {}", info.trap)
    })?;
    by_service(cm, &record)?;

    println!("watching");
    let mut left = reports;
    while left > 0 {
        let notice = until(cm, Duration::MAX, |(subscriptions, _)| {
            Ok(subscriptions.next_report())
        })?;
        println!("report {} {}", notice.trap, Ipv6Addr::from(notice.gid));
        if notice.is(Trap::GidInService) || notice.is(Trap::GidOutOfService) {
            left -= 1;
        }
    }

    let now = cm.now();
    for trap in TRAPS {
        cm.resolver_mut().user.0.unsubscribe(now, trap);
    }
    cm.resolver_mut().user.1.0.withdraw(now, &record);
    until(cm, PATIENCE, |(subscriptions, (services, _))| {
        let subscribed = TRAPS
            .iter()
            .any(|&trap| subscriptions.standing(trap).is_some());
        let left = !subscribed && services.standing(&record).is_none();
        Ok(left.then_some(()))
    })?;
    println!("left");
    Ok(())
}

/// Finds the service by its number, and the path to it.
fn by_service(cm: &mut Cm<'_, '_>, own: &ServiceRecord) -> Result<()> {
    let now = cm.now();
    let services = &mut cm.resolver_mut().user.1.0;
    let id = services.find(now, own, ServiceRecord::SERVICE_ID, now + PATIENCE)?;
    let service = until(cm, PATIENCE, |(_, (services, _))| {
        Ok(services.found(id).transpose()?)
    })?;
    let question = Question::Path {
        wanted: PathRecord {
            service_id: service.service_id,
            dgid: service.service_gid,
            sgid: own.service_gid,
            numb_path: 1,
            ..PathRecord::ZERO
        },
        components: PathRecord::SERVICE_ID
            | PathRecord::DGID
            | PathRecord::SGID
            | PathRecord::NUMB_PATH,
    };
    let asker = &mut cm.resolver_mut().user.1.1.1;
    let id = asker.ask(now, &question, now + PATIENCE)?;
    let answer = until(cm, PATIENCE, |(_, (_, (_, asker)))| {
        Ok(asker.outcome(id).transpose()?)
    })?;
    if let Answer::Path(path) = answer {
        println!("by service {} {}", Ipv6Addr::from(path.dgid), path.dlid);
    }
    Ok(())
}

/// Shows all records of a kind, one a line.
fn show<R: TableRecord>(cm: &mut Cm<'_, '_>, all: &R, line: impl Fn(R) -> String) -> Result<()> {
    let now = cm.now();
    let reader = &mut cm.resolver_mut().user.1.1.0;
    reader.ask(now, all, 0, now + PATIENCE)?;
    until(cm, PATIENCE, |(_, (_, (reader, _)))| {
        let Some(table) = reader.table::<R>().transpose()? else {
            return Ok(None);
        };
        for record in table.iter() {
            println!("{}", line(record));
        }
        Ok(Some(()))
    })
}

/// Polls until there is something, or for so long.
fn until<T>(
    cm: &mut Cm<'_, '_>,
    limit: Duration,
    mut there: impl FnMut(&mut User<'_>) -> Result<Option<T>>,
) -> Result<T> {
    let end = cm.now().saturating_add(limit);
    loop {
        cm.poll(cm.now())?;
        while let Some(event) = cm.device().next_async_event() {
            cm.handle_async_event(&event);
        }
        if let Some(found) = there(&mut cm.resolver_mut().user)? {
            return Ok(found);
        }
        if cm.now() >= end {
            return Err("subnet administration does not answer".into());
        }
        cm.device().platform().relax();
    }
}
