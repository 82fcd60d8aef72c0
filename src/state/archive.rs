//! A cluster's record as one file: a gzipped tar, encrypted in the age format (C2SP/C2SP: `age.md`).
//!
//! `age --decrypt FILE | tar -tz` lists it.

use std::collections::BTreeSet;
use std::io::{self, Read};

use age::scrypt;
use age::secrecy::SecretString;
use age::stream::StreamReader;
use age::{DecryptError, Decryptor, Encryptor, Identity, Recipient};
use anyhow::Result;
use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use fs_err::File;
use jiff::Timestamp;

use crate::cluster::{ClusterDomain, NodeName};
use crate::state::dir::Dir;
use crate::state::home::{ClusterDir, write_private_unsynced};
use crate::state::inventory::{Cluster, Known};
use crate::state::journal;
use crate::state::parameters::Parameters;

/// The files of a record, by directory: what commands after the deployment read. `*` is the name of a node or a role.
/// `docs/reference/files.md` has the reason of each, and what is left out.
const FILES: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "cluster.json",
            "journal.jsonl",
            "known_hosts",
            "parameters.yaml",
            "settings.json",
        ],
    ),
    ("ignition", &["layers.json", "*.ign"]),
    ("installer", &[".openshift_install_state.json", "*.ign"]),
    ("installer/auth", &["kubeadmin-password", "kubeconfig"]),
];

/// Largest size of a file, of all files, and of an archive, in bytes.
const MOST_OF_FILE: u64 = 64 << 20;
const MOST: u64 = 1 << 30;

/// Largest number of files; a cluster has one for each node, and a few.
const MOST_FILES: usize = 10_000;

/// The work factor of a passphrase, as a power of two: the default of `age`, which takes about a second, and the
/// highest accepted one, which takes 1 GiB of memory (FiloSottile/age: `scrypt.go`).
const WORK: u8 = 18;
const MOST_WORK: u8 = 20;

/// Why an archive cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ArchiveError(String);

fn refused(why: impl Into<String>) -> anyhow::Error {
    ArchiveError(why.into()).into()
}

fn damaged(error: io::Error) -> anyhow::Error {
    refused(format!("it is truncated or damaged: {error}"))
}

/// A passphrase as the only recipient of an archive.
pub fn passphrase(passphrase: SecretString) -> Box<dyn Recipient> {
    let mut recipient = scrypt::Recipient::new(passphrase);
    recipient.set_work_factor(WORK);
    Box::new(recipient)
}

/// The counterpart of `passphrase`.
pub fn with_passphrase(passphrase: SecretString) -> Box<dyn Identity> {
    let mut identity = scrypt::Identity::new(passphrase);
    identity.set_max_work_factor(MOST_WORK);
    Box::new(identity)
}

/// The existing files of a record, by their path in the cluster's directory. Requires the cluster's lock.
pub fn files(dir: &ClusterDir) -> io::Result<Vec<String>> {
    let mut files = Vec::new();
    for (folder, _) in FILES {
        let names = match Dir::open_no_link(&dir.path().join(folder)) {
            Ok(folder) => folder.names()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let names = names.into_iter().filter_map(|name| name.into_string().ok());
        let paths = names.map(|name| match *folder {
            "" => name,
            folder => format!("{folder}/{name}"),
        });
        files.extend(paths.filter(|path| is_file(path)));
    }
    Ok(files)
}

/// Whether a record can have a file at this path.
fn is_file(path: &str) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let fits = |pattern: &str| match pattern.strip_prefix('*') {
        Some(end) => name
            .strip_suffix(end)
            .is_some_and(|name| name.parse::<NodeName>().is_ok()),
        None => name == pattern,
    };
    let names = FILES.iter().find(|(known, _)| *known == folder);
    names.is_some_and(|(_, names)| names.iter().any(|pattern| fits(pattern)))
}

/// A file of a record.
pub fn read(dir: &ClusterDir, path: &str) -> io::Result<Vec<u8>> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    Dir::open_no_link(&dir.path().join(folder))?.read(name, MOST_OF_FILE)
}

/// Packs the record of a cluster. Requires its lock.
pub fn pack(dir: &ClusterDir, recipients: &[Box<dyn Recipient>]) -> Result<Vec<u8>> {
    let encryptor = Encryptor::with_recipients(recipients.iter().map(AsRef::as_ref))?;
    let encrypted = encryptor.wrap_output(Vec::new())?;
    let mut tar = tar::Builder::new(GzEncoder::new(encrypted, Compression::default()));
    let now = Timestamp::now().as_second().unsigned_abs();
    let mut all = 0;
    let files = files(dir)?;
    for path in &files {
        let content = read(dir, path)?;
        all += content.len() as u64;
        if all > MOST || files.len() > MOST_FILES {
            return Err(refused("the record is too large"));
        }
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(now);
        tar.append_data(&mut header, path, content.as_slice())?;
    }
    Ok(tar.into_inner()?.finish()?.finish()?)
}

/// Reads the beginning of an archive, which shows whether it requires a passphrase.
pub fn open<R: Read>(archive: R) -> Result<Decryptor<io::Take<R>>> {
    Decryptor::new(archive.take(MOST)).map_err(|error| refused(format!("it is not an age file: {error}")))
}

/// Decrypts the key of an archive.
pub fn decrypt<R: Read>(archive: Decryptor<R>, identities: &[Box<dyn Identity>]) -> Result<StreamReader<R>> {
    let key = match archive.is_scrypt() {
        true => "the passphrase is wrong",
        false => "it is not encrypted to this identity",
    };
    let decrypted = archive.decrypt(identities.iter().map(AsRef::as_ref));
    decrypted.map_err(|error| match error {
        DecryptError::DecryptionFailed | DecryptError::NoMatchingKeys => refused(key),
        error => refused(format!("cannot decrypt it: {error}")),
    })
}

/// Unpacks a decrypted archive into an empty directory, and reads the cluster in it.
pub fn unpack(decrypted: impl Read, into: &ClusterDir) -> Result<Cluster> {
    let unzipped = MultiGzDecoder::new(io::BufReader::new(decrypted)).take(2 * MOST);
    let mut tar = tar::Archive::new(unzipped);
    let (mut seen, mut all) = (BTreeSet::new(), 0);
    // Raw: names and sizes are those of the headers, and no extension is read.
    for entry in tar.entries().map_err(damaged)?.raw(true) {
        let mut entry = entry.map_err(damaged)?;
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let size = entry.size();
        all = size.saturating_add(all);
        if !is_file(&path) || !entry.header().entry_type().is_file() {
            return Err(refused(format!("{path} in it is not a file of a cluster's record")));
        }
        if size > MOST_OF_FILE || all > MOST || seen.len() == MOST_FILES {
            return Err(refused(format!("{path} in it is too large, or it has too many files")));
        }
        let mut content = Vec::new();
        entry.read_to_end(&mut content).map_err(damaged)?;
        if content.len() as u64 != size {
            return Err(damaged(io::ErrorKind::UnexpectedEof.into()));
        }
        write_private_unsynced(&into.path().join(&path), &content)?;
        if !seen.insert(path.clone()) {
            return Err(refused(format!("{path} is in it twice")));
        }
    }
    // Only the last bytes show that nothing is missing.
    let mut rest = tar.into_inner();
    io::copy(&mut rest, &mut io::sink()).map_err(damaged)?;
    if rest.limit() == 0 {
        return Err(refused("it is too large"));
    }
    let cluster = cluster(into)?;
    for path in seen {
        File::open(into.path().join(path))?.sync_all()?;
    }
    for (folder, _) in FILES {
        match Dir::open_no_link(&into.path().join(folder)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            folder => folder?.sync()?,
        }
    }
    Ok(cluster)
}

/// The cluster of an unpacked record, all of whose files must be valid.
fn cluster(dir: &ClusterDir) -> Result<Cluster> {
    let invalid = |file, error: anyhow::Error| refused(format!("its {file} is invalid: {}", error.root_cause()));
    let known = Known::read(dir).map_err(|error| invalid("cluster.json", error.into()))?;
    let known = known.ok_or_else(|| refused("it has no cluster.json"))?;
    // The name becomes that of a directory, both become names in files of the resolver.
    ClusterDomain::checked(&known.name, &known.domain).map_err(|why| refused(format!("its cluster.json: {why}")))?;
    let parameters = Parameters::read(&dir.parameters()).map_err(|error| invalid("parameters.yaml", error.into()))?;
    journal::read(&dir.journal()).map_err(|error| invalid("journal.jsonl", error.into()))?;
    match &parameters {
        Some(table) if table.cluster_domain() != known.cluster_domain() => Err(refused(format!(
            "its cluster.json is for {}, its parameters.yaml for {}",
            known.cluster_domain(),
            table.cluster_domain()
        ))),
        _ => Ok(Cluster { known, parameters }),
    }
}
