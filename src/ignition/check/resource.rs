//! The content of resources: sources, hashes, headers, compression.

use super::at::At;
use super::judge::Judge;
use super::url;

/// The contents of a file or key file.
pub fn contents(judge: &mut Judge, resource: &At) {
    if resource.has("compression") {
        compression(judge, resource);
    }
    if resource.get("verification").has("hash") && resource.text("source").is_none() {
        judge.error(
            &resource.get("verification").get("hash"),
            "a hash without a source has no effect",
        );
    }
    common(judge, resource);
}

/// A reference to another config, or a certificate authority.
pub fn reference(judge: &mut Judge, resource: &At) {
    // Before 3.1 these differ from other resources: no compression, and a hash needs no source.
    if judge.spec >= 1 {
        return contents(judge, resource);
    }
    if resource.get("verification").has("hash") && resource.text("source").is_none() {
        let at = resource.get("verification");
        judge.error_since(1, &at.get("hash"), "a hash without a source has no effect");
    }
    common(judge, resource);
}

fn common(judge: &mut Judge, resource: &At) {
    if let Some(text) = resource.get("verification").text("hash") {
        hash(judge, &resource.get("verification").get("hash"), text);
    }
    if let Some(source) = resource.words("source")
        && let Err(reason) = url::source(source, judge.rules)
    {
        judge.error(&resource.get("source"), reason);
    }
    if judge.spec >= 1 {
        headers(judge, resource);
    }
}

fn compression(judge: &mut Judge, resource: &At) {
    if !matches!(resource.text("compression"), None | Some("" | "gzip")) {
        judge.error(&resource.get("compression"), "the compression must be `gzip` or empty");
    }
}

pub fn hash(judge: &mut Judge, at: &At, text: &str) {
    let Some((function, sum)) = text.split_once('-') else {
        return judge.error(
            at,
            "a hash must be the function's name, a hyphen and the hexadecimal digest",
        );
    };
    let digits = match function {
        "sha512" => 128,
        "sha256" if judge.rules >= 1 => 64,
        "sha256" => return judge.error(at, "sha256 requires spec 3.1; earlier versions support only sha512"),
        _ => return judge.error(at, "the hash function must be sha512 or sha256"),
    };
    if sum.len() != digits {
        judge.error(
            at,
            format_args!("a {function} digest has {digits} digits, this one has {}", sum.len()),
        );
    }
}

fn headers(judge: &mut Judge, resource: &At) {
    let mut any = false;
    for header in resource.entries("httpHeaders") {
        any = true;
        if header.words("name").is_none() {
            judge.error(&header.get("name"), "a header needs a name");
        }
        if header.text("value") == Some("") {
            judge.error(&header.get("value"), "a header's value is empty");
        }
    }
    if !any {
        return;
    }
    let at = resource.get("httpHeaders");
    match resource.words("source").map(url::parse) {
        None => judge.error(&at, "headers without a source have no effect"),
        Some(Err(reason)) => judge.error(&at, reason),
        Some(Ok(url)) if matches!(url.scheme.as_str(), "http" | "https") => {}
        Some(Ok(_)) => judge.error(&at, "headers are sent only with http and https"),
    }
}
