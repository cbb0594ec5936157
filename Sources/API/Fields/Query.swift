internal import FoundationEssentials
internal import Jobs

/// The parameters of a query (`application/x-www-form-urlencoded` of the URL standard). Handlers read and remove the
/// parameters they know. Any that are left are unknown, and ``checkComplete(with:)`` reports them.
struct Query {
  private var items: [(name: String, value: String)] = []
  /// The names that handlers asked for, to suggest corrections.
  private var known: [String] = []
  /// The mistakes in the parameters read so far.
  var mistakes = RequestErrors()

  /// - Parameter text: the query as sent, without the question mark.
  init(_ text: String?) {
    guard let text, !text.isEmpty else { return }
    for item in text.utf8.split(separator: UInt8(ascii: "&")) {
      let equals = item.firstIndex(of: UInt8(ascii: "=")) ?? item.endIndex
      guard let name = Self.decoded(item[..<equals]),
        let value = Self.decoded(item[equals...].dropFirst())
      else {
        mistakes.add(
          .parameter(String(item.prefix(64)) ?? ""), .invalidOption,
          "Must be percent-encoded UTF-8 without NUL.")
        continue
      }
      items.append((name, value))
    }
  }

  /// Whether a parameter of that name is left.
  mutating func has(_ name: String) -> Bool {
    if !items.isEmpty { known.append(name) }
    return items.contains { $0.name == name }
  }

  /// Removes all parameters of that name and returns their values.
  mutating func values(_ name: String) -> [String] {
    guard !items.isEmpty else { return [] }
    known.append(name)
    defer { items.removeAll { $0.name == name } }
    return items.filter { $0.name == name }.map(\.value)
  }

  /// The value of a parameter that may occur once.
  mutating func value(_ name: String) -> String? {
    let values = values(name)
    if values.count > 1 { addMistake(name, "Must occur only once.") }
    return values.first
  }

  /// Reads `true` or `false`; false if it is missing.
  mutating func bool(_ name: String) -> Bool {
    switch value(name) {
    case nil, "false": return false
    case "true": return true
    case _?:
      addMistake(name, "Must be true or false.")
      return false
    }
  }

  /// Reads a number of seconds, with an optional fraction.
  mutating func seconds(_ name: String) -> Double? {
    guard let text = value(name) else { return nil }
    guard let seconds = JSONValue(numberIn: text)?.double, seconds >= 0 else {
      addMistake(name, "Must be a number of seconds.")
      return nil
    }
    return seconds
  }

  /// Reads an integer within the range.
  mutating func int(_ name: String, in range: ClosedRange<Int>) -> Int? {
    guard let text = value(name) else { return nil }
    guard let number = JSONValue(numberIn: text)?.int, range ~= number else {
      addMistake(name, "Must be an integer from \(range.lowerBound) to \(range.upperBound).")
      return nil
    }
    return number
  }

  /// Adds a mistake in a parameter.
  mutating func addMistake(_ name: String, _ detail: String) {
    mistakes.add(Location(root: .query, member: name), .invalidOption, detail)
  }

  /// Throws if there were mistakes, including unknown parameters and `others`.
  mutating func checkComplete(with others: RequestErrors = RequestErrors()) throws(Problem) {
    mistakes.add(others)
    for item in items {
      guard !mistakes.isFull else { break }
      let hint = mistakes.hint(for: item.name, among: known)
      addMistake(item.name, "This query parameter is unknown here.\(hint)")
    }
    items = []
    try mistakes.check()
  }

  private static func decoded(_ text: Substring.UTF8View) -> String? {
    var bytes: [UInt8] = []
    var rest = text
    while let byte = rest.popFirst() {
      switch byte {
      case UInt8(ascii: "+"): bytes.append(0x20)
      case UInt8(ascii: "%"):
        guard let high = rest.popFirst().flatMap(hexDigit),
          let low = rest.popFirst().flatMap(hexDigit)
        else { return nil }
        bytes.append(high << 4 | low)
      default: bytes.append(byte)
      }
    }
    return bytes.contains(0) ? nil : String(validating: bytes, as: UTF8.self)
  }

  private static func hexDigit(_ byte: UInt8) -> UInt8? {
    Character(Unicode.Scalar(byte)).hexDigitValue.map(UInt8.init)
  }
}

extension JSONValue {
  /// Parses a text that is a JSON number; nil for anything else.
  init?(numberIn text: String) {
    guard text.utf8.count <= 64,
      case .number(let number)? = try? JSONParser.parse(Array(text.utf8), maxValues: 1),
      number.utf8.count == text.utf8.count
    else { return nil }
    self = .number(number)
  }
}

extension Query {
  /// Reads a time in the format of RFC 3339: `2026-11-21T09:30:00.000Z`. Its letters may be lower case (section 5.6).
  mutating func moment(_ name: String) -> Timestamp? {
    guard let text = value(name) else { return nil }
    for hasFraction in [true, false] {
      let style = Date.ISO8601FormatStyle(includingFractionalSeconds: hasFraction)
      if let date = try? style.parse(text.uppercased()), abs(date.timeIntervalSince1970) < 1e11 {
        return Timestamp(milliseconds: Int64((date.timeIntervalSince1970 * 1_000).rounded()))
      }
    }
    addMistake(name, "Must be a time such as 2026-11-21T09:30:00Z.")
    return nil
  }
}
