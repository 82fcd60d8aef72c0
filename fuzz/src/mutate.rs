//! Mutations that keep JSON valid; otherwise the parsers would reject most inputs.

use libfuzzer_sys::fuzzer_mutate;
use serde_json::{Value, json};

/// Every second mutation changes bytes, and so does each one of input that is not JSON.
pub fn mutate(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let mut chance = Chance(u64::from(seed) | 1 << 40);
    let documents = data[..size]
        .split(|byte| *byte == 0)
        .map(serde_json::from_slice::<Value>);
    let Ok(mut configs) = documents.collect::<Result<Vec<_>, _>>() else {
        return fuzzer_mutate(data, size, max_size);
    };
    if chance.below(2) == 0 {
        return fuzzer_mutate(data, size, max_size);
    }
    for _ in 0..=chance.below(3) {
        change(&mut configs, &mut chance);
    }
    let texts: Vec<_> = configs.iter().map(Value::to_string).collect();
    let bytes = texts.join("\0").into_bytes();
    if bytes.len() > max_size {
        return size;
    }
    data[..bytes.len()].copy_from_slice(&bytes);
    bytes.len()
}

/// Xorshift: the fuzzer requires the same mutation for the same seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }
}

fn change(configs: &mut Vec<Value>, chance: &mut Chance) {
    if chance.below(16) == 0 {
        match configs.len() {
            len @ 2.. if chance.below(2) == 0 => configs.swap(0, len - 1),
            len => configs.push(configs[chance.below(len)].clone()),
        }
        return;
    }
    let other = some_value(configs, chance).clone();
    let value = some_value(configs, chance);
    match (value, chance.below(4)) {
        (Value::Object(fields), 1..) if !fields.is_empty() => {
            let name = fields
                .keys()
                .nth(chance.below(fields.len()))
                .cloned()
                .unwrap_or_default();
            match (chance.below(3), other) {
                (0, _) => drop(fields.shift_remove(&name)),
                (1, Value::Object(others)) => fields.extend(others),
                (_, other) => drop(fields.insert(name, other)),
            }
        }
        (Value::Array(entries), 1..) if !entries.is_empty() => {
            let (from, to) = (chance.below(entries.len()), chance.below(entries.len()));
            match chance.below(3) {
                0 => drop(entries.remove(from)),
                1 => entries.push(entries[from].clone()),
                _ => entries.swap(from, to),
            }
        }
        (Value::String(text), 1..) => {
            const BITS: [char; 14] = ['/', '.', '-', '8', 'a', 'Z', '%', '+', ':', ',', '=', '[', '\n', 'é'];
            let bit = BITS[chance.below(BITS.len())];
            let mut letters: Vec<char> = text.chars().collect();
            let at = chance.below(letters.len() + 1);
            match chance.below(3) {
                0 => letters.truncate(at),
                1 if at < letters.len() => letters[at] = bit,
                _ => letters.insert(at, bit),
            }
            *text = letters.into_iter().collect();
        }
        (value, _) => {
            let odd = [
                json!(null),
                json!(true),
                json!(false),
                json!(0),
                json!(-1),
                json!(512),
                json!(1.5),
                json!({}),
                json!([]),
                json!(""),
            ];
            *value = match chance.below(2) {
                0 => other,
                _ => odd[chance.below(odd.len())].clone(),
            };
        }
    }
}

/// A random value of all configs, each with the same probability.
fn some_value<'a>(configs: &'a mut [Value], chance: &mut Chance) -> &'a mut Value {
    fn nth<'a>(value: &'a mut Value, left: &mut usize) -> Option<&'a mut Value> {
        if *left == 0 {
            return Some(value);
        }
        *left -= 1;
        match value {
            Value::Object(fields) => fields.values_mut().find_map(|value| nth(value, left)),
            Value::Array(entries) => entries.iter_mut().find_map(|value| nth(value, left)),
            _ => None,
        }
    }
    fn count(value: &Value) -> usize {
        match value {
            Value::Object(fields) => 1 + fields.values().map(count).sum::<usize>(),
            Value::Array(entries) => 1 + entries.iter().map(count).sum::<usize>(),
            _ => 1,
        }
    }
    let mut left = chance.below(configs.iter().map(count).sum());
    let mut values = configs.iter_mut();
    values
        .find_map(|config| nth(config, &mut left))
        .expect("below their number")
}
