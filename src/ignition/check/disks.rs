//! Disks, partitions, arrays, encrypted volumes and filesystems.

use super::at::At;
use super::judge::Judge;
use super::nodes::path_fault;
use super::{resource, url};

pub fn storage(judge: &mut Judge, storage: &At) {
    for disk in storage.entries("disks") {
        one_disk(judge, &disk);
    }
    for array in storage.entries("raid") {
        raid(judge, &array);
    }
    if judge.spec >= 2 {
        for volume in storage.entries("luks") {
            luks(judge, &volume);
        }
    }
    for filesystem in storage.entries("filesystems") {
        one_filesystem(judge, &filesystem);
        let device = filesystem.text("device");
        for disk in storage.entries("disks").filter(|disk| disk.text("device") == device) {
            if !disk.list("partitions").is_empty() {
                judge.warning(
                    &filesystem.get("device"),
                    "the filesystem overwrites this disk's partitions",
                );
            } else if disk.flag("wipeTable") == Some(true) && filesystem.flag("wipeFilesystem") != Some(true) {
                judge.warning(
                    &filesystem.get("device"),
                    "`wipeTable` of this disk wipes the filesystem too",
                );
            }
        }
    }
}

fn path(judge: &mut Judge, at: &At, name: &str) {
    if let Some(fault) = path_fault(at.text(name).unwrap_or_default()) {
        judge.error(&at.get(name), fault);
    }
}

fn one_disk(judge: &mut Judge, disk: &At) {
    path(judge, disk, "device");
    for partition in disk.entries("partitions") {
        one_partition(judge, &partition);
    }
    let partitions: Vec<At> = disk.entries("partitions").collect();
    let number = |partition: &At| partition.number("number").unwrap_or_default();
    for (index, partition) in partitions.iter().enumerate() {
        let before = &partitions[..index];
        // Duplicate numbers, or duplicate labels without numbers, are already reported: these are the list's keys.
        let label = partition.text("label");
        let same = |other: &At| other.text("label") == label && (number(other) != 0 || number(partition) != 0);
        if label.is_some() && before.iter().any(same) {
            judge.error(partition, "two partitions have the same label");
        }
        if before
            .iter()
            .any(|other| overlap(other, partition) || overlap(partition, other))
        {
            judge.error(partition, "the partition overlaps another partition");
        }
    }
    let goes = partitions
        .iter()
        .any(|partition| partition.flag("shouldExist") == Some(false));
    if goes && partitions.iter().any(|partition| number(partition) == 0) {
        let text = "if a partition must not exist, all partitions need numbers";
        judge.error(&disk.get("partitions"), text);
    }
}

/// Whether two partitions overlap; without start or size this is unknown.
fn overlap(one: &At, other: &At) -> bool {
    let range = |partition: &At| {
        let (start, size) = (partition.number("startMiB")?, partition.number("sizeMiB")?);
        // A size of 0 uses the free space.
        let end = if size == 0 {
            start
        } else {
            start.wrapping_add(size).wrapping_sub(1)
        };
        (start != 0).then_some((start, end))
    };
    let (Some((start, end)), Some((from, to))) = (range(one), range(other)) else {
        return false;
    };
    (from..=to).contains(&start) || (from..=to).contains(&end) || (start < from && end > to)
}

fn one_partition(judge: &mut Judge, partition: &At) {
    let more = ["label", "startMiB", "sizeMiB"].iter().any(|name| partition.has(name))
        || ["guid", "typeGuid"].iter().any(|name| partition.words(name).is_some());
    if partition.flag("shouldExist") == Some(false) && more {
        judge.error(partition, "a partition that must not exist has only a number");
    }
    let label = partition.text("label");
    if partition.number("number").unwrap_or_default() == 0 && label.is_none() {
        judge.error(partition, "a partition needs a number or a label");
    }
    match label {
        Some(label) if label.len() > 36 => judge.error(&partition.get("label"), "a label has at most 36 characters"),
        Some(label) if label.contains(':') => judge.error(&partition.get("label"), "a label must not contain a colon"),
        _ => {}
    }
    for name in ["guid", "typeGuid"] {
        if partition.words(name).is_some_and(|guid| !is_guid(guid)) {
            let text = "a GUID has the form 01234567-89AB-CDEF-EDCB-A98765432101";
            judge.error(&partition.get(name), text);
        }
    }
}

fn is_guid(text: &str) -> bool {
    let mut lengths = text.split('-').map(str::len);
    lengths.by_ref().eq([8, 4, 4, 4, 12]) && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

fn raid(judge: &mut Judge, array: &At) {
    let level = array.get("level");
    match array.text("level").unwrap_or_default() {
        "" => judge.error(&level, "a level is required"),
        "linear" | "raid0" | "0" | "stripe" => {
            if array.number("spares").is_some_and(|spares| spares != 0) {
                judge.error(&level, "arrays of this level do not support spares");
            }
        }
        "raid1" | "1" | "mirror" | "raid4" | "4" | "raid5" | "5" | "raid6" | "6" | "raid10" | "10" => {}
        _ => judge.error(&level, "unknown RAID level"),
    }
    if array.list("devices").is_empty() {
        judge.error(&array.get("devices"), "devices are required");
    }
    for device in array.entries("devices") {
        if let Some(fault) = path_fault(device.value.as_str().unwrap_or_default()) {
            judge.error(&device, fault);
        }
    }
}

fn luks(judge: &mut Judge, volume: &At) {
    if volume.text("name").is_some_and(|name| name.contains('/')) {
        judge.error(&volume.get("name"), "the name of a volume must not contain a slash");
    }
    if volume.text("label").is_some_and(|label| label.len() > 47) {
        judge.error(&volume.get("label"), "a label has at most 47 characters");
    }
    path(judge, volume, "device");
    resource::contents(judge, &volume.get("keyFile"));

    let clevis = volume.get("clevis");
    let custom = clevis.get("custom");
    // Before 3.3 an empty object counts as custom, too.
    let is_custom = match judge.rules {
        ..=2 => !custom.value.is_null(),
        _ => custom.words("pin").is_some(),
    };
    let threshold = clevis.number("threshold").is_some_and(|threshold| threshold != 0);
    let others = !clevis.list("tang").is_empty() || clevis.flag("tpm2") == Some(true) || threshold;
    if is_custom && others {
        judge.error(&clevis, "`custom` cannot be combined with other settings of clevis");
    }
    pin(judge, &custom);
    for server in clevis.entries("tang") {
        tang(judge, &server);
    }
    if judge.spec >= 5 && volume.get("cex").flag("enabled") == Some(true) {
        if others || custom.words("pin").is_some() {
            judge.error(&volume.get("cex"), "cex and clevis cannot be combined");
        }
        if volume.get("keyFile").words("source").is_some() {
            judge.error(&volume.get("cex"), "cex and a key file cannot be combined");
        }
    }
}

fn pin(judge: &mut Judge, custom: &At) {
    let (pin, config) = (custom.words("pin"), custom.words("config"));
    let network = custom.flag("needsNetwork") == Some(true);
    if pin.is_none() && config.is_none() {
        if network {
            judge.error_since(3, &custom.get("pin"), "a pin is required");
        }
        return;
    }
    match pin {
        None => judge.error(&custom.get("pin"), "a pin is required"),
        Some("tpm2" | "tang" | "sss") => {}
        Some(_) => judge.error(&custom.get("pin"), "the pin must be tpm2, tang or sss"),
    }
    if config.is_none() {
        judge.error(&custom.get("config"), "a config for the pin is required");
    }
}

fn tang(judge: &mut Judge, server: &At) {
    let at = server.get("url");
    match url::parse(server.text("url").unwrap_or_default()) {
        Err(reason) => judge.error(&at, reason),
        Ok(url) if matches!(url.scheme.as_str(), "http" | "https") => {}
        Ok(_) => judge.error(&at, "the URL of a tang server must use http or https"),
    }
    if server.words("thumbprint").is_none() {
        judge.error(&server.get("thumbprint"), "a thumbprint is required");
    }
    if judge.spec >= 4 {
        let advertisement = server.words("advertisement");
        if advertisement.is_some_and(|text| serde_json::from_str::<serde::de::IgnoredAny>(text).is_err()) {
            judge.error(&server.get("advertisement"), "the advertisement is not valid JSON");
        }
    }
}

fn one_filesystem(judge: &mut Judge, filesystem: &At) {
    if let Some(fault) = filesystem.words("path").and_then(path_fault) {
        judge.error(&filesystem.get("path"), fault);
    }
    path(judge, filesystem, "device");
    let label = filesystem.words("label");
    let at = filesystem.get("format");
    let Some(format) = filesystem.words("format") else {
        let texts = ["path", "label", "uuid"]
            .iter()
            .any(|name| filesystem.words(name).is_some());
        let options =
            !filesystem.list("options").is_empty() || judge.spec >= 1 && !filesystem.list("mountOptions").is_empty();
        if texts || options || filesystem.flag("wipeFilesystem") == Some(true) {
            judge.error(&at, "a format is required by the other settings of this filesystem");
        }
        return;
    };
    let longest = match format {
        "ext4" => 16,
        "btrfs" => 256,
        "xfs" => 12,
        "swap" => 15,
        "vfat" => 11,
        "none" if judge.rules >= 3 => return,
        _ => {
            return judge.error(
                &at,
                "the format must be ext4, btrfs, xfs, swap, vfat or (since 3.3) none",
            );
        }
    };
    if label.is_some_and(|label| label.len() > longest) {
        judge.error(
            &filesystem.get("label"),
            format_args!("a label of {format} has at most {longest} bytes"),
        );
    }
}
