//! Each duty broken, one at a time: each is found, by an error of its own.

use bareverbs_core::Resources;
use bareverbs_core::conformance::{self, Breach, ConformanceError, Duty, Path};
use bareverbs_in_process::Builder;
use connectx_model::Config as Card;

use super::broken::{Broken, Fault};
use super::passes::{OPTIONS, memory};

/// What the test says of a platform with this fault.
fn judge(fault: Fault) -> Result<(), ConformanceError> {
    judge_with(fault, 2)
}

fn judge_with(fault: Fault, vectors: u16) -> Result<(), ConformanceError> {
    let world = Builder::new()
        .function(Card::new(1))
        .interrupts(vectors)
        .stepped();
    let platform = Broken::new(world.platform(0), fault);
    let mut resources = Resources::<2, 2, 0, 64>::new();
    let report = conformance::run(&platform, memory(), resources.storage(), OPTIONS);
    report.map(drop)
}

#[track_caller]
fn breach(fault: Fault) -> Breach {
    match judge(fault) {
        Err(ConformanceError::Breach(breach)) => {
            println!("{fault:?}: {breach}");
            breach
        }
        other => panic!("{fault:?}: {other:?}"),
    }
}

/// That a fault is found as a breach of this form.
macro_rules! found {
    ($($fault:ident => $duty:ident, $breach:pat,)*) => {
        $({
            let breach = breach(Fault::$fault);
            assert!(matches!(breach, $breach), "{:?}: {breach:?}", Fault::$fault);
            assert_eq!(breach.duty(), Duty::$duty, "{breach:?}");
        })*
    };
}

#[test]
fn the_wrapper_itself_breaks_nothing() {
    assert_eq!(judge(Fault::None), Ok(()));
}

#[test]
fn registers() {
    found! {
        ShortBar => BarLen, Breach::BarTooShort { len: 4096, .. },
        NoDevice => ReadBe32, Breach::NoDevice { offset: 0 },
        UnstableRegister => ReadBe32, Breach::RegisterChanges { offset: 0, .. },
        ReadSwapped => ReadBe32, Breach::ReadOrder { offset: 4, .. },
        ReadWrapsAround => ReadBe32, Breach::ReadOutside { .. },
        ReadRoundsDown => ReadBe32, Breach::ReadUnaligned { offset: 1, .. },
        WriteSwapped => WriteBe32, Breach::WriteOrder { .. },
        WriteWrapsAround => WriteBe32, Breach::WriteNotIgnored { size: 4, .. },
        WriteRoundsDown => WriteBe32, Breach::WriteNotIgnored { offset: 0x12, size: 4, .. },
        DoorbellWritesOutside => WriteBe64, Breach::WriteNotIgnored { size: 8, .. },
        HalvesSwapped => WriteBe64, Breach::NoCompletion { path: Path::Doorbell, .. },
        BytesSwapped => WriteBe64, Breach::NoCompletion { path: Path::Doorbell, .. },
        HighHalfLost => WriteBe64, Breach::NoEvent { .. },
    }
}

#[test]
fn clock() {
    found! {
        ClockBack => Now, Breach::ClockWentBack { .. },
        ClockStands => Relax, Breach::ClockStands { .. },
        ClockCoarse => Now, Breach::ClockCoarse { .. },
    }
}

#[test]
fn allocated_memory() {
    found! {
        NoMemory => DmaAlloc, Breach::AllocRefused { .. },
        Dirty => DmaAlloc, Breach::NotZeroed { found: 1, again: false, .. },
        DirtyAgain => DmaAlloc, Breach::NotZeroed { found: 1, again: true, .. },
        OtherLayout => DmaAlloc, Breach::OtherLayout { size: 8, found_size: 72, .. },
        PointerUnaligned => DmaAlloc, Breach::PointerAlignment { .. },
        IovaUnaligned => DmaAlloc, Breach::IovaAlignment { align: 8, .. },
        IovaUnalignedForLarge => DmaAlloc, Breach::IovaAlignment { align: 8192, .. },
        IovaWraps => DmaAlloc, Breach::IovaWraps { .. },
        SamePointer => DmaAlloc, Breach::PointersOverlap { .. },
        SameIova => DmaAlloc, Breach::IovasOverlap { .. },
        IovaOverlaps => DmaAlloc, Breach::IovasOverlap { .. },
        Aliased => DmaAlloc, Breach::MemoryShared { .. },
        Absurd => DmaAlloc, Breach::AllocAbsurd { .. },
        FreeLeaks => DmaFree, Breach::FreeKeeps { .. },
        LargeNotContiguous => DmaAlloc, Breach::Refused { path: Path::AllocatedToAllocated, .. },
    }
}

/// Before the device is up it cannot say what it does not reach.
#[test]
fn memory_where_the_device_does_not_look() {
    let judged = judge(Fault::IovaElsewhere);
    assert!(
        matches!(judged, Err(ConformanceError::Open(_))),
        "{judged:?}"
    );
}

#[test]
fn mapped_memory() {
    found! {
        NoMap => DmaMap, Breach::MapRefused { .. },
        MapsOther => DmaMap, Breach::MappedOther { len: 1, found_len: 2, .. },
        SmallPages => DmaMap, Breach::PageShift { shift: 9 },
        PageTooFew => DmaMap, Breach::Pages { .. },
        PageUnaligned => PageIova, Breach::PageIova { index: 0, .. },
        PagesSame => PageIova, Breach::PagesOverlap { .. },
        PagesReversed => PageIova, Breach::Moved { path: Path::MappedToAllocated, .. },
        PagesElsewhere => PageIova, Breach::Refused { path: Path::MappedToAllocated, .. },
        FirstPageOnly => PageIova, Breach::Refused { path: Path::MappedToAllocated, .. },
        UnmapLeaks => DmaUnmap, Breach::UnmapKeeps { .. },
    }
}

#[test]
fn interrupts() {
    found! {
        WaitEarly => WaitInterrupt, Breach::WaitEarly { .. },
        WaitLate => WaitInterrupt, Breach::WaitLate { .. },
        PastWaitsToo => WaitInterrupt, Breach::WaitLate { .. },
        InterruptNever => WaitInterrupt, Breach::InterruptMissing { vector: 0, .. },
        InterruptForgotten => WaitInterrupt, Breach::InterruptForgotten { vector: 1, .. },
        OnlyVectorZero => WaitInterrupt, Breach::InterruptMissing { vector: 1, .. },
        OnlyVectorOne => WaitInterrupt, Breach::InterruptMissing { vector: 0, .. },
    }
}

#[test]
fn a_doorbell_that_only_events_need_is_found_without_interrupts_too() {
    let judged = judge_with(Fault::HighHalfLost, 0);
    assert!(
        matches!(
            judged,
            Err(ConformanceError::Breach(Breach::NoEvent { .. }))
        ),
        "{judged:?}"
    );
}
