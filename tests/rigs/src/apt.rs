//! Packages of Debian's, from the archive that the machine's apt is configured for.
//!
//! apt works on a private state directory, signatures checked with the machine's keyring, and nothing is installed:
//! packages are downloaded and unpacked. Proxies, certificates and passwords are those of the machine's configuration, which
//! apt reads besides the file here.

use crate::folder::{empty, walk};
use crate::process::{quiet_output, quietly};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// The variable that names an archive in place of apt's configuration.
const MIRROR: &str = "DEBIAN_MIRROR";

/// apt with a private state directory, in which nothing is installed.
pub(crate) struct Apt {
    directory: PathBuf,
    config: PathBuf,
}

impl Apt {
    /// With the packages of the releases that machines and guests have.
    pub(crate) fn new(directory: &Path) -> Result<Self, String> {
        let suites = ["bookworm", "trixie", "trixie-updates", "trixie-backports"];
        Self::of(directory, "deb", &suites)
    }

    /// With the packages of one release.
    pub(crate) fn of_suite(directory: &Path, suite: &str) -> Result<Self, String> {
        Self::of(directory, "deb", &[suite])
    }

    /// With the source packages of one release.
    pub(crate) fn of_sources(directory: &Path, suite: &str) -> Result<Self, String> {
        Self::of(directory, "deb-src", &[suite])
    }

    fn of(directory: &Path, kind: &str, suites: &[&str]) -> Result<Self, String> {
        let state = directory.join("apt");
        let fail = |error: std::io::Error| format!("{}: {error}", state.display());
        for name in ["lists/partial", "archives/partial", "state", "preferences"] {
            fs::create_dir_all(state.join(name)).map_err(fail)?;
        }
        fs::write(state.join("status"), "").map_err(fail)?;
        let path = state.join("apt.conf");
        fs::write(&path, config(&state)).map_err(fail)?;
        let apt = Self {
            directory: directory.to_path_buf(),
            config: path,
        };
        let mut failures = String::new();
        for archive in archives()? {
            let sources: String = suites
                .iter()
                .map(|suite| format!("{kind} [signed-by={KEYRING}] {archive} {suite} main\n"))
                .collect();
            fs::write(state.join("sources.list"), sources).map_err(fail)?;
            match apt.run("apt-get", ["-q", "update"]) {
                Ok(_) => return Ok(apt),
                Err(error) => failures.push_str(&format!("{archive}: {error}")),
            }
        }
        Err(format!(
            "none of the archives that apt is configured for has {suites:?} with Debian's signature \
             ({MIRROR} names another):\n{failures}"
        ))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("APT_CONFIG", &self.config)
            .env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    fn run<'a>(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = &'a str>,
    ) -> Result<String, String> {
        quiet_output(self.command(program).args(arguments))
    }

    /// Downloads packages of a suite with everything they depend on.
    pub(crate) fn fetch_closure(
        &self,
        packages: &[&str],
        suite: &str,
    ) -> Result<Vec<PathBuf>, String> {
        let archives = self.directory.join("apt/archives");
        // Packages that only an older run needed must not be unpacked with those of this run.
        for deb in debs(&archives)? {
            fs::remove_file(&deb).map_err(|error| format!("{}: {error}", deb.display()))?;
        }
        let options = ["-q", "-y", "--download-only", "-t", suite, "install"];
        self.run(
            "apt-get",
            options.into_iter().chain(packages.iter().copied()),
        )?;
        debs(&archives)
    }

    /// Downloads packages, and nothing that they depend on, into a directory of their own.
    pub(crate) fn fetch(&self, into: &Path, packages: &[&str]) -> Result<Vec<PathBuf>, String> {
        empty(into)?;
        quiet_output(
            self.command("apt-get")
                .current_dir(into)
                .args(["-q", "download"])
                .args(packages),
        )?;
        debs(into)
    }

    /// Downloads the upstream sources of a package, without Debian's changes to them, and unpacks them. The package's version.
    pub(crate) fn fetch_source(&self, package: &str, into: &Path) -> Result<String, String> {
        empty(into)?;
        let about = self.run("apt-cache", ["showsrc", "--only-source", package])?;
        let version = about
            .lines()
            .find_map(|line| line.strip_prefix("Version: "))
            .ok_or_else(|| format!("no version of {package} in:\n{about}"))?;
        let exact = format!("{package}={version}");
        let mut fetch = self.command("apt-get");
        fetch
            .current_dir(into)
            .args(["-q", "source", "--download-only", "--tar-only"]);
        quiet_output(fetch.arg(exact))?;
        let mut found = Vec::new();
        walk(into, &mut found).map_err(|error| format!("{}: {error}", into.display()))?;
        let [archive] = &found[..] else {
            return Err(format!("{package}: not one archive but {found:?}"));
        };
        let mut tar = Command::new("tar");
        quietly(
            tar.args(["--strip-components=1", "-C"])
                .arg(into)
                .arg("-xf")
                .arg(archive),
        )?;
        Ok(version.to_string())
    }

    /// The release that the suite's kernel metapackage depends on, and the packages that it is made of: one, or since
    /// Linux 7 several.
    pub(crate) fn kernel(&self, suite: &str) -> Result<(String, Vec<String>), String> {
        let plan = self.run(
            "apt-get",
            ["-q", "-s", "-t", suite, "install", "linux-image-amd64"],
        )?;
        let packages: Vec<&str> = plan
            .lines()
            .filter_map(|line| line.strip_prefix("Inst ")?.split(' ').next())
            .collect();
        let release = packages
            .iter()
            .filter_map(|package| package.strip_prefix("linux-image-"))
            .find(|release| release.starts_with(|c: char| c.is_ascii_digit()))
            .ok_or_else(|| format!("linux-image-amd64 of {suite} has no kernel:\n{plan}"))?;
        let of_release = |package: &&&str| package.strip_suffix(release).is_some();
        let packages = packages.iter().filter(of_release);
        let packages = packages.map(|package| package.to_string()).collect();
        Ok((release.to_string(), packages))
    }
}

fn debs(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let fail = |error: std::io::Error| format!("{}: {error}", directory.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.extension() == Some(OsStr::new("deb")) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The configuration of an apt whose files are all below a directory.
fn config(state: &Path) -> String {
    let at = state.display();
    format!(
        "Dir::Etc::sourcelist \"{at}/sources.list\";\n\
         Dir::Etc::sourceparts \"/dev/null\";\n\
         Dir::Etc::preferencesparts \"{at}/preferences\";\n\
         Dir::State \"{at}/state\";\n\
         Dir::State::lists \"{at}/lists\";\n\
         Dir::State::status \"{at}/status\";\n\
         Dir::Cache \"{at}\";\n\
         Dir::Cache::archives \"{at}/archives\";\n\
         APT::Architecture \"amd64\";\n\
         APT::Architectures {{ \"amd64\"; }};\n\
         APT::Install-Recommends \"false\";\n\
         APT::Sandbox::User \"root\";\n\
         Acquire::Languages \"none\";\n\
         Acquire::Retries \"3\";\n\
         Acquire::http::Timeout \"60\";\n\
         APT::Update::Error-Mode \"any\";\n"
    )
}

/// Base addresses of the archives that may be Debian's, in the order of apt's sources.
fn archives() -> Result<Vec<String>, String> {
    if let Ok(mirror) = std::env::var(MIRROR) {
        return Ok(vec![mirror]);
    }
    // `apt-get indextargets` has nothing for sources that were never updated, which is how containers begin.
    let planned = quiet_output(Command::new("apt-get").args(["update", "--print-uris"]))?;
    let found = archives_in(&planned);
    if found.is_empty() {
        return Err(format!(
            "apt is configured for no archive that can be Debian's ({MIRROR} names one); `apt-get update --print-uris`:\n{planned}"
        ));
    }
    Ok(found)
}

/// The archives in what `apt-get update --print-uris` says that it would fetch: those with a component `main`. Others than
/// Debian have such a component as well; only the signature tells them apart. The archive of security updates has other suites.
fn archives_in(planned: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in planned.lines() {
        let uri = line
            .strip_prefix('\'')
            .and_then(|line| line.split_once("' "));
        let Some((archive, below)) = uri.and_then(|(uri, _)| uri.split_once("/dists/")) else {
            continue;
        };
        let Some((suite, _)) = below.split_once("/main/") else {
            continue;
        };
        let security = suite.ends_with("-security") || suite.ends_with("/updates");
        if !security && !found.iter().any(|known| known == archive) {
            found.push(archive.to_string());
        }
    }
    found
}

/// Unpacks a package into a directory.
pub(crate) fn unpack(deb: &Path, into: &Path) -> Result<(), String> {
    quietly(Command::new("dpkg-deb").arg("-x").arg(deb).arg(into))
}

#[cfg(test)]
mod tests {
    use super::archives_in;

    // Recorded from apt 2.6 on Debian 12, with its deb822 file of sources.
    #[test]
    fn the_archive_of_a_container_is_found_once_and_that_of_security_updates_is_not() {
        let planned = "\
'http://mirror.example/debian/dists/bookworm/InRelease' mirror.example_debian_dists_bookworm_InRelease 0 
'http://mirror.example/debian/dists/bookworm-updates/InRelease' mirror.example_debian_dists_bookworm-updates_InRelease 0 
'http://mirror.example/debian-security/dists/bookworm-security/InRelease' mirror.example_debian-security_dists_bookworm-security_InRelease 0 
'http://mirror.example/debian/dists/bookworm/main/binary-amd64/Packages.xz' mirror.example_debian_dists_bookworm_main_binary-amd64_Packages 0 
'http://mirror.example/debian/dists/bookworm-updates/main/binary-amd64/Packages.xz' mirror.example_debian_dists_bookworm-updates_main_binary-amd64_Packages 0 
'http://mirror.example/debian-security/dists/bookworm-security/main/binary-amd64/Packages.xz' mirror.example_debian-security_dists_bookworm-security_main_binary-amd64_Packages 0 
";
        assert_eq!(archives_in(planned), ["http://mirror.example/debian"]);
    }

    // Of the same apt: a list of mirrors as in Debian's images for clouds, a caching proxy with a password, a file system, an
    // archive of one component that is not `main`, one without releases, and old names for security updates.
    #[test]
    fn every_method_of_apt_and_other_archives_are_told_apart() {
        let planned = "\
'http://x.example/flat/./InRelease' x.example_flat_._InRelease 0 
'http://x.example/flat/./Packages.xz' x.example_flat_._Packages 0 
'https://download.example/linux/debian/dists/trixie/stable/binary-amd64/Packages.xz' download.example_linux_debian_dists_trixie_stable_binary-amd64_Packages 0 
'mirror+file:/etc/apt/mirrors/debian.list/dists/trixie/main/binary-amd64/Packages.xz' _etc_apt_mirrors_debian.list_dists_trixie_main_binary-amd64_Packages 0 
'mirror+file:/etc/apt/mirrors/debian.list/dists/trixie/contrib/binary-amd64/Packages.xz' _etc_apt_mirrors_debian.list_dists_trixie_contrib_binary-amd64_Packages 0 
'http://u:p@proxy.example:3142/debian/dists/trixie-updates/main/binary-amd64/Packages.xz' proxy.example:3142_debian_dists_trixie-updates_main_binary-amd64_Packages 0 
'http://old.example/security/dists/buster/updates/main/binary-amd64/Packages.xz' old.example_security_dists_buster_updates_main_binary-amd64_Packages 0 
'file:/srv/debian/dists/trixie/main/source/Sources.xz' _srv_debian_dists_trixie_main_source_Sources 0 
";
        assert_eq!(
            archives_in(planned),
            [
                "mirror+file:/etc/apt/mirrors/debian.list",
                "http://u:p@proxy.example:3142/debian",
                "file:/srv/debian",
            ]
        );
    }

    #[test]
    fn no_sources_and_other_text_name_no_archive() {
        for planned in [
            "",
            "\n",
            "E: Malformed entry 1",
            "'http://a/dists/",
            "'x' y",
        ] {
            assert!(archives_in(planned).is_empty(), "{planned:?}");
        }
    }
}
