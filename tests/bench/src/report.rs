//! The figures, for people and for programs.

use anyhow::Result;
use comfy_table::{Table, presets};
use serde::Serialize;
use serde_json::json;

/// What was measured of one server.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) server: String,
    pub(crate) start_seconds: f64,
    pub(crate) memory_idle_mb: f64,
    pub(crate) memory_loaded_mb: f64,
    pub(crate) creates_per_second: f64,
    pub(crate) updates_per_second: f64,
    pub(crate) list_seconds: f64,
    pub(crate) watch_p50_ms: f64,
    pub(crate) watch_p99_ms: f64,
}

/// A Markdown table: one column per server.
pub(crate) fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    let head = std::iter::once(String::new()).chain(rows.iter().map(|row| row.server.clone()));
    table.set_header(head);
    let mut line = |what: &str, show: &dyn Fn(&Row) -> String| {
        let cells = std::iter::once(what.to_owned()).chain(rows.iter().map(show));
        table.add_row(cells);
    };
    line("creates/s", &|r| format!("{:.0}", r.creates_per_second));
    line("updates/s", &|r| format!("{:.0}", r.updates_per_second));
    line("list of all", &|r| {
        format!("{:.0} ms", r.list_seconds * 1e3)
    });
    line("watch latency, median", &|r| {
        format!("{:.2} ms", r.watch_p50_ms)
    });
    line("watch latency, 99th percentile", &|r| {
        format!("{:.2} ms", r.watch_p99_ms)
    });
    line("start", &|r| format!("{:.2} s", r.start_seconds));
    line("memory, idle", &|r| format!("{:.0} MB", r.memory_idle_mb));
    line("memory, with all objects", &|r| {
        format!("{:.0} MB", r.memory_loaded_mb)
    });
    table
}

/// The same with what it was measured on.
pub(crate) fn json(rows: &[Row], objects: usize, clients: usize) -> Result<String> {
    let cores = std::thread::available_parallelism()?.get();
    let figures = json!({
        "objects": objects, "clients": clients, "cores": cores, "servers": rows,
    });
    Ok(serde_json::to_string_pretty(&figures)?)
}
