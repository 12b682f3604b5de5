//! The grammar of label selectors, with Kubernetes' words for what does not fit it.

use super::{Requirement, Test};
use crate::{names, schema::FieldError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Word,
    In,
    NotIn,
    Not,
    Equal,
    NotEqual,
    Greater,
    Less,
    Open,
    Close,
    Comma,
    Wrong,
    End,
}

const SYMBOLS: [(&str, Token); 9] = [
    ("==", Token::Equal),
    ("!=", Token::NotEqual),
    ("!", Token::Not),
    ("=", Token::Equal),
    (">", Token::Greater),
    ("<", Token::Less),
    ("(", Token::Open),
    (")", Token::Close),
    (",", Token::Comma),
];

/// Reads `a=b,c!=d,e in (f,g),h,!i,j>1`.
pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, String> {
    let mut parser = Parser {
        tokens: tokens(text),
        at: 0,
    };
    let mut found = Vec::new();
    loop {
        let (token, word) = parser.peek();
        match token {
            Token::Word | Token::Not => {
                let requirement = parser
                    .requirement()
                    .map_err(|why| format!("unable to parse requirement: {why}"))?;
                found.push(requirement);
            }
            Token::End => return Ok(found),
            _ => {
                return Err(format!(
                    "found '{word}', expected: !, identifier, or 'end of string'"
                ));
            }
        }
        match parser.next() {
            (Token::End, _) => return Ok(found),
            (Token::Comma, _) => {
                let (token, word) = parser.peek();
                if !matches!(token, Token::Word | Token::Not) {
                    return Err(format!("found '{word}', expected: identifier after ','"));
                }
            }
            (_, word) => {
                return Err(format!("found '{word}', expected: ',' or 'end of string'"));
            }
        }
    }
}

fn tokens(text: &str) -> Vec<(Token, String)> {
    let special = |c: char| "=!(),><".contains(c);
    let mut out = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, length) = if special(first) {
            let symbol = SYMBOLS.iter().find(|(symbol, _)| rest.starts_with(symbol));
            symbol.map_or((Token::Wrong, 1), |(symbol, token)| (*token, symbol.len()))
        } else {
            let end = rest
                .find(|c: char| special(c) || c.is_ascii_whitespace())
                .unwrap_or(rest.len());
            let token = match &rest[..end] {
                "in" => Token::In,
                "notin" => Token::NotIn,
                _ => Token::Word,
            };
            (token, end)
        };
        out.push((token, rest[..length].to_owned()));
        rest = rest[length..].trim_start();
    }
    out
}

struct Parser {
    tokens: Vec<(Token, String)>,
    at: usize,
}

impl Parser {
    /// The token here, as an operator.
    fn operator(&mut self) -> (Token, String) {
        let found = self.tokens.get(self.at).cloned();
        self.at += 1;
        found.unwrap_or((Token::End, String::new()))
    }

    /// The token here; where values stand `in` and `notin` are words like others.
    fn peek(&self) -> (Token, String) {
        match self.tokens.get(self.at) {
            Some((Token::In | Token::NotIn, word)) => (Token::Word, word.clone()),
            Some(found) => found.clone(),
            None => (Token::End, String::new()),
        }
    }

    fn next(&mut self) -> (Token, String) {
        let found = self.peek();
        self.at += 1;
        found
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let (mut token, mut key) = self.next();
        let absent = token == Token::Not;
        if absent {
            (token, key) = self.next();
        }
        if token != Token::Word {
            return Err(format!("found '{key}', expected: identifier"));
        }
        let faults = names::qualified_name(&key);
        if !faults.is_empty() {
            let error = FieldError::invalid("<nil>", key.as_str(), faults.join("; "));
            return Err(error.to_string());
        }
        if absent {
            return Ok(Requirement {
                key,
                test: Test::Absent,
            });
        }
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Ok(Requirement {
                key,
                test: Test::Exists,
            });
        }
        let (operator, word) = self.operator();
        let test = match operator {
            Token::In => Test::In(self.values(&key)?),
            Token::NotIn => Test::NotIn(self.values(&key)?),
            Token::Equal => Test::In(vec![self.value(&key)?]),
            Token::NotEqual => Test::NotIn(vec![self.value(&key)?]),
            Token::Greater => Test::Greater(self.number(&key)?),
            Token::Less => Test::Less(self.number(&key)?),
            _ => {
                return Err(format!(
                    "found '{word}', expected: in, notin, =, ==, !=, gt, lt"
                ));
            }
        };
        Ok(Requirement { key, test })
    }

    fn value(&mut self, key: &str) -> Result<String, String> {
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Ok(String::new());
        }
        match self.next() {
            (Token::Word, word) => checked(key, word),
            (_, word) => Err(format!("found '{word}', expected: identifier")),
        }
    }

    fn number(&mut self, key: &str) -> Result<i64, String> {
        let text = self.value(key)?;
        text.parse().map_err(|_| {
            let why = "for 'Gt', 'Lt' operators, the value must be an integer";
            FieldError::invalid("values[0]", text, why).to_string()
        })
    }

    fn values(&mut self, key: &str) -> Result<Vec<String>, String> {
        let (token, word) = self.next();
        if token != Token::Open {
            return Err(format!("found '{word}' expected: '('"));
        }
        let (token, word) = self.peek();
        match token {
            Token::Close => {
                self.at += 1;
                Ok(vec![String::new()])
            }
            Token::Word | Token::Comma => {
                let mut values: Vec<String> = Vec::new();
                loop {
                    match self.next() {
                        (Token::Word, word) => {
                            values.push(checked(key, word)?);
                            match self.next() {
                                (Token::Comma, _) if self.peek().0 == Token::Close => {
                                    values.push(String::new());
                                }
                                (Token::Comma, _) => {}
                                (Token::Close, _) => return Ok(values),
                                (_, word) => {
                                    return Err(format!("found '{word}', expected: ',' or ')'"));
                                }
                            }
                        }
                        (Token::Comma, _) => values.push(String::new()),
                        (Token::Close, _) => return Ok(values),
                        (_, word) => {
                            return Err(format!("found '{word}', expected: ',', or identifier"));
                        }
                    }
                }
            }
            _ => Err(format!("found '{word}', expected: ',', ')' or identifier")),
        }
    }
}

fn checked(key: &str, value: String) -> Result<String, String> {
    let faults = names::label_value(&value);
    if faults.is_empty() {
        return Ok(value);
    }
    let error = FieldError::invalid(&format!("[{key}]"), value, faults.join("; "));
    Err(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_told_in_kubernetes_words() {
        let fault = |text: &str| requirements(text).unwrap_err();
        assert_eq!(
            fault("tier in x"),
            "unable to parse requirement: found 'x' expected: '('"
        );
        assert_eq!(
            fault("=x"),
            "found '=', expected: !, identifier, or 'end of string'"
        );
        assert_eq!(
            fault("tier=not a value"),
            "found 'a', expected: ',' or 'end of string'"
        );
        assert_eq!(
            fault("!tier=x"),
            "found '=', expected: ',' or 'end of string'"
        );
        assert_eq!(
            fault("a b="),
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"
        );
        assert_eq!(
            fault("tier>x"),
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' \
             operators, the value must be an integer"
        );
    }
}
