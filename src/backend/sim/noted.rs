//! A map that records which of its entries changed, so that only these are written.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A `BTreeMap` that records the keys of changed entries until `take_changes`.
#[derive(Clone, Debug)]
pub(super) struct Noted<K, V> {
    map: BTreeMap<K, V>,
    changed: BTreeSet<K>,
}

/// The new values of changed entries; `None` is a removed entry. As JSON, a merge patch (RFC 7396) of the map.
pub(super) type Changes<K, V> = BTreeMap<K, Option<V>>;

impl<K: Ord + Clone, V: Clone> Noted<K, V> {
    pub fn insert(&mut self, key: K, value: V) {
        self.changed.insert(key.clone());
        self.map.insert(key, value);
    }

    pub fn remove(&mut self, key: &K) {
        if self.map.remove(key).is_some() {
            self.changed.insert(key.clone());
        }
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let value = self.map.get_mut(key)?;
        self.changed.insert(key.clone());
        Some(value)
    }

    /// Removes the entries for which `stays` is false.
    pub fn retain(&mut self, stays: impl Fn(&K, &V) -> bool) {
        self.map.retain(|key, value| {
            let stays = stays(key, value);
            if !stays {
                self.changed.insert(key.clone());
            }
            stays
        });
    }

    /// The changes since the last call.
    pub fn take_changes(&mut self) -> Changes<K, V> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        changed
            .map(|key| {
                let now = self.map.get(&key).cloned();
                (key, now)
            })
            .collect()
    }

    /// Applies changes that were read from the file.
    pub fn apply(&mut self, changes: Changes<K, V>) {
        for (key, value) in changes {
            match value {
                Some(value) => _ = self.map.insert(key, value),
                None => _ = self.map.remove(&key),
            }
        }
    }
}

impl<K, V> Default for Noted<K, V> {
    fn default() -> Self {
        Self {
            map: BTreeMap::new(),
            changed: BTreeSet::new(),
        }
    }
}

impl<K, V> Deref for Noted<K, V> {
    type Target = BTreeMap<K, V>;

    fn deref(&self) -> &Self::Target {
        &self.map
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for Noted<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.map == other.map
    }
}

impl<K: Eq, V: Eq> Eq for Noted<K, V> {}

impl<K: Serialize, V: Serialize> Serialize for Noted<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.map.serialize(serializer)
    }
}

impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>> Deserialize<'de> for Noted<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self {
            map: BTreeMap::deserialize(deserializer)?,
            changed: BTreeSet::new(),
        })
    }
}
