//! A screen by the remote framebuffer protocol (RFB 3.8), dark and of the size a firmware starts with.
//!
//! The handshake is whole, with the password challenge that QEMU makes when PVE has set the ticket as its password. The response to
//! the challenge is not checked: the ticket was, when the visitor came. Requests for updates are answered with none.

/// What is said to everybody first, and to be answered alike.
pub(super) const VERSION: &[u8; 12] = b"RFB 003.008\n";
const WIDTH: u16 = 720;
const HEIGHT: u16 = 400;
/// RFB's number for the challenge.
const CHALLENGE: u8 = 2;

/// A visitor's talk with a guest's screen.
pub(super) struct Screen {
    name: String,
    step: Step,
    pending: Vec<u8>,
    over: bool,
}

#[derive(Clone, Copy)]
enum Step {
    Version,
    Security,
    Response,
    Init,
    Messages,
}

impl Screen {
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            step: Step::Version,
            pending: Vec::new(),
            over: false,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    pub(super) fn input(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.pending.extend_from_slice(bytes);
        let mut out = Vec::new();
        while let Some(length) = self.complete() {
            let message: Vec<u8> = self.pending.drain(..length).collect();
            out.extend(self.step(&message));
            if self.over {
                break;
            }
        }
        out
    }

    /// The length of the next message, once all of it is there.
    fn complete(&mut self) -> Option<usize> {
        let pending = &self.pending;
        let length = match self.step {
            Step::Version => VERSION.len(),
            Step::Security | Step::Init => 1,
            Step::Response => 16,
            Step::Messages => match pending.first()? {
                0 => 20,
                2 => 4 + 4 * usize::from(u16::from_be_bytes([*pending.get(2)?, *pending.get(3)?])),
                3 => 10,
                4 => 8,
                5 => 6,
                6 => {
                    let length = pending.get(4..8)?.try_into().ok().map(u32::from_be_bytes)?;
                    8 + usize::try_from(length.min(1 << 20)).ok()?
                }
                _ => {
                    self.over = true;
                    return None;
                }
            },
        };
        (pending.len() >= length).then_some(length)
    }

    fn step(&mut self, message: &[u8]) -> Vec<u8> {
        match self.step {
            Step::Version if message == VERSION => {
                self.step = Step::Security;
                vec![1, CHALLENGE]
            }
            Step::Security if message == [CHALLENGE] => {
                self.step = Step::Response;
                vec![0x5a; 16]
            }
            Step::Version | Step::Security => {
                self.over = true;
                Vec::new()
            }
            Step::Response => {
                self.step = Step::Init;
                vec![0; 4]
            }
            Step::Init => {
                self.step = Step::Messages;
                self.description()
            }
            // An update of no rectangle.
            Step::Messages if message[0] == 3 => vec![0; 4],
            Step::Messages => Vec::new(),
        }
    }

    /// Size, 32 bits per pixel in true colour, and the name.
    fn description(&self) -> Vec<u8> {
        let name = format!("QEMU ({})", self.name);
        let mut out = Vec::new();
        out.extend(WIDTH.to_be_bytes());
        out.extend(HEIGHT.to_be_bytes());
        out.extend([32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0, 0, 0, 0]);
        out.extend(u32::try_from(name.len()).unwrap_or_default().to_be_bytes());
        out.extend(name.into_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_viewer_gets_through_the_handshake_and_hears_the_name() {
        let mut screen = Screen::new("web".to_owned());
        assert_eq!(screen.input(VERSION), [1, CHALLENGE]);
        assert_eq!(screen.input(&[CHALLENGE]).len(), 16);
        assert_eq!(screen.input(&[7; 10]), b"");
        assert_eq!(screen.input(&[7; 6]), [0, 0, 0, 0]);
        let description = screen.input(&[1]);
        assert!(description.ends_with(b"QEMU (web)"));
        assert_eq!(
            screen.input(&[3, 0, 0, 0, 0, 0, 2, 208, 1, 144]),
            [0, 0, 0, 0]
        );
        assert!(!screen.is_over());
    }

    #[test]
    fn who_speaks_something_else_is_cut_off() {
        let mut screen = Screen::new("web".to_owned());
        assert_eq!(screen.input(b"GET / HTTP/1.1\r\n"), b"");
        assert!(screen.is_over());
    }
}
