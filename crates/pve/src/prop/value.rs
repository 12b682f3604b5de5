//! The values inside of property strings.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::Error;

/// A value of a sub-key.
pub trait Value: Sized {
    /// What it is called when a text is refused.
    const EXPECTED: &'static str;

    /// Reads the text behind the `=`.
    fn read(text: &str) -> Option<Self>;

    /// Prints the text behind the `=`; never empty, never with a comma.
    fn print(&self) -> String;
}

/// A text that can stand in a property string: not empty, no comma, no control character.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Word(String);

impl Word {
    /// Checks the text.
    pub fn new(text: impl Into<String>) -> Result<Self, Error> {
        let text = text.into();
        // A blank at either end would not come back the same, since an item of blanks is no item.
        let bare = text.trim() == text;
        if bare && !text.is_empty() && !text.contains(|c: char| c == ',' || c.is_control()) {
            Ok(Self(text))
        } else {
            Err(Error::Word(text))
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Word {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::new(text)
    }
}

impl PartialEq<str> for Word {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for Word {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl Value for Word {
    const EXPECTED: &'static str = "a word";

    fn read(text: &str) -> Option<Self> {
        Self::new(text).ok()
    }

    fn print(&self) -> String {
        self.0.clone()
    }
}

impl Value for bool {
    const EXPECTED: &'static str = "0 or 1";

    fn read(text: &str) -> Option<Self> {
        crate::scalar::truth(text)
    }

    fn print(&self) -> String {
        u8::from(*self).to_string()
    }
}

macro_rules! parsed_values {
    ($($type:ty => $expected:literal),* $(,)?) => {$(
        impl Value for $type {
            const EXPECTED: &'static str = $expected;

            fn read(text: &str) -> Option<Self> {
                text.parse().ok()
            }

            fn print(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

parsed_values! {
    u16 => "a whole number below 65536",
    u32 => "a whole number",
    u64 => "a whole number",
    crate::id::MacAddress => "a MAC address",
    crate::id::VolumeId => "a volume ID",
    uuid::Uuid => "a UUID",
    std::net::Ipv4Addr => "an IPv4 address",
    std::net::Ipv6Addr => "an IPv6 address",
}

/// A number with a fraction, kept as it was written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Decimal(String);

impl Decimal {
    /// Its value.
    pub fn get(&self) -> f64 {
        self.0.parse().unwrap_or_default()
    }
}

impl From<u32> for Decimal {
    fn from(number: u32) -> Self {
        Self(number.to_string())
    }
}

impl FromStr for Decimal {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::read(text).ok_or_else(|| Error::Word(text.to_owned()))
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Value for Decimal {
    const EXPECTED: &'static str = "a number";

    fn read(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        (digits(whole) && digits(fraction)).then(|| Self(text.to_owned()))
    }

    fn print(&self) -> String {
        self.0.clone()
    }
}

/// Words separated by semicolons.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct List(Vec<Word>);

impl List {
    /// Makes a list of words, none of which may have a semicolon.
    pub fn new<I>(items: I) -> Result<Self, Error>
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        let items: Result<Vec<Word>, Error> = items
            .into_iter()
            .map(|item| {
                let item = item.into();
                if item.contains(';') {
                    Err(Error::Word(item))
                } else {
                    Word::new(item)
                }
            })
            .collect();
        let items = items?;
        if items.is_empty() {
            Err(Error::Word(String::new()))
        } else {
            Ok(Self(items))
        }
    }

    /// The words.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(Word::as_str)
    }
}

impl Value for List {
    const EXPECTED: &'static str = "a list separated by semicolons";

    fn read(text: &str) -> Option<Self> {
        Self::new(text.split(';').filter(|part| !part.is_empty())).ok()
    }

    fn print(&self) -> String {
        self.iter().collect::<Vec<_>>().join(";")
    }
}

/// Sub-keys nobody here knows, kept for the way back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Other(BTreeMap<String, Word>);

impl Other {
    /// The value of a sub-key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(Word::as_str)
    }

    /// Sets a sub-key that this crate has no field for.
    pub fn set(&mut self, key: &str, value: Word) -> Result<(), Error> {
        if Word::new(key).is_err() || key.contains('=') {
            return Err(Error::Word(key.to_owned()));
        }
        self.0.insert(key.to_owned(), value);
        Ok(())
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Takes the items of a property string apart.
pub(crate) struct Reader<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Reader<'a> {
    pub(crate) fn new(
        default: Option<&'a str>,
        items: impl IntoIterator<Item = (Option<&'a str>, &'a str)>,
    ) -> Result<Self, Error> {
        let mut map = BTreeMap::new();
        for (key, value) in items {
            let key = key
                .or(default)
                .ok_or_else(|| Error::NoKey(value.to_owned()))?;
            if map.insert(key, value).is_some() {
                return Err(Error::Twice(key.to_owned()));
            }
        }
        Ok(Self(map))
    }

    /// The value of a key or of one of its other names.
    pub(crate) fn take<T: Value>(&mut self, names: &[&'static str]) -> Result<Option<T>, Error> {
        let mut found = None;
        for name in names {
            if let Some(text) = self.0.remove(name) {
                if found.is_some() {
                    return Err(Error::Twice((*name).to_owned()));
                }
                found = Some((name, text));
            }
        }
        found
            .map(|(name, text)| {
                T::read(text).ok_or_else(|| Error::Value {
                    key: (*name).to_owned(),
                    value: text.to_owned(),
                    expected: T::EXPECTED,
                })
            })
            .transpose()
    }

    /// What nobody took.
    pub(crate) fn rest(self) -> Result<Other, Error> {
        let mut other = Other::default();
        for (key, value) in self.0 {
            other.set(key, Word::new(value)?)?;
        }
        Ok(other)
    }
}

/// Puts a property string together.
pub(crate) struct Writer<'a, 'b> {
    out: &'a mut fmt::Formatter<'b>,
    /// What was written, so that nothing is said twice.
    keys: Vec<String>,
}

impl<'a, 'b> Writer<'a, 'b> {
    pub(crate) fn new(out: &'a mut fmt::Formatter<'b>) -> Self {
        Self {
            out,
            keys: Vec::new(),
        }
    }

    /// The first item, without its key unless that would be read as another one.
    pub(crate) fn head<T: Value>(&mut self, key: &str, value: Option<&T>) -> fmt::Result {
        let Some(text) = value.map(Value::print) else {
            return Ok(());
        };
        if text.contains('=') {
            self.item(key, &text)
        } else {
            self.comma(key)?;
            self.out.write_str(&text)
        }
    }

    pub(crate) fn put<T: Value>(&mut self, key: &str, value: Option<&T>) -> fmt::Result {
        value.map_or(Ok(()), |value| self.item(key, &value.print()))
    }

    pub(crate) fn item(&mut self, key: &str, text: &str) -> fmt::Result {
        self.comma(key)?;
        write!(self.out, "{key}={text}")
    }

    /// What no field stands for; a field that has spoken wins.
    pub(crate) fn rest(&mut self, other: &Other) -> fmt::Result {
        for (key, value) in other.iter() {
            if !self.keys.iter().any(|written| written == key) {
                self.item(key, value)?;
            }
        }
        Ok(())
    }

    fn comma(&mut self, key: &str) -> fmt::Result {
        let first = self.keys.is_empty();
        self.keys.push(key.to_owned());
        if first {
            Ok(())
        } else {
            self.out.write_str(",")
        }
    }
}
