//! Percent-encoding.

pub const BAD_PERCENT: &str = "the URL has a % without two hexadecimal digits";

/// Whether each percent sign is followed by two digits.
pub fn percent(text: &str) -> Result<(), &'static str> {
    let bytes = text.as_bytes();
    let escapes = text.match_indices('%').map(|(at, _)| &bytes[at + 1..]);
    // In `%%41` the first escape is invalid, so checking each sign is sufficient.
    match escapes.map(hex_pair).all(|pair| pair.is_some()) {
        true => Ok(()),
        false => Err(BAD_PERCENT),
    }
}

/// The byte of two hexadecimal digits.
pub fn hex_pair(text: &[u8]) -> Option<u8> {
    let digit = |index: usize| text.get(index).and_then(|digit| char::from(*digit).to_digit(16));
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}
