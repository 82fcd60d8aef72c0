//! Which data URLs Ignition accepts. Source: vincent-petithory/dataurl, `lex.go`.

use super::escape::percent;

const NO_COMMA: &str = "the data URL has no comma before its data";
const ATTRIBUTE: &str = "the data URL's media type has a parameter that is not terminated";
const BASE64: &str = "the data is not base64: standard alphabet, padded with `=`";

/// Validates a data URL without decoding it.
pub fn judge(url: &str) -> Result<(), &'static str> {
    let rest = url.strip_prefix("data:").ok_or("`data:` must be in lower case")?;
    let rest = media_type(rest)?;
    let (base64, data) = parameters(rest)?;
    match base64 {
        true => base64_data(data.as_bytes()),
        false => escaped_data(data),
    }
}

/// Skips `text/plain`, if present.
fn media_type(text: &str) -> Result<&str, &'static str> {
    if text.starts_with([';', ',']) {
        return Ok(text);
    }
    let (kind, rest) = token(text);
    let after = rest.strip_prefix('/').ok_or(if rest.is_empty() {
        NO_COMMA
    } else {
        "the data URL's media type has an invalid character"
    })?;
    const KINDS: [&str; 7] = ["text", "image", "audio", "video", "application", "message", "multipart"];
    let own = kind.starts_with("x-") || kind.starts_with("X-");
    if !own && !KINDS.iter().any(|known| kind.starts_with(known)) {
        return Err("the data URL's media type is unknown");
    }
    match token(after).1 {
        "" => Err(NO_COMMA),
        rest if rest.starts_with([';', ',']) => Ok(rest),
        _ => Err("the data URL's media type has an invalid character"),
    }
}

/// Skips `;charset=utf-8;base64,`; returns whether base64 is set, and the data.
fn parameters(mut text: &str) -> Result<(bool, &str), &'static str> {
    let mut quoted = false;
    loop {
        if let Some(data) = text.strip_prefix(',') {
            return Ok((false, data));
        }
        text = text.strip_prefix(';').ok_or(NO_COMMA)?;
        let (name, rest) = token(text);
        if name.is_empty() {
            return Err(ATTRIBUTE);
        }
        if let Some(data) = rest.strip_prefix(',') {
            return match name {
                "base64" => Ok((true, data)),
                _ => Err("the data URL's media type has a parameter without a value"),
            };
        }
        let rest = rest.strip_prefix('=').ok_or(ATTRIBUTE)?;
        let value;
        (value, text) = match rest.strip_prefix('"') {
            Some(rest) => {
                quoted = true;
                quoted_value(rest)?
            }
            None => match token(rest) {
                ("", _) => return Err(ATTRIBUTE),
                found => found,
            },
        };
        // After an empty quoted value the reference implementation treats the next value as quoted.
        if !value.is_empty() {
            let good = match quoted {
                true => unquotes(value),
                false => percent(value).is_ok(),
            };
            if !good {
                return Err("the data URL's media type has a parameter with an invalid escape");
            }
            quoted = false;
        }
    }
}

/// The characters of a token (RFC 2045) at the beginning, and the rest.
fn token(text: &str) -> (&str, &str) {
    let outside = |c: char| !c.is_ascii_graphic() || "()<>@,;:\\\"/[]?=".contains(c);
    text.split_at(text.find(outside).unwrap_or(text.len()))
}

/// A value up to its closing quote, and the rest.
fn quoted_value(text: &str) -> Result<(&str, &str), &'static str> {
    let mut escaped = false;
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            0x80.. => return Err("the data URL's media type has an invalid character"),
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Ok((&text[..index], &text[index + 1..])),
            _ => {}
        }
    }
    Err("the data URL's media type has a quote that is not closed")
}

/// Whether Go accepts this between double quotes (`strconv.Unquote`).
fn unquotes(value: &str) -> bool {
    let mut rest = value;
    while let Some((_, after)) = rest.split_once('\\') {
        let digits = |count: usize, radix: u32| {
            let number = after.get(1..=count)?;
            let plain = number.chars().all(|digit| digit.is_digit(radix));
            plain.then(|| u32::from_str_radix(number, radix).ok()).flatten()
        };
        let length = match after.bytes().next() {
            Some(b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'\\' | b'"') => Some(1),
            Some(b'x') => digits(2, 16).map(|_| 3),
            Some(b'u') => digits(4, 16).and_then(char::from_u32).map(|_| 5),
            Some(b'U') => digits(8, 16).and_then(char::from_u32).map(|_| 9),
            Some(b'0'..=b'7') => {
                let octal = after
                    .get(..3)
                    .filter(|octal| octal.bytes().all(|digit| matches!(digit, b'0'..=b'7')));
                octal.and_then(|octal| u8::from_str_radix(octal, 8).ok()).map(|_| 3)
            }
            _ => None,
        };
        match length {
            Some(length) => rest = &after[length..],
            None => return false,
        }
    }
    true
}

fn escaped_data(data: &str) -> Result<(), &'static str> {
    if data
        .bytes()
        .any(|byte| !byte.is_ascii_graphic() || b"<>#\"{}|\\^[]`".contains(&byte))
    {
        return Err("the data URL has a character that must be escaped, such as %20 for a space");
    }
    percent(data)
}

/// Go's `StdEncoding`: trailing bits after the last byte are ignored.
fn base64_data(data: &[u8]) -> Result<(), &'static str> {
    let padding = data.iter().rev().take(2).take_while(|byte| **byte == b'=').count();
    let digits = &data[..data.len() - padding];
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    match data.len().is_multiple_of(4) && digits.iter().all(is_digit) {
        true => Ok(()),
        false => Err(BASE64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_urls_are_rejected_as_by_the_reference() {
        for good in [
            "data:,",
            "data:,a+b%20c",
            "data:,%00%ff",
            "data:;base64,",
            "data:;base64,QUI=",
            "data:;base64,QUJ=",
            "data:text/plain;charset=utf-8;base64,QUJD",
            "data:text/plain,a",
            "data:text/,a",
            "data:textual/plain,a",
            "data:x-own/type,a",
            "data:text/plain;a=\"b\\\"c\\x41\";base64,QUJD",
            "data:text/plain;a=%41,b",
            "data:;charset=utf-8,a",
        ] {
            assert_eq!(judge(good), Ok(()), "{good}");
        }
        for bad in [
            "DATA:,a",
            "data:",
            "data:text/plain",
            "data:a",
            "data:font/woff,a",
            "data:xml/x,a",
            "data:/plain,a",
            "data:text/plain;,a",
            "data:text/plain;charset,a",
            "data:text/plain;charset=,a",
            "data:text/plain;base64;charset=utf-8,QUJD",
            "data:text/plain;a=\"b,c",
            "data:text/plain;a=\"\\q\",b",
            "data:text/plain;a=%4,b",
            "data:text/plain; charset=utf-8,a",
            "data:,a b",
            "data:,a\tb",
            "data:,ä",
            "data:,%zz",
            "data:,%4",
            "data:,{}",
            "data:;base64,QUI",
            "data:;base64,QUI=QUI=",
            "data:;base64,Q===",
            "data:;base64,QU-_",
            "data:;base64,QUJD\n",
            "data:;BASE64,QUJD",
        ] {
            assert!(judge(bad).is_err(), "{bad}");
        }
    }
}
