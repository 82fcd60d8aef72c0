//! `ocpdeploy state`: copies a cluster's record to another computer.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::args::OneCluster;

/// Copy a cluster's record to another computer
///
/// The record is what this computer stores about a cluster: its platform, its addresses,
/// the completed steps, the admin kubeconfig, and the Ignition configs that later nodes
/// require. Without the record, you can find the cluster only on its platform, with
/// `ocpdeploy audit`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy state export lab -o lab.age    # prompts for a passphrase
  ocpdeploy state import lab.age           # on the other computer")]
pub struct StateCommand {
    #[command(subcommand)]
    pub verb: StateVerb,
}

#[derive(Debug, Subcommand)]
pub enum StateVerb {
    Export(StateExport),
    Import(StateImport),
}

/// Write a cluster's record to one encrypted file
///
/// Encrypts with a passphrase, or to the keys of recipients. The file contains the
/// cluster's secrets: its admin kubeconfig, and Ignition configs with the pull secret.
/// To unpack it without ocpdeploy, run `age --decrypt FILE | tar -xz`. Leaves out logs,
/// backups of etcd, downloads, and the credentials of the platform.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy state export lab -o lab.age          # prompts for a passphrase
  ocpdeploy state export lab -o lab.age --passphrase-file lab.passphrase
  ocpdeploy state export lab -o lab.age --recipients-file team.keys")]
pub struct StateExport {
    #[command(flatten)]
    pub of: OneCluster,
    /// File to write, with mode 0600
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// File that contains only the passphrase [default: prompt]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["recipients", "recipients_file"])]
    pub passphrase_file: Option<PathBuf>,
    /// Encrypt to this key, as age-keygen prints it (age1…); repeatable
    #[arg(long = "recipient", value_name = "KEY", value_parser = recipient)]
    pub recipients: Vec<age::x25519::Recipient>,
    /// Encrypt to the keys in FILE, one per line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub recipients_file: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    pub force: bool,
}

/// Import a cluster's record from a file of `ocpdeploy state export`
///
/// Import only files from people whom you trust: later commands use their content. After
/// the import, run commands on one of the computers only: their records are not
/// synchronized.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy state import lab.age                     # prompts for a passphrase
  ocpdeploy state import lab.age --identity key.txt  # encrypted to your key
  ocpdeploy state import lab.age --replace")]
pub struct StateImport {
    /// File to read
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// File that contains only the passphrase [default: prompt]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "identity")]
    pub passphrase_file: Option<PathBuf>,
    /// File with your private key, as age-keygen writes it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub identity: Option<PathBuf>,
    /// Replace the record of the same cluster on this computer
    #[arg(long)]
    pub replace: bool,
}

/// A public key of age.
pub fn recipient(text: &str) -> Result<age::x25519::Recipient, String> {
    let invalid = |why| format!("{why}; a key begins with `age1`");
    text.parse().map_err(invalid)
}
