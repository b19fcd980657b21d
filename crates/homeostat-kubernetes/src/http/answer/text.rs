//! Parses texts in answers: the messages of causes, and warnings. Plain values.

/// Splits a cause's message, such as `Invalid value: "a b": must be a DNS label`, into the value and the rule. If
/// there is no value, the rule may contain colons.
///
/// The format is the same as in Kubernetes' `field.Error` (`apimachinery/pkg/util/validation/field/errors.go`).
pub(super) fn value_and_rule(message: &str) -> (String, &str) {
    /// The prefixes of messages that contain a value.
    const ABOUT_VALUES: [&str; 6] =
        ["Invalid value", "Unsupported value", "Duplicate value", "Not found", "Too many", "Too long"];
    /// For a schema rule, older servers name the type in place of the value.
    const TYPES: [&str; 7] = ["object", "array", "string", "integer", "number", "boolean", "null"];
    let about = ABOUT_VALUES.iter().find_map(|about| Some((*about, message.strip_prefix(about)?.strip_prefix(": ")?)));
    let Some((about, rest)) = about else { return (String::new(), message) };
    let (value, rule) = match printed_value(rest) {
        Some(length) => (&rest[..length], rest[length..].strip_prefix(": ").unwrap_or(about)),
        None if about == ABOUT_VALUES[0] => ("", rest),
        None => ("", message),
    };
    let quoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    match quoted {
        Some(quoted) if TYPES.contains(&quoted) => (String::new(), rule),
        Some(quoted) => (serde_json::from_str(value).unwrap_or_else(|_| quoted.to_owned()), rule),
        None => (value.to_owned(), rule),
    }
}

/// Returns the length of the value at the start of a text: a JSON or Go literal before a colon or the end.
fn printed_value(text: &str) -> Option<usize> {
    let (mut depth, mut in_string, mut escaped) = (0_u32, false, false);
    let mut end = text.len();
    for (at, c) in text.char_indices() {
        match c {
            _ if std::mem::take(&mut escaped) => {}
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            _ if in_string => {}
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth = depth.checked_sub(1)?,
            ':' if depth == 0 && text[at..].starts_with(": ") => {
                end = at;
                break;
            }
            // Go prints types such as `map[string]interface {}`.
            ' ' if depth == 0 && !text[at..].starts_with(" {") => return None,
            _ => {}
        }
    }
    if in_string || depth > 0 {
        return None;
    }
    let value = &text[..end];
    let is_literal = matches!(value, "true" | "false" | "null") || value.parse::<f64>().is_ok();
    (is_literal || value.ends_with(['"', '}', ']', ')'])).then_some(end)
}

/// Parses the texts in a `Warning` header, such as `299 - "unknown field \"spec.colour\""`. A header may have several.
pub(crate) fn warnings(header: &str) -> Vec<String> {
    let (mut texts, mut rest) = (Vec::new(), header);
    while let Some((_, quoted)) = rest.split_once('"') {
        let (mut text, mut chars) = (String::new(), quoted.char_indices());
        rest = "";
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => text.extend(chars.next().map(|(_, c)| c)),
                '"' => {
                    rest = &quoted[at + 1..];
                    break;
                }
                c => text.push(c),
            }
        }
        texts.push(text);
        // A quoted date may follow the text, and it contains a comma.
        if let Some(date) = rest.trim_start().strip_prefix('"') {
            rest = date.split_once('"').map_or("", |(_, rest)| rest);
        }
    }
    texts
}
