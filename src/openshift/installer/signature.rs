//! OpenPGP signatures of checksum lists: whether a trusted key has signed exactly these bytes.
//!
//! A list on mirror.openshift.com has its signature beside it, `sha256sum.txt.gpg` (openshift-eng/art-tools:
//! `pyartcd/pyartcd/signatory.py`, `sign_message_digest`). `oc adm release extract --tools --signing-key` writes a
//! detached one, `sha256sum.txt.asc` (openshift/oc: `pkg/cli/admin/release/extract_tools.go`). Both forms that GnuPG
//! writes are read: a detached signature, and a signed message that repeats the list.

use std::io::Read;
use std::path::Path;

use jiff::Timestamp;
use pgp::composed::{Deserializable, DetachedSignature, Message, SignedPublicKey};
use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{PublicKey, PublicSubkey, Signature, SignatureType};
use pgp::types::{KeyDetails, Tag, VerifyingKey};

use crate::error::{ErrorKind, OperationError};
use crate::limited_file;

/// The keys of the vendor's releases; for their origin see `keys/README.md`.
const VENDOR: &str = include_str!("keys/redhat.asc");

/// Tolerated difference of clocks, in seconds.
const SKEW: i64 = 24 * 3600;

/// Keys that may sign.
pub(super) struct SigningKeys(Vec<SignedPublicKey>);

impl SigningKeys {
    /// The keys of Red Hat's releases.
    pub fn vendor() -> Result<Self, OperationError> {
        Self::read(VENDOR.as_bytes()).map_err(|why| unusable("of this program", &why))
    }

    /// The keys of a file.
    pub fn of_file(path: &Path) -> Result<Self, OperationError> {
        let text = limited_file::read(path).map_err(|error| error.to_string());
        let keys = text.and_then(|text| Self::read(&text));
        keys.map_err(|why| unusable(&path.display().to_string(), &why))
    }

    /// Adds other keys.
    pub fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Public keys, ASCII-armored or not.
    pub fn read(text: &[u8]) -> Result<Self, String> {
        let words = |error: pgp::errors::Error| error.to_string();
        let (keys, _) = SignedPublicKey::from_reader_many(text).map_err(words)?;
        let keys: Vec<_> = keys.collect::<Result<_, _>>().map_err(words)?;
        match keys.is_empty() {
            true => Err("it contains no public key".to_owned()),
            false => Ok(Self(keys)),
        }
    }

    /// In hexadecimal, upper case.
    pub fn fingerprints(&self) -> Vec<String> {
        let fingerprint = |key: &SignedPublicKey| format!("{:X}", key.fingerprint());
        self.0.iter().map(fingerprint).collect()
    }

    /// Checks that one of these keys has signed `content`; returns the key's fingerprint.
    ///
    /// # Errors
    /// Why no signature is valid.
    pub fn verify(&self, content: &[u8], signature: &[u8], now: Timestamp) -> Result<String, String> {
        let detached = DetachedSignature::from_reader_many(signature);
        let detached = detached.and_then(|(all, _)| all.collect::<Result<Vec<_>, _>>());
        if let Ok(all) = detached
            && !all.is_empty()
        {
            let judged = all.iter().map(|one| {
                let fits = |signer: &Signer<'_>| match signer.key {
                    Key::Primary(key) => one.verify(key, content).is_ok(),
                    Key::Sub(key) => one.verify(key, content).is_ok(),
                };
                self.judge(&one.signature, fits, now)
            });
            return first_good(judged);
        }
        self.verify_message(content, signature, now)
    }

    fn verify_message(&self, content: &[u8], message: &[u8], now: Timestamp) -> Result<String, String> {
        let other = || "it is a signature of another file".to_owned();
        match self.content(message, content.len(), now)? {
            Some((signed, key)) if signed == content => Ok(key),
            _ => Err(other()),
        }
    }

    /// The content of a signed message and the fingerprint of a trusted key that has signed it; `None` if it is longer
    /// than `limit` bytes.
    ///
    /// # Errors
    /// Why no signature is valid.
    pub fn content(&self, message: &[u8], limit: usize, now: Timestamp) -> Result<Option<(Vec<u8>, String)>, String> {
        let unreadable = |error: pgp::errors::Error| format!("not an OpenPGP signature: {error}");
        let (mut message, _) = Message::from_reader(message).map_err(unreadable)?;
        while message.is_compressed() {
            message = message.decompress().map_err(unreadable)?;
        }
        // One extra byte detects longer content; compressed content may have any number of zeros.
        let mut signed = Vec::new();
        let read = (&mut message).take(limit as u64 + 1).read_to_end(&mut signed);
        read.map_err(|error| format!("not an OpenPGP signature: {error}"))?;
        // Its signatures are known only at its end.
        if signed.len() > limit || !matches!(message.read(&mut [0]), Ok(0)) {
            return Ok(None);
        }
        let Message::Signed { reader, .. } = &message else {
            return Err("it is not signed".to_owned());
        };
        let judged = (0..reader.num_signatures()).filter_map(|index| {
            let fits = |signer: &Signer<'_>| message.verify_nested_explicit(index, signer.key.verifying()).is_ok();
            Some(self.judge(reader.signature(index)?, fits, now))
        });
        first_good(judged).map(|key| Some((signed, key)))
    }

    /// Checks one signature; `fits` compares it with the content.
    fn judge(
        &self,
        signature: &Signature,
        fits: impl Fn(&Signer<'_>) -> bool,
        now: Timestamp,
    ) -> Result<String, String> {
        let strong = [
            HashAlgorithm::Sha256,
            HashAlgorithm::Sha384,
            HashAlgorithm::Sha512,
            HashAlgorithm::Sha3_256,
            HashAlgorithm::Sha3_512,
        ];
        if !signature.hash_alg().is_some_and(|hash| strong.contains(&hash)) {
            return Err("its digest algorithm is too weak".to_owned());
        }
        if !matches!(signature.typ(), Some(SignatureType::Binary | SignatureType::Text)) {
            return Err("it is not the signature of a file".to_owned());
        }
        let signers: Vec<Signer<'_>> = self.0.iter().flat_map(Signer::of).collect();
        let Some(signer) = signers.iter().find(|signer| signer.made(signature)) else {
            let ids = signature.issuer_key_id();
            let by = ids
                .first()
                .map_or("an unnamed key".to_owned(), |id| format!("key {id}"));
            let trusted = self.fingerprints().join(", ");
            return Err(format!("it is made with {by}, but trusted keys are {trusted}"));
        };
        if !fits(signer) {
            return Err("it does not match the file".to_owned());
        }
        let (now, name) = (now.as_second(), signer.fingerprint());
        let created = signature.created().map_or(i64::MAX, |time| i64::from(time.as_secs()));
        let lasts = signature
            .signature_expiration_time()
            .map_or(0, |time| i64::from(time.as_secs()));
        if created > now + SKEW || created + SKEW < signer.created {
            return Err("its creation time is invalid".to_owned());
        }
        if lasts > 0 && created + lasts < now {
            return Err("it has expired".to_owned());
        }
        match signer.state {
            State::Good => Ok(name),
            State::Expires(at) if at > now => Ok(name),
            State::Expires(_) => Err(format!("key {name} has expired")),
            State::Revoked => Err(format!("key {name} is revoked")),
            State::Unfit => Err(format!("key {name} is not a signing key")),
        }
    }
}

/// The error of public keys that cannot be read.
fn unusable(place: &str, why: &str) -> OperationError {
    OperationError::new(ErrorKind::Tool, format!("cannot use public key {place}: {why}"))
        .hint("create the file for installer_mirror_key with `gpg --export --armor KEY`")
}

/// The first success, otherwise the first error.
fn first_good(judged: impl Iterator<Item = Result<String, String>>) -> Result<String, String> {
    let mut reason = Err("it has no signature".to_owned());
    for (index, one) in judged.enumerate() {
        match one {
            Ok(name) => return Ok(name),
            Err(why) if index == 0 => reason = Err(why),
            Err(_) => {}
        }
    }
    reason
}

/// A key's state according to its own signatures.
#[derive(Clone, Copy)]
enum State {
    Good,
    /// Second since the epoch.
    Expires(i64),
    Revoked,
    Unfit,
}

enum Key<'a> {
    Primary(&'a PublicKey),
    Sub(&'a PublicSubkey),
}

impl<'a> Key<'a> {
    fn verifying(&self) -> &'a dyn VerifyingKey {
        match self {
            Self::Primary(key) => *key,
            Self::Sub(key) => *key,
        }
    }
}

/// A key or subkey that may have created a signature.
struct Signer<'a> {
    key: Key<'a>,
    /// Second since the epoch.
    created: i64,
    state: State,
}

impl<'a> Signer<'a> {
    /// The key and its subkeys.
    fn of(whole: &'a SignedPublicKey) -> Vec<Self> {
        let primary = &whole.primary_key;
        let of_users = whole.details.users.iter().flat_map(|user| {
            let own = |one: &&Signature| {
                one.is_certification() && one.verify_certification(primary, Tag::UserId, &user.id).is_ok()
            };
            user.signatures.iter().filter(own)
        });
        let direct = whole.details.direct_signatures.iter();
        let own: Vec<&Signature> = of_users
            .chain(direct.filter(|one| one.verify_key(primary).is_ok()))
            .collect();
        let revoked = &whole.details.revocation_signatures;
        let revoked = revoked.iter().any(|one| one.verify_key(primary).is_ok());
        let created = i64::from(primary.created_at().as_secs());
        let whole_state = match revoked {
            true => State::Revoked,
            false => state(&own, created),
        };
        let mut signers = vec![Self {
            key: Key::Primary(primary),
            created,
            state: whole_state,
        }];
        for sub in &whole.public_subkeys {
            let created = i64::from(sub.key.created_at().as_secs());
            let is_revoked = |one: &Signature| one.typ() == Some(SignatureType::SubkeyRevocation);
            let bindings: Vec<&Signature> = sub.signatures.iter().collect();
            let of_sub = match whole_state {
                // A primary key's state also applies to its subkeys.
                State::Revoked => State::Revoked,
                _ if bindings.iter().any(|one| is_revoked(one)) => State::Revoked,
                _ if sub.verify_bindings(primary).is_err() => State::Unfit,
                _ => state(&bindings, created),
            };
            let state = match (whole_state, of_sub) {
                (State::Expires(whole), State::Good) => State::Expires(whole),
                (State::Expires(whole), State::Expires(sub)) => State::Expires(whole.min(sub)),
                (_, of_sub) => of_sub,
            };
            signers.push(Self {
                key: Key::Sub(&sub.key),
                created,
                state,
            });
        }
        signers
    }

    fn fingerprint(&self) -> String {
        format!("{:X}", self.key.verifying().fingerprint())
    }

    /// Whether a signature names this key as its creator.
    fn made(&self, signature: &Signature) -> bool {
        let key = self.key.verifying();
        let (id, fingerprint) = (key.legacy_key_id(), key.fingerprint());
        signature.issuer_key_id().contains(&&id) || signature.issuer_fingerprint().contains(&&fingerprint)
    }
}

/// The newest of a key's own signatures decides whether it may sign, and until when.
fn state(own: &[&Signature], created: i64) -> State {
    let newest = own
        .iter()
        .max_by_key(|one| one.created().map_or(0, |time| time.as_secs()));
    let Some(newest) = newest.filter(|newest| newest.key_flags().sign()) else {
        return State::Unfit;
    };
    match newest.key_expiration_time().map_or(0, |time| time.as_secs()) {
        0 => State::Good,
        lasts => State::Expires(created + i64::from(lasts)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vendors_keys_are_those_of_their_published_fingerprints_and_may_sign() {
        let keys = SigningKeys::vendor().unwrap();
        assert_eq!(
            keys.fingerprints(),
            [
                "567E347AD0044ADE55BA8A5F199E2F91FD431D51",
                "B08B659EE86AF623BC90E8DB938A80CAF21541EB"
            ]
        );
        for key in &keys.0 {
            key.verify_bindings().unwrap();
            let signers = Signer::of(key);
            assert_eq!(signers.len(), 1, "no subkeys");
            assert!(matches!(signers[0].state, State::Good));
        }
    }
}
