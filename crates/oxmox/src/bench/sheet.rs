//! Figures, as a table for people and as JSON for programs.

use std::fmt;
use std::time::Duration;

use comfy_table::{CellAlignment, Table};
use serde_json::{Map, Value};

/// A table of figures.
pub(super) struct Sheet {
    /// Its name in JSON.
    pub(super) name: &'static str,
    /// What it shows, for people.
    pub(super) title: String,
    columns: &'static [Column],
    rows: Vec<Vec<Value>>,
}

/// A column: its name in JSON, its heading, and the digits after the point.
pub(super) struct Column(
    pub(super) &'static str,
    pub(super) &'static str,
    pub(super) usize,
);

impl Sheet {
    pub(super) fn new(
        name: &'static str,
        title: impl Into<String>,
        columns: &'static [Column],
    ) -> Self {
        Self {
            name,
            title: title.into(),
            columns,
            rows: Vec::new(),
        }
    }

    /// Adds a row: one value a column. `Value::Null` is "not measured".
    pub(super) fn row(&mut self, values: impl IntoIterator<Item = Value>) {
        self.rows.push(values.into_iter().collect());
    }

    pub(super) fn to_json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let fields: Map<String, Value> = self
                .columns
                .iter()
                .zip(row)
                .map(|(column, value)| (column.0.to_owned(), value.clone()))
                .collect();
            Value::Object(fields)
        });
        Value::Array(rows.collect())
    }
}

impl fmt::Display for Sheet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::ASCII_MARKDOWN);
        table.set_header(self.columns.iter().map(|column| column.1));
        for row in &self.rows {
            table.add_row(
                self.columns
                    .iter()
                    .zip(row)
                    .map(|(column, value)| match value {
                        Value::Null => "-".to_owned(),
                        Value::String(text) => text.clone(),
                        value => format!("{:.*}", column.2, value.as_f64().unwrap_or_default()),
                    }),
            );
        }
        for (at, column) in table.column_iter_mut().enumerate() {
            if at > 0 {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        writeln!(f, "{}\n\n{table}", self.title)
    }
}

/// A number of something.
pub(super) fn number(value: f64) -> Value {
    // Three digits are what a measurement is worth; more would only make diffs noisy.
    let rounded = (value * 1000.0).round() / 1000.0;
    serde_json::Number::from_f64(rounded).map_or(Value::Null, Value::Number)
}

/// A time in milliseconds.
pub(super) fn millis(time: Duration) -> Value {
    number(time.as_secs_f64() * 1000.0)
}

/// Observations of one thing.
#[derive(Default)]
pub(super) struct Samples(Vec<Duration>);

impl Samples {
    pub(super) fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// How many there were in a minute of all the time they took together.
    pub(super) fn per_minute(&self) -> Value {
        let taken: Duration = self.0.iter().sum();
        let many = u32::try_from(self.0.len()).map_or(f64::INFINITY, f64::from);
        number(many * 60.0 / taken.as_secs_f64())
    }

    /// The observation that `percent` of all do not exceed.
    pub(super) fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort();
        let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
        sorted.get(at).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_observations() {
        let mut samples = Samples::default();
        for ms in (1..=100).rev() {
            samples.add(Duration::from_millis(ms));
        }
        assert_eq!(samples.percentile(50), Duration::from_millis(50));
        assert_eq!(samples.percentile(95), Duration::from_millis(95));
        assert_eq!(Samples::default().percentile(50), Duration::ZERO);
    }

    #[test]
    fn the_rate_counts_slow_ones_for_what_they_took() {
        let mut samples = Samples::default();
        for seconds in [1, 1, 1, 1, 6] {
            samples.add(Duration::from_secs(seconds));
        }
        assert_eq!(samples.per_minute(), number(30.0));
        assert_eq!(Samples::default().per_minute(), Value::Null);
    }

    #[test]
    fn a_sheet_shows_what_was_not_measured() {
        let mut sheet = Sheet::new(
            "things",
            "Things",
            &[Column("what", "Thing", 0), Column("ms", "Time (ms)", 1)],
        );
        sheet.row([Value::from("one"), number(1.25)]);
        sheet.row([Value::from("two"), Value::Null]);
        let text = sheet.to_string();
        assert!(text.contains("| one   |       1.2 |"), "{text}");
        assert!(text.contains("| two   |         - |"), "{text}");
        assert_eq!(
            sheet.to_json(),
            serde_json::json!([{"what": "one", "ms": 1.25}, {"what": "two", "ms": null}])
        );
    }
}
