//! A serial line behind PVE's terminal proxy.
//!
//! The visitor first says `user:ticket` and a line feed, and hears `OK`, unless it is a token and the release one whose proxy knows none. From then on what it sends is packed: `0:LENGTH:bytes` is typed,
//! `1:COLUMNS:ROWS:` tells the size of its window, `2` says that it is still there. What it hears is the line itself.
//! At the line is a getty: it asks for a name and a password, takes any, and then echoes like a shell that knows few commands.

/// A visitor's talk with a guest's serial line.
pub(super) struct Serial {
    /// The guest's name, while it runs.
    name: Option<String>,
    vmid: u32,
    /// What a visitor must say; nobody can say nothing.
    expected: Option<String>,
    admitted: bool,
    over: bool,
    /// Packed input that is not complete yet.
    packed: Vec<u8>,
    line: Line,
}

impl Serial {
    pub(super) fn new(name: Option<String>, vmid: u32, user: &str, ticket: &str) -> Self {
        let line = Line::new(name.clone().unwrap_or_default());
        Self {
            name,
            vmid,
            expected: Some(format!("{user}:{ticket}")),
            admitted: false,
            over: false,
            packed: Vec::new(),
            line,
        }
    }

    /// Lets nobody in, whatever it says.
    pub(super) fn admit_nobody(&mut self) {
        self.expected = None;
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    pub(super) fn input(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.packed.extend_from_slice(bytes);
        let mut out = Vec::new();
        if !self.admitted {
            let Some(end) = self.packed.iter().position(|byte| *byte == b'\n') else {
                self.over = self.packed.len() > 1024;
                return out;
            };
            let said: Vec<u8> = self.packed.drain(..=end).collect();
            let expected = self.expected.as_ref().map(String::as_bytes);
            if expected != Some(&said[..end]) {
                self.over = true;
                return out;
            }
            self.admitted = true;
            out.extend_from_slice(b"OK");
            if self.name.is_none() {
                out.extend_from_slice(format!("VM {} not running\r\n", self.vmid).as_bytes());
                self.over = true;
                return out;
            }
            out.extend(self.line.prompt());
        }
        while let Some((message, length)) = unpack(&self.packed) {
            match message {
                Message::Typed(from) => {
                    let typed: Vec<u8> = self.packed[from..length].to_vec();
                    out.extend(self.line.typed(&typed));
                }
                Message::Other => {}
                Message::Nonsense => {
                    self.over = true;
                    return out;
                }
            }
            self.packed.drain(..length);
        }
        out
    }
}

enum Message {
    /// Typed bytes, which begin here.
    Typed(usize),
    Other,
    Nonsense,
}

/// The first packed message and where it ends, if it is complete.
fn unpack(bytes: &[u8]) -> Option<(Message, usize)> {
    let field = |from: usize| {
        let end = bytes.get(from..)?.iter().position(|byte| *byte == b':')? + from;
        let text = std::str::from_utf8(&bytes[from..end]).ok();
        Some((text.and_then(|text| text.parse::<usize>().ok()), end + 1))
    };
    match bytes.first()? {
        b'2' => Some((Message::Other, 1)),
        b'0' => {
            let (length, from) = field(2)?;
            let Some(length) = length.filter(|length| *length <= 1 << 20) else {
                return Some((Message::Nonsense, bytes.len()));
            };
            (bytes.len() >= from + length).then_some((Message::Typed(from), from + length))
        }
        b'1' => {
            let (columns, next) = field(2)?;
            let (rows, end) = field(next)?;
            let known = columns.is_some() && rows.is_some();
            Some((
                if known {
                    Message::Other
                } else {
                    Message::Nonsense
                },
                end,
            ))
        }
        _ => Some((Message::Nonsense, bytes.len())),
    }
}

/// What is at the line.
struct Line {
    name: String,
    state: State,
    typed: String,
}

enum State {
    Name,
    Password(String),
    Shell(String),
}

impl Line {
    fn new(name: String) -> Self {
        Self {
            name,
            state: State::Name,
            typed: String::new(),
        }
    }

    fn prompt(&self) -> Vec<u8> {
        match &self.state {
            State::Name => format!("\r\n{} login: ", self.name),
            State::Password(_) => "Password: ".to_owned(),
            State::Shell(user) => format!("{user}@{}:~$ ", self.name),
        }
        .into_bytes()
    }

    fn typed(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for byte in bytes {
            let shown = !matches!(self.state, State::Password(_));
            match byte {
                b'\r' | b'\n' => {
                    out.extend_from_slice(b"\r\n");
                    let line = std::mem::take(&mut self.typed);
                    out.extend(self.entered(line.trim()));
                    out.extend(self.prompt());
                }
                0x7f | 0x08 => {
                    let wiped = self.typed.pop().is_some() && shown;
                    out.extend_from_slice(if wiped { b"\x08 \x08" } else { b"" });
                }
                0x03 | 0x04 => {
                    self.typed.clear();
                    out.extend_from_slice(if *byte == 3 { b"^C\r\n" } else { b"\r\n" });
                    if *byte == 4 {
                        self.state = State::Name;
                    }
                    out.extend(self.prompt());
                }
                byte if byte.is_ascii_graphic() || *byte == b' ' => {
                    self.typed.push(char::from(*byte));
                    if shown {
                        out.push(*byte);
                    }
                }
                _ => {}
            }
        }
        out
    }

    fn entered(&mut self, line: &str) -> Vec<u8> {
        let text = match &self.state {
            State::Name if line.is_empty() => String::new(),
            State::Name => {
                self.state = State::Password(line.to_owned());
                String::new()
            }
            State::Password(user) => {
                self.state = State::Shell(user.clone());
                format!("Welcome to {}\r\n", self.name)
            }
            State::Shell(user) => match line.split_once(' ').unwrap_or((line, "")) {
                ("", _) => String::new(),
                ("hostname", _) => format!("{}\r\n", self.name),
                ("whoami", _) => format!("{user}\r\n"),
                ("echo", rest) => format!("{rest}\r\n"),
                ("exit" | "logout", _) => {
                    self.state = State::Name;
                    "logout\r\n".to_owned()
                }
                (command, _) => format!("-bash: {command}: command not found\r\n"),
            },
        };
        text.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Serial {
        let mut serial = Serial::new(Some("web".to_owned()), 100, "root@pam", "PVEVNC:1");
        assert_eq!(serial.input(b"root@pam:PVEVNC:1\n"), b"OK\r\nweb login: ");
        serial
    }

    fn text(bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes).into_owned()
    }

    #[test]
    fn a_visitor_with_another_ticket_is_sent_away_without_a_word() {
        let mut serial = Serial::new(Some("web".to_owned()), 100, "root@pam", "PVEVNC:1");
        assert_eq!(serial.input(b"root@pam:PVEVNC:2\n"), b"");
        assert!(serial.is_over());
    }

    #[test]
    fn what_is_typed_is_echoed_and_answered_but_a_password_is_not_shown() {
        let mut serial = line();
        assert_eq!(serial.input(b"0:4:joe\r"), b"joe\r\nPassword: ");
        assert_eq!(
            text(&serial.input(b"0:4:pwd\r")),
            "\r\nWelcome to web\r\njoe@web:~$ "
        );
        assert_eq!(
            text(&serial.input(b"0:9:hostname\n")),
            "hostname\r\nweb\r\njoe@web:~$ "
        );
    }

    #[test]
    fn messages_may_come_in_pieces_and_many_at_once() {
        let mut serial = line();
        assert_eq!(serial.input(b"1:80:2"), b"");
        assert_eq!(
            serial.input(b"4:20:2:ab"),
            b"ab",
            "a size, a ping and two keys"
        );
        assert_eq!(serial.input(b"hello"), b"");
        assert!(serial.is_over(), "that is no message");
        let mut serial = line();
        assert_eq!(serial.input(b"1:80:24:20:2:ab0:1:"), b"ab");
        assert_eq!(serial.input(b"c"), b"c");
    }

    #[test]
    fn a_guest_that_is_off_says_so_and_hangs_up() {
        let mut serial = Serial::new(None, 100, "root@pam", "t");
        assert_eq!(
            text(&serial.input(b"root@pam:t\n")),
            "OKVM 100 not running\r\n"
        );
        assert!(serial.is_over());
    }
}
