//! UCX's `uct_rc_mlx5` in its release build, and what it takes.

use super::program::{Build, Count, Doorbell, Program, costs};
use super::source;
use std::fs;
use std::path::Path;

const PACKAGE: &str = "ucx";
/// Debian's release.
const SUITE: &str = "bookworm";

/// The program with the shapes that it has.
const SHAPES: &str = include_str!("ucx.c");
/// Those of its files that the data path is in, and what that calls; our program has the interface's file in itself.
const FILES: [&str; 6] = [
    "uct/ib/rc/accel/rc_mlx5_ep.c",
    "uct/ib/rc/accel/rc_mlx5_common.c",
    "uct/ib/rc/base/rc_ep.c",
    "uct/ib/rc/base/rc_iface.c",
    "uct/ib/mlx5/ib_mlx5.c",
    "ucs/datastruct/arbiter.c",
];

/// As its `configure` has them.
const FLAGS: [&str; 3] = ["-std=gnu99", "-D_GNU_SOURCE", "-DHAVE_CONFIG_H"];
/// `contrib/configure-release`, and the same for processors that have AVX.
const BUILDS: [Build; 2] = [
    Build {
        name: "-O3",
        flags: &["-O3"],
    },
    Build {
        name: "-O3 -mavx",
        flags: &["-O3", "-mavx"],
    },
];

/// The findings of `contrib/configure-release` beside libibverbs and libmlx5 of these years: no logs, no assertions, no checks of
/// parameters.
const CONFIG: &str = "\
#define ENABLE_MT 0
#define ENABLE_PARAMS_CHECK 0
#define ENABLE_DEBUG_DATA 0
#define UCS_MAX_LOG_LEVEL UCS_LOG_LEVEL_DEBUG
#define NVALGRIND 1
#define HAVE_IB 1
#define HAVE_TL_RC 1
#define HAVE_TL_DC 1
#define HAVE_TL_UD 1
#define HAVE_DC_DV 1
#define HAVE_DEVX 1
#define HAVE_IBV_DM 1
#define HAVE_MLX5_DV 1
#define HAVE_MLX5_HW 1
#define HAVE_ODP 1
#define HAVE_ODP_IMPLICIT 1
#define HAVE_PREFETCH 1
#define IBV_HW_TM 1
#define HAVE_ALLOCA_H 1
#define HAVE_CPU_SET_T 1
#define HAVE_INFINIBAND_MLX5DV_H 1
#define HAVE_INFINIBAND_TM_TYPES_H 1
#define HAVE_STRUCT_IBV_TM_CAPS_FLAGS 1
#define HAVE_STRUCT_MLX5DV_CQ_CQ_UAR 1
#define HAVE_DECL_IBV_ACCESS_ON_DEMAND 1
#define HAVE_DECL_IBV_ACCESS_RELAXED_ORDERING 1
#define HAVE_DECL_IBV_ALLOC_TD 1
#define HAVE_DECL_IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN 1
#define HAVE_DECL_IBV_CREATE_CQ_EX 1
#define HAVE_DECL_IBV_CREATE_QP_EX 1
#define HAVE_DECL_IBV_CREATE_SRQ_EX 1
#define HAVE_DECL_IBV_EVENT_GID_CHANGE 1
#define HAVE_DECL_IBV_LINK_LAYER_ETHERNET 1
#define HAVE_DECL_IBV_LINK_LAYER_INFINIBAND 1
#define HAVE_DECL_IBV_QPF_GRH_REQUIRED 1
#define HAVE_DECL_IBV_QUERY_DEVICE_EX 1
#define HAVE_DECL_MLX5DV_CREATE_QP 1
#define HAVE_DECL_MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE 1
#define HAVE_DECL_MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE 1
#define HAVE_DECL_MLX5DV_DCTYPE_DCT 1
#define HAVE_DECL_MLX5DV_DEVX_SUBSCRIBE_DEVX_EVENT 1
#define HAVE_DECL_MLX5DV_INIT_OBJ 1
#define HAVE_DECL_MLX5DV_IS_SUPPORTED 1
#define HAVE_DECL_MLX5DV_OBJ_AH 1
#define HAVE_DECL_MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE 1
#define HAVE_DECL_MLX5DV_UAR_ALLOC_TYPE_BF 1
#define HAVE_DECL_MLX5DV_UAR_ALLOC_TYPE_NC 1
";
/// The header that `configure` makes; what it says of the version is not used.
const VERSION: &str = "\
#define UCT_API 0
#define UCT_VERSION(major, minor) (((major) << 24) | ((minor) << 16))
";

/// The counts of UCX.
pub(super) struct Counts {
    /// The package and its version.
    pub(super) version: String,
    pub(super) all: Vec<Count>,
}

/// Fetches it, compiles it beside rdma-core's headers, and counts.
pub(super) fn count(directory: &Path) -> Result<Counts, String> {
    let source = source::fetch(directory, PACKAGE, SUITE)?;
    let made = directory.join("ucx-made");
    let file = directory.join("ucx.c");
    let write = |path: &Path, text: &str| {
        let folder = path.parent().unwrap_or(directory);
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(path, text))
            .map_err(|error| format!("{}: {error}", path.display()))
    };
    write(&made.join("config.h"), CONFIG)?;
    write(&made.join("uct/api/version.h"), VERSION)?;
    write(&file, SHAPES)?;
    let folder = source.folder.join("src");
    let mut files: Vec<_> = FILES.iter().map(|name| folder.join(name)).collect();
    files.push(file);
    let include = [
        made,
        directory.join("include"),
        source.folder.clone(),
        folder.clone(),
        folder.join("uct/ib"),
    ];
    let program = Program {
        name: "ucx-shapes",
        flags: &FLAGS,
        include: &include,
        files: &files,
    };
    let mut all = Vec::new();
    for build in BUILDS {
        let program = program.compile(directory, build)?;
        for doorbell in Doorbell::ALL {
            all.push(Count {
                build: build.name,
                doorbell,
                costs: costs(&program, &[doorbell.argument()])?,
            });
        }
    }
    Ok(Counts {
        version: format!("{PACKAGE} {}", source.version),
        all,
    })
}
