//! A plan as a table or as JSON.

use super::figures::Figure;
use super::input::{FIELDS, Input};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

pub fn table(input: &Input, figures: &[Figure], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "Inputs")?;
    for field in FIELDS {
        writeln!(out, "  {:<24} {:>17}  {}", field.name, number(input.get(field.key)), field.meaning)?;
    }
    let mut last = None;
    for figure in figures {
        if last.replace(figure.part) != Some(figure.part) {
            writeln!(out, "\n{}", figure.part.title())?;
        }
        let Figure { name, value, unit, formula, .. } = *figure;
        writeln!(out, "  {name:<24} {:>17} {unit:<9} {formula}", number(value))?;
    }
    Ok(())
}

pub fn json(input: &Input, figures: &[Figure], out: &mut impl Write) -> io::Result<()> {
    let inputs: Map<String, Value> =
        FIELDS.iter().map(|field| (field.name.to_owned(), json!(input.get(field.key)))).collect();
    let of = |figure: &Figure| {
        let Figure { key, name, value, unit, formula, part } = *figure;
        json!({ "key": key, "part": part.title(), "name": name, "value": value, "unit": unit, "formula": formula })
    };
    let figures: Vec<Value> = figures.iter().map(of).collect();
    writeln!(out, "{:#}", json!({ "inputs": inputs, "figures": figures }))
}

/// Large numbers without decimals, small ones with two; thousands apart.
fn number(value: f64) -> String {
    let text = match value {
        value if value >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        value if value >= 0.1 => format!("{value:.2}"),
        value => format!("{value:.4}"),
    };
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_thousands_apart_and_few_decimals() {
        let shown = [11_574_074.07, 100.0, 16.666, 0.277, 0.023, 1.0, 0.0].map(number);
        assert_eq!(shown, ["11,574,074", "100", "16.67", "0.28", "0.0230", "1", "0"]);
    }
}
