//! The one place that writes to the terminal: data to stdout, words for a person to stderr.

use std::io::{self, Write};

use anstream::{AutoStream, ColorChoice};
use anyhow::Result;
use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

/// How much of the inner life is logged, and in which form.
#[derive(Args)]
pub(crate) struct Logging {
    /// Log filter, such as `info` or `fleet=debug,pve=info`.
    #[arg(
        long,
        env = "LOG_LEVEL",
        default_value = "warn",
        global = true,
        value_name = "FILTER",
        value_parser = log_filter
    )]
    log_level: String,
    /// Form of the log lines.
    #[arg(long, env = "LOG_FORMAT", default_value = "text", global = true)]
    log_format: LogFormat,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogFormat {
    /// One readable line an event.
    Text,
    /// One JSON object an event.
    Json,
}

/// A filter whose words mean what they seem to. A word that is no level would be read as the name of a module that nobody has,
/// and nothing at all would be logged.
fn log_filter(text: &str) -> Result<String, String> {
    let mut parts = Vec::new();
    for part in text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let known = ["off", "error", "warn", "info", "debug", "trace"];
        let level = part.to_lowercase();
        parts.push(match level.as_str() {
            "warning" => "warn".to_owned(),
            _ if known.contains(&level.as_str()) => level,
            _ if part.contains('=') || part.contains("::") => part.to_owned(),
            _ => {
                let known = known.join(", ");
                return Err(format!(
                    "there is no level '{part}': say {known}, or MODULE=LEVEL"
                ));
            }
        });
    }
    let filter = parts.join(",");
    EnvFilter::try_new(&filter).map_err(|error| error.to_string())?;
    Ok(filter)
}

/// Sends log events to stderr.
pub(crate) fn init_logging(logging: &Logging) {
    let mut filter =
        EnvFilter::try_new(&logging.log_level).unwrap_or_else(|_| EnvFilter::new("warn"));
    // What a Provider's own level lets through has been chosen already.
    if let Ok(chosen) = format!("{}=trace", controllers::LOG_TARGET).parse() {
        filter = filter.add_directive(chosen);
    }
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(AutoStream::choice(&io::stderr()) != ColorChoice::Never);
    match logging.log_format {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().init(),
    }
}

/// Writes data a program may read on. A reader that has gone away is not an error.
pub(crate) fn data(text: &str) -> Result<()> {
    let mut stdout = anstream::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Tells a person something, on stderr.
pub(crate) fn say(text: impl std::fmt::Display) {
    // A closed stderr leaves nobody to tell.
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// Reports why the command failed: the act, then its causes, one a line.
pub(crate) fn error(error: &anyhow::Error) {
    let mut told = told(error).into_iter();
    say(format_args!("error: {}", told.next().unwrap_or_default()));
    for cause in told {
        say(format_args!("  because: {cause}"));
    }
}

/// What went wrong and why, without what was said already.
fn told(error: &anyhow::Error) -> Vec<String> {
    let mut told: Vec<String> = Vec::new();
    for cause in error.chain() {
        let text = match cause.downcast_ref() {
            Some(kube::Error::Api(status)) => {
                told.push(status.message.clone());
                // Its own cause is the same once more.
                break;
            }
            _ => cause.to_string(),
        };
        if !told.last().is_some_and(|before| before.ends_with(&text)) {
            told.push(text);
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once_and_in_words() {
        let status = kube::core::Status::failure("\"nonsense\" is invalid", "Invalid");
        let refused = anyhow::Error::new(kube::Error::Api(status.boxed())).context("refused");
        assert_eq!(told(&refused), ["refused", "\"nonsense\" is invalid"]);
        let silent = kube::Error::Service(io::Error::other("refused").into());
        let silent = anyhow::Error::new(silent).context("no answer");
        assert_eq!(told(&silent), ["no answer", "ServiceError: refused"]);
    }

    #[test]
    fn a_level_that_does_not_exist_is_refused_instead_of_silencing_everything() {
        assert_eq!(log_filter("Warning").unwrap(), "warn");
        let many = "info,fleet=debug,pve::client";
        assert_eq!(log_filter(many).unwrap(), many);
        assert!(log_filter("verbose").unwrap_err().contains("error, warn"));
        assert!(log_filter("fleet=loud").is_err());
    }
}
